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
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from debate_local.core.chat import digest
from debate_local.core.transcript import Item

if TYPE_CHECKING:
    import polars as pl

SCHEMA_VERSION = 1

# name -> (type, meaning). Costs are what the debate would cost alone: shared and cached completions in full.
DEBATE_COLUMNS: dict[str, tuple[str, str]] = {
    "item_id": ("string", "the item"),
    "question": ("string", "its text, without the request for a format"),
    "target": ("string", "the gold answer"),
    "answer": ("string", "the decided answer; null: none, or several that are scored each"),
    "answer_key": ("string", "equal keys are the same vote"),
    "score": ("double", "the item's share in the metric; with rule `each` the mean over the agents"),
    "no_answer": ("double", "1 when there is no answer; with rule `each` the share of agents without one"),
    "rule": ("string", "the decision rule"),
    "counts": ("string", "JSON: votes by key, most first"),
    "tied": ("list<string>", "the keys that shared the top count; empty without a tie"),
    "eligible": ("int32", "who could vote"),
    "received": ("int32", "who gave an answer"),
    "rounds": ("int32", "rounds spoken"),
    "stopped": ("string", "why it ended"),
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
    "finish_reason": ("string", "stop, length, too_long, error"),
    "clipped": ("bool", "cut by the context, not by max_tokens"),
    "error": ("string", "why the request failed"),
    "prompt_tokens": ("int32", ""),
    "generated_tokens": ("int32", ""),
    "logprobs": ("list<double>", "natural log-probability of each generated token; null when not asked for"),
    "neutralised": ("int32", "message contents that held template tokens"),
    "notes": ("list<string>", "what the engine had to do to the conversation"),
    "temperature": ("double", "null: the model's own default"),
    "seed": ("int64", "null when greedy"),
}


class StoreFault(ValueError):
    """A run folder that cannot be read: missing, unfinished, or of another schema."""


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
        """True when both tables are there, finished or with failed debates in them."""
        return all(_has_content(self.folder / name) for name in _FILES)

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

    def _table(self, name: str) -> "pl.DataFrame":
        import polars as pl

        path = self.folder / f"{name}.parquet"
        if not _has_content(path):
            raise StoreFault(f"{self.folder} has no {path.name}, or an empty one: run the command that made it again")
        try:
            return pl.read_parquet(path)
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
    """True when the run's marker is there, and all that was written before it still is."""
    return (folder / "done").exists() and all(_has_content(folder / name) for name in _FILES)


_FILES = ("run.json", "debates.parquet", "turns.parquet")


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
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise StoreFault(_newer(path, version))


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a sweep's folder for this process. Raises StoreFault while another holds it.

    Advisory, by flock: gone with the process, and not relied on where a file system has none (then runs are safe all
    the same, because a finished run is not written again).
    """
    with (folder / ".lock").open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise StoreFault(
                f"this sweep is being run already, by {file.read().strip() or 'another process'}: {folder}. Wait for "
                "it, or stop it; what it has answered is kept"
            ) from None
        except OSError:
            pass
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        yield


def load(path: str | os.PathLike[str]) -> Run | Sweep:
    """A run folder or a sweep folder. Raises StoreFault with what is wrong and what to do."""
    folder = Path(path)
    if (folder / "sweep.json").exists():
        return load_sweep(folder)
    return load_run(folder)


def load_run(folder: Path) -> Run:
    """A run folder. Raises StoreFault when there is none, or one of a newer schema."""
    record = _read_record(folder / "run.json", "run")
    return Run(folder, record)


def load_sweep(folder: Path) -> Sweep:
    """A sweep folder; the runs that are not there yet are left out."""
    record = _read_record(folder / "sweep.json", "sweep")
    root = folder.parent.parent
    cells = []
    for entry in record["cells"]:
        if (root / entry["run"] / "run.json").exists():
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
    if version > SCHEMA_VERSION:
        raise StoreFault(_newer(path, version))
    return record


def _newer(path: Path, version: int) -> str:
    return (
        f"{path} has schema version {version}; this debate-local reads up to {SCHEMA_VERSION}. "
        "Update debate-local (pip install -U debate-local), or read it with the version that wrote it"
    )


def write_json(path: Path, value: Any) -> None:
    """Write beside, then rename. NaN is refused: strict readers cannot read it."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    with beside.open("w", encoding="utf-8") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def rows_hash(items: list[Item]) -> str:
    """A hash of what the items hold, so that a changed file is another run."""
    return digest([[item.id, item.question, item.target, list(item.choices)] for item in items])
