"""What one process does of a sweep: all of it, or the items of some shards; and where it puts them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from debate_local.core.transcript import Item

from . import machine
from .plan import PlannedRun
from .shards import Shard
from .store import failed_requests, is_done, part_folder
from .writer import RunWriter, merge_parts


@dataclass(frozen=True, eq=False)
class Portion:
    """The items of a run that are debated and stored together: all, or those of one shard.

    again: the run is done, and is done anew because failed requests are to be asked again.
    """

    run: PlannedRun
    shard: Shard | None
    items: Sequence[Item]
    folder: Path
    again: bool

    @property
    def turns(self) -> int:
        """Requests, at most."""
        return len(self.items) * self.run.calls

    def writer(self) -> RunWriter:
        """What writes its debates."""
        record = {**self.run.record(), "versions": machine.versions(), "commit": machine.commit()}
        return RunWriter(self.folder, {**record, "hardware": machine.hardware()}, self.again and self.shard is None)


class Work:
    """One process's share of a sweep. shards: all of a split; mine: those that are ours. Neither: everything is ours.

    retry_failed: what is done and holds failed requests is to be done again.
    """

    def __init__(
        self, output: Path, shards: Sequence[Shard] = (), mine: Sequence[Shard] = (), retry_failed: bool = False
    ) -> None:
        self._output, self._shards, self._mine, self._retry = output, shards, mine, retry_failed
        self._again: dict[str, bool] = {}

    @property
    def name(self) -> str:
        """What tells this share from others of the same sweep; empty when everything is ours."""
        if not self._mine:
            return ""
        more = f"+{len(self._mine) - 1}" if len(self._mine) > 1 else ""
        return f"-{self._mine[0].name}{more}"

    @property
    def locks(self) -> list[str]:
        """The names of the locks that this share needs: one a shard, or that of the whole sweep."""
        return [f"-{shard.name}" for shard in self._mine] or [""]

    @property
    def numbers(self) -> list[int]:
        """The numbers of our shards."""
        return [shard.number for shard in self._mine]

    @property
    def share(self) -> float:
        """Our shards among all, 1 when everything is ours."""
        return len(self._mine) / len(self._shards) if self._mine else 1.0

    def todo(self, runs: Iterable[PlannedRun]) -> list[Portion]:
        """What is ours and not done."""
        return [portion for run in runs for portion in self._portions(run) if self._is_todo(portion)]

    def reopen(self, runs: Iterable[PlannedRun]) -> None:
        """Take the marker off our parts that hold failed requests, when these are to be asked again.

        Before any worker begins, or a run is put together with what is about to be done anew.
        """
        if not self._retry:
            return
        for portion in (portion for run in runs for portion in self._portions(run) if portion.shard is not None):
            if is_done(portion.folder) and failed_requests(portion.folder):
                (portion.folder / "done").unlink(missing_ok=True)

    def missing(self, runs: Iterable[PlannedRun]) -> list[str]:
        """The ids of runs of which something that is ours is not done."""
        return [
            run.id
            for run in runs
            if not is_done(self._output / run.id) and not all(is_done(p.folder) for p in self._portions(run))
        ]

    def put_together(self, run: PlannedRun) -> bool:
        """Make the whole run of its parts when all of them are there; True when that was so."""
        folder = self._output / run.id
        if not self._mine or (is_done(folder) and not self.again(run)):
            return False
        ids = {item.id for item in run.task.items}
        touched = [shard for shard in self._shards if shard.touches(run.cell.task.name, ids)]
        parts = [part_folder(folder, shard.split, shard.number) for shard in touched]
        if not all(is_done(part) for part in parts):
            return False
        return merge_parts(folder, parts, [item.id for item in run.task.items], self.again(run))

    def again(self, run: PlannedRun) -> bool:
        """Was the run done when first looked at, and is it to be done anew for its failed requests?"""
        if run.id not in self._again:
            folder = self._output / run.id
            self._again[run.id] = self._retry and is_done(folder) and failed_requests(folder) > 0
        return self._again[run.id]

    def _portions(self, run: PlannedRun) -> list[Portion]:
        folder = self._output / run.id
        if not self._mine:
            return [Portion(run, None, run.task.items, folder, self.again(run))]
        return [
            Portion(run, shard, items, part_folder(folder, shard.split, shard.number), self.again(run))
            for shard in self._mine
            if (items := shard.of(run))
        ]

    def _is_todo(self, portion: Portion) -> bool:
        if portion.again:
            return portion.shard is None or not is_done(portion.folder)
        return not is_done(self._output / portion.run.id) and not is_done(portion.folder)
