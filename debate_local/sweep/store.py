"""Run folders: what a run leaves on disk and how it is read back.

    <run>/run.json          what was run: schema_version, cell, templates, engine identity, rows hash, versions, ...
    <run>/debates.parquet   one row an item     (columns: DEBATE_COLUMNS)
    <run>/turns.parquet     one row a turn      (columns: TURN_COLUMNS)
    <run>/done              the marker, written last

The two tables are functions of config and completions only, in the order of the items, so they are equal after any
crash, batch or schedule. Files are written beside and renamed. A finished run is never written again.
"""

import contextlib
import fcntl
import json
import os
import socket
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from debate_local.core.chat import digest
from debate_local.core.transcript import Item

from .sharing import beside, flock

if TYPE_CHECKING:
    import polars as pl

SCHEMA_VERSION = 1

# name -> (type, meaning). Costs are what the debate would cost alone: shared and cached completions in full.
DEBATE_COLUMNS: dict[str, tuple[str, str]] = {
    "item_id": ("string", "the item"),
    "question": ("string", "its text, without the request for a format"),
    "target": ("string", "the gold answer"),
    "group": ("string", "its subject or subset; empty where the task has none"),
    "suspect": ("string", "why the gold is doubted; null when it is not: a second score leaves these items out"),
    "answer": ("string", "the decided answer; null: none, or several that are scored each"),
    "answer_key": ("string", "equal keys are the same vote"),
    "score": ("double", "the item's share in the metric; with rule `each` the mean over the agents"),
    "trapped": ("double", "1 when the answer is the item's trap; with rule `each` the share of agents; null: no trap"),
    "no_answer": ("double", "1 when there is no answer; with rule `each` the share of agents without one"),
    "rule": ("string", "the decision rule"),
    "counts": ("string", "JSON: votes by key, most first"),
    "tied": ("list<string>", "the keys that shared the top count; empty without a tie"),
    "eligible": ("int32", "who could vote"),
    "received": ("int32", "who gave an answer"),
    "rounds": ("int32", "rounds spoken"),
    "stopped": ("string", "why it ended"),
    "side": ("string", "the side that a judge decided for; null: none, or there are no sides"),
    "calls": ("double", "requests, as if alone"),
    "prompt_tokens": ("double", "as if alone"),
    "generated_tokens": ("double", "as if alone"),
    "reasoning_tokens": ("double", "those of generated_tokens that were reasoning, by the share of characters"),
    "cut_thoughts": ("int32", "turns cut off within their reasoning: no text, no answer"),
    "truncated": ("int32", "turns cut off by max_tokens or the context"),
    "too_long": ("int32", "turns whose prompt did not fit"),
    "failed": ("int32", "turns that the engine failed"),
    "empty": ("int32", "turns whose reply held no text"),
    "error": ("string", "the debate's own code failed: its message; null otherwise"),
}
TURN_COLUMNS: dict[str, tuple[str, str]] = {
    "item_id": ("string", "the item"),
    "round": ("int32", "0 is the independent answers"),
    "agent": ("int32", "from 0"),
    "step": ("string", "a further request of the same turn; empty for the first"),
    "role": ("string", "debater, judge, ..."),
    "side": ("string", "what a debater stands for, or a judge decides for; null where there is none"),
    "model": ("string", "the name in the pool"),
    "heard": ("list<string>", "whose text was in the prompt: agent.round"),
    "history": ("int32", "how many earlier messages the request repeated before `prompt`"),
    "prompt": ("string", "JSON: the messages that were new to this agent"),
    "text": ("string", "the reply without reasoning"),
    "reasoning": ("string", "the reasoning, null without"),
    "raw": ("string", "exactly what was generated; null when equal to text"),
    "answer": ("string", "the answer read from text; null: none"),
    "answer_key": ("string", "equal keys are the same vote"),
    "answer_rule": ("string", "the reader's rule, or why there is no answer"),
    "answer_start": ("int32", "where in text it was read, from"),
    "answer_end": ("int32", "... to (exclusive)"),
    "score": ("double", "the score of this answer"),
    "json_rule": ("string", "how the JSON that was asked for was read, or why not; null: none was asked for"),
    "confidence": ("double", "how sure it says it is, 0 to 1; null: not asked, or not to be read"),
    "stances": ("string", 'JSON: [[answer key, "agree", "disagree" or ""], ...], "" not to be read; null: not asked'),
    "answer_logprob": ("double", "mean natural log-probability of the answer's tokens; null when not known"),
    "trapped": ("bool", "the answer is the item's trap, its tempting wrong answer; null: the item has none"),
    "finish_reason": ("string", "stop, length, too_long, error"),
    "clipped": ("bool", "cut by the context, not by max_tokens"),
    "error": ("string", "why the request failed"),
    "prompt_tokens": ("int32", ""),
    "generated_tokens": ("int32", ""),
    "logprobs": ("list<double>", "natural log-probability of each generated token; null when not asked for"),
    "neutralised": ("int32", "message contents that held template tokens"),
    "notes": ("list<string>", "what the engine had to do to the conversation"),
    "stop_reason": ("string", "the stop string that ended it; null when it ended by itself"),
    "prompt_hash": ("string", "of the prompt's token ids; null where only a server knows them"),
    "temperature": ("double", "null: the model's own default"),
    "seed": ("int64", "null when greedy"),
}


class StoreFault(ValueError):
    """A run folder that cannot be read: missing, unfinished, or of another schema."""


class NewerSchema(StoreFault):
    """What a later version has written: neither to be read nor to be written again."""


@dataclass(frozen=True)
class Run:
    """A stored run. record: run.json. Its tables are read when first used."""

    folder: Path
    record: Mapping[str, Any]

    @property
    def id(self) -> str:
        return self.folder.name

    @property
    def done(self) -> bool:
        return is_done(self.folder)

    @property
    def has_tables(self) -> bool:
        """True when there is something to read: the whole run, one with failed debates in it, or parts of it."""
        return bool(self._files("debates")) and bool(self._files("turns"))

    def _files(self, name: str) -> list[Path]:
        """The table of a run; of one that is not put together yet, those of its parts."""
        whole = self.folder / f"{name}.parquet"
        if _has_content(whole):
            return [whole]
        return [path for path in sorted(self.folder.glob(f"parts/*/*/{name}.parquet")) if _is_whole(path)]

    @property
    def label(self) -> str:
        return str(self.record["label"])

    @cached_property
    def debates(self) -> "pl.DataFrame":
        """One row an item: DEBATE_COLUMNS."""
        return self._table("debates")

    @cached_property
    def turns(self) -> "pl.DataFrame":
        """One row a turn: TURN_COLUMNS."""
        return self._table("turns")

    @cached_property
    def own_turns(self) -> "pl.DataFrame":
        """The turns of debaters that hold their own answers: no helper's, and no further request (`Turn.votes`)."""
        import polars as pl

        return self.turns.filter((pl.col("role") == "debater") & (pl.col("step") == ""))

    def _table(self, name: str) -> "pl.DataFrame":
        import polars as pl

        paths = self._files(name)
        if not paths:
            raise StoreFault(
                f"{self.folder} has no {name}.parquet, or an empty one: run the command that made it again"
            )
        tables: list[pl.DataFrame] = []
        seen: list[str] = []
        path = paths[0]
        try:
            for path in paths:
                # Absolute and no pattern: a folder may be called `runs[1]` or `s3:x`.
                table = pl.read_parquet(path.absolute(), glob=False)
                # Splits of one run may overlap; a part holds all turns of its items.
                tables.append(table.filter(~table["item_id"].is_in(seen)))
                seen += table["item_id"].unique().to_list()
            return pl.concat(tables)
        except pl.exceptions.PolarsError as error:
            raise StoreFault(
                f"{path} cannot be read ({error}): delete {self.folder} and run the command that made it again; its "
                "completions are in the cache"
            ) from error


@dataclass(frozen=True)
class SweepCell:
    """A run's place in a sweep. asked: somebody asked for it. controls: (its name as a control, of which run)."""

    run: Run
    asked: bool = True
    controls: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Sweep:
    """A stored sweep: its record, and its runs in the order of the plan."""

    folder: Path
    record: Mapping[str, Any]
    cells: tuple[SweepCell, ...] = field(default=())

    @property
    def runs(self) -> tuple[Run, ...]:
        return tuple(cell.run for cell in self.cells)


def is_done(folder: Path) -> bool:
    """True when the marker of a run (or of a part of one) is there, and all that was written before it still is."""
    return (
        (folder / "done").exists()
        and _has_content(folder / "run.json")
        and all(_is_whole(folder / name) for name in _TABLES)
    )


_TABLES = ("debates.parquet", "turns.parquet")


def _is_whole(path: Path) -> bool:
    """A parquet file begins and ends with its mark: one that was torn does not."""
    try:
        with path.open("rb") as file:
            begins = file.read(4)
            file.seek(-4, os.SEEK_END)
            return begins == file.read(4) == b"PAR1"
    except OSError:
        return False


def part_folder(run: Path, split: str, number: int) -> Path:
    """Where shard `number` of a split writes its part of a run."""
    return parts_folder(run, split) / f"{number:04d}"


def parts_folder(run: Path, split: str) -> Path:
    """Where the parts of a run lie that belong to one split."""
    return run / "parts" / f"{split}-{times_rewritten(run)}"


def failed_requests(run: Path) -> int:
    """How many requests of a finished run failed."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    table = pq.read_table((run / "debates.parquet").absolute(), columns=["failed"])
    return int(pc.sum(table["failed"]).as_py() or 0)


def times_rewritten(run: Path) -> int:
    """How often failed requests of a finished run were asked again: its earlier tables are kept."""
    return sum(1 for _ in run.glob("earlier-*"))


def _has_content(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def refuse_newer(folder: Path) -> None:
    """Raise StoreFault for a run of a newer schema: it is not ours to write again."""
    path = folder / "run.json"
    try:
        version = json.loads(path.read_text(encoding="utf-8"))["schema_version"]
    except (OSError, ValueError, KeyError, TypeError):
        # Missing or torn: it will be written anew.
        return
    refuse_newer_schema(path, version)


def refuse_newer_schema(path: Path, version: Any) -> None:
    """Raise StoreFault for a version that this code does not know."""
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise NewerSchema(_newer(path, version))


@contextlib.contextmanager
def locked(folder: Path, name: str = "") -> Iterator[None]:
    """Hold a sweep's folder, or one of its shards by name, for this process. Raises StoreFault while another holds it.

    Who runs the whole sweep and who runs a shard of it keep each other out; workers on shards only those on the same.
    Advisory, by flock: gone with the process, and not relied on where a file system has none (then runs are safe all
    the same, because a finished run is not written again).
    """
    with contextlib.ExitStack() as held:
        whole = held.enter_context((folder / ".lock").open("a+", encoding="utf-8"))
        if not flock(whole, fcntl.LOCK_SH if name else fcntl.LOCK_EX):
            raise StoreFault(_busy("sweep", _holders(folder) or [_written_in(whole)], folder))
        mine = held.enter_context((folder / f".lock{name}").open("a+", encoding="utf-8")) if name else whole
        if name and not flock(mine, fcntl.LOCK_EX):
            raise StoreFault(_busy("shard", [_written_in(mine)], folder))
        mine.truncate(0)
        mine.write(f"process {os.getpid()} on {socket.gethostname()}")
        mine.flush()
        yield


def _holders(folder: Path) -> list[str]:
    """Who runs shards of a sweep at the moment."""
    found = []
    for path in sorted(folder.glob(".lock-*")):
        with path.open("a+", encoding="utf-8") as file:
            if not flock(file, fcntl.LOCK_EX):
                found.append(_written_in(file))
    return list(dict.fromkeys(found))


def _written_in(file: TextIO) -> str:
    file.seek(0)
    return file.read().strip() or "another process"


def _busy(what: str, by: list[str], folder: Path) -> str:
    more = f" and {len(by) - 3} more" if len(by) > 3 else ""
    return (
        f"this {what} is being run already, by {', '.join(by[:3])}{more}: {folder}. Wait for it, or stop it; what it "
        "has answered is kept"
    )


def load(path: str | os.PathLike[str]) -> Run | Sweep:
    """A run folder or a sweep folder. Raises StoreFault with what is wrong and what to do."""
    folder = Path(path)
    if (folder / "sweep.json").exists():
        return load_sweep(folder)
    return load_run(folder)


def load_one(path: str | os.PathLike[str], command: str) -> Run:
    """The run that a command takes. Raises StoreFault for a sweep, which names its runs."""
    stored = load(path)
    if isinstance(stored, Sweep):
        runs = ", ".join(str(run.folder) for run in stored.runs)
        raise StoreFault(f"{path} is a sweep; {command} takes a run: {runs}")
    return stored


def load_run(folder: Path) -> Run:
    """A run folder. Raises StoreFault when there is none, or one of a newer schema."""
    return Run(folder, _read_record(_record_file(folder), "run"))


def _record_file(folder: Path) -> Path:
    """A run's run.json; that of one of its parts when it is not put together yet."""
    whole = folder / "run.json"
    return whole if whole.exists() else min(folder.glob("parts/*/*/run.json"), default=whole)


def root_of(sweep: Path) -> Path:
    """The output root of a sweep's folder, `<root>/sweeps/<id>`, however the folder was named: `.`, or a link to it."""
    plain = sweep.parent.parent
    return plain if sweep == plain / "sweeps" / sweep.name and not sweep.is_symlink() else sweep.resolve().parent.parent


def load_sweep(folder: Path) -> Sweep:
    """A sweep folder; the runs that are not there yet are left out."""
    record = _read_record(folder / "sweep.json", "sweep")
    root = root_of(folder)
    cells = []
    for entry in record["cells"]:
        if _record_file(root / entry["run"]).exists():
            controls = tuple((c["control"], c["of"]) for c in entry["controls"])
            cells.append(SweepCell(load_run(root / entry["run"]), entry["asked"], controls))
    return Sweep(folder, record, tuple(cells))


def _read_record(path: Path, what: str) -> dict[str, Any]:
    if not path.exists():
        near = sorted(p.parent.name for p in path.parent.parent.glob(f"*/{path.name}"))[:5]
        hint = f" Near it: {', '.join(near)}" if near else ""
        raise StoreFault(f"{path.parent} is no {what} folder: it holds no {path.name}.{hint}")
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise StoreFault(
            f"{path} cannot be read ({error}); delete that folder and run the same command again"
        ) from error
    needed = {"run": ("label", "task", "metric"), "sweep": ("cells",)}[what]
    version = record.get("schema_version") if isinstance(record, dict) else None
    if not isinstance(version, int) or (version <= SCHEMA_VERSION and any(key not in record for key in needed)):
        raise StoreFault(
            f"{path} is no record of a {what}: it lacks schema_version, {', '.join(needed)} or all of them"
        )
    refuse_newer_schema(path, version)
    return record


def _newer(path: Path, version: int) -> str:
    return (
        f"{path} has schema version {version}; this debate-local reads up to {SCHEMA_VERSION}. "
        "Update debate-local (pip install -U debate-local), or read it with the version that wrote it"
    )


def write_json(path: Path, value: Any, indent: int | None = 2) -> None:
    """Write beside, then rename. NaN is refused: strict readers cannot read it."""
    on_its_way = beside(path)
    text = json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False)
    try:
        with on_its_way.open("w", encoding="utf-8") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        on_its_way.replace(path)
    except BaseException:
        on_its_way.unlink(missing_ok=True)
        raise


def rows_hash(items: list[Item]) -> str:
    """A hash of what the items hold, so that a changed file is another run."""
    return digest([[*_always(item), *_more(item)] for item in items])


def _always(item: Item) -> list[Any]:
    return [item.id, item.question, item.target, list(item.choices)]


def _more(item: Item) -> list[Any]:
    """The fields that most items leave as they are."""
    more = {f.name: getattr(item, f.name) for f in fields(item) if f.default is not MISSING and f.name != "choices"}
    told = {name: value for name, value in more.items() if value}
    if "evidence" in told:
        told["evidence"] = [asdict(one) for one in item.evidence]
    return [told] if told else []
