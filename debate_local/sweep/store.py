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

from debate_local.core.chat import Completion, digest
from debate_local.core.task import Grade
from debate_local.core.transcript import Item, Transcript, Turn

if TYPE_CHECKING:
    import polars as pl

SCHEMA_VERSION = 1
# Made once: json.dumps would make an encoder for every turn.
_json = json.JSONEncoder(ensure_ascii=False).encode
# Rows held before they are written: fixed, so that files do not depend on timing; small, so that many cells fit.
ROW_GROUP = 512

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


@dataclass(frozen=True, slots=True)
class FinishedDebate:
    """One debate as it is stored. turn_scores: one a turn."""

    item: Item
    transcript: Transcript | None
    grade: Grade | None
    turn_scores: tuple[float, ...] = ()
    error: str | None = None


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


class RunWriter:
    """Writes one run: `add` its debates in the order of the items, then `finish`."""

    def __init__(self, folder: Path, record: Mapping[str, Any]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        for left in folder.glob(".*.parquet.*"):
            # Of an attempt that was killed.
            left.unlink(missing_ok=True)
        write_json(folder / "run.json", {"schema_version": SCHEMA_VERSION, **record})
        self._debates = _TableWriter(folder / "debates.parquet", DEBATE_COLUMNS)
        self._turns = _TableWriter(folder / "turns.parquet", TURN_COLUMNS)
        self.debates = self._asked = self._failed = 0
        self.errors: list[str] = []
        self._first_failure = ""

    def add(self, finished: FinishedDebate) -> None:
        """Append one debate and its turns. One whose rows cannot be made is stored as failed."""
        try:
            debate, turns = self._debates.fitting([_debate_row(finished)]), self._turns.fitting(_turn_rows(finished))
        except Exception as error:
            told = f"cannot be stored: {type(error).__name__}: {error}"
            finished = FinishedDebate(finished.item, None, None, error=told)
            debate, turns = [_debate_row(finished)], []
        self._debates.add(debate)
        self._turns.add(turns)
        self.debates += 1
        if finished.error:
            self.errors.append(f"item {finished.item.id}: {finished.error}")
        failures = [row["error"] for row in turns if row["finish_reason"] == "error"]
        self._asked, self._failed = self._asked + len(turns), self._failed + len(failures)
        self._first_failure = self._first_failure or next(iter(failures), "")

    @property
    def problem(self) -> str | None:
        """Why this run is not done: its own code failed somewhere, or no request of it was answered."""
        if self.errors:
            more = f" (and {len(self.errors) - 1} more)" if len(self.errors) > 1 else ""
            return f"{len(self.errors)} debates failed: {self.errors[0]}{more}"
        if self._asked and self._failed == self._asked:
            return f"the engine failed all {self._asked} requests: {self._first_failure}. Run it again to ask again"
        return None

    def finish(self) -> None:
        """Put both tables in place, then the marker. A run with a `problem` gets no marker: it is run again."""
        if is_done(self._folder):
            # Another process was faster; a finished run is never written again.
            self.abandon()
            return
        self._debates.finish()
        self._turns.finish()
        if self.problem is None:
            (self._folder / "done").touch()

    def abandon(self) -> None:
        """Remove the half-written tables; the completions are in the cache."""
        self._debates.abandon()
        self._turns.abandon()


class _TableWriter:
    """A parquet file in row groups of a fixed size; opened for the first, so that small runs hold no file open."""

    def __init__(self, path: Path, columns: Mapping[str, tuple[str, str]]) -> None:
        import pyarrow as pa

        types = {
            "string": pa.string(),
            "double": pa.float64(),
            "int32": pa.int32(),
            "int64": pa.int64(),
            "bool": pa.bool_(),
            "list<string>": pa.list_(pa.string()),
            "list<double>": pa.list_(pa.float64()),
        }
        python: dict[str, type | tuple[type, ...]] = {"string": str, "int32": int, "int64": int, "double": (int, float)}
        self._kinds = [(name, python[kind]) for name, (kind, _) in columns.items() if kind in python]
        self._path = path
        self._beside = path.with_name(f".{path.name}.{os.getpid()}")
        self._schema = pa.schema([(name, types[kind]) for name, (kind, _) in columns.items()])
        self._writer: Any = None
        self._rows: list[dict[str, Any]] = []

    def fitting(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The rows, when they fit the columns. Raises TypeError, or UnicodeEncodeError for what is no valid text."""
        for row in rows:
            for name, kind in self._kinds:
                value = row.get(name)
                if value is None:
                    continue
                if not isinstance(value, kind):
                    raise TypeError(f"{name} is {value!r}")
                if isinstance(value, str) and not value.isascii():
                    value.encode()
        return rows

    def add(self, rows: list[dict[str, Any]]) -> None:
        """Append rows; whole row groups are written."""
        self._rows += rows
        while len(self._rows) >= ROW_GROUP:
            self._write(self._rows[:ROW_GROUP])
            del self._rows[:ROW_GROUP]

    def _write(self, rows: list[dict[str, Any]]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        if self._writer is None:
            self._writer = pq.ParquetWriter(self._beside, self._schema, compression="zstd")
        self._writer.write_table(pa.Table.from_pylist(rows, schema=self._schema), row_group_size=ROW_GROUP)

    def finish(self) -> None:
        """Write the rest, close, and put the file in its place."""
        self._write(self._rows)
        self._rows = []
        self._writer.close()
        with self._beside.open("rb") as file:
            os.fsync(file.fileno())
        self._beside.replace(self._path)

    def abandon(self) -> None:
        """Leave nothing behind."""
        self._rows = []
        if self._writer is not None:
            self._writer.close()
        self._beside.unlink(missing_ok=True)


def _debate_row(finished: FinishedDebate) -> dict[str, Any]:
    item, transcript, grade = finished.item, finished.transcript, finished.grade
    row: dict[str, Any] = {"item_id": item.id, "question": item.question, "target": item.target}
    row["error"] = finished.error
    if transcript is None or grade is None:
        return row
    decision, turns = transcript.decision, transcript.turns
    # Rule `each`: one agent's answer at one agent's cost, averaged over the agents.
    share = len(decision.answers) if decision.rule == "each" else 1
    answers = decision.answers
    row |= {
        "answer": decision.answer.value,
        "answer_key": decision.answer.key,
        "score": grade.score,
        "no_answer": sum(answer.missing for answer in answers) / max(1, len(answers)),
        "rule": decision.rule,
        "counts": _json(dict(decision.counts)),
        "tied": list(decision.tied),
        "eligible": decision.eligible,
        "received": decision.received,
        "rounds": transcript.rounds,
        "stopped": transcript.stopped,
        "calls": len(turns) / share,
        "prompt_tokens": sum(turn.completion.prompt_tokens for turn in turns) / share,
        "generated_tokens": sum(turn.completion.generated_tokens for turn in turns) / share,
        "reasoning_tokens": sum(_reasoning_tokens(turn.completion) for turn in turns) / share,
        "cut_thoughts": sum(bool(turn.completion.reasoning) and not turn.completion.text.strip() for turn in turns),
        "truncated": sum(turn.completion.finish_reason == "length" for turn in turns),
        "too_long": sum(turn.completion.finish_reason == "too_long" for turn in turns),
        "failed": sum(turn.completion.failed for turn in turns),
        "empty": sum(turn.completion.error is None and not turn.completion.text.strip() for turn in turns),
    }
    return row


def _reasoning_tokens(done: Completion) -> float:
    """How many of a reply's tokens were reasoning, by the share of characters: engines count tokens only as a whole."""
    letters = len(done.reasoning) + len(done.text)
    return done.generated_tokens * len(done.reasoning) / letters if letters else 0.0


def _turn_rows(finished: FinishedDebate) -> list[dict[str, Any]]:
    if finished.transcript is None:
        return []
    seen: dict[tuple[int, str], tuple[tuple[str, str], ...]] = {}
    rows = []
    for turn, score in zip(finished.transcript.turns, finished.turn_scores, strict=True):
        messages = tuple((m.role, m.content) for m in turn.request.messages)
        history = _shared_beginning(seen.get((turn.agent, turn.role), ()), messages)
        seen[turn.agent, turn.role] = (*messages, ("assistant", turn.completion.text))
        rows.append(_turn_row(finished.item.id, turn, score, history, messages[history:]))
    return rows


def _shared_beginning(before: tuple[tuple[str, str], ...], now: tuple[tuple[str, str], ...]) -> int:
    """How many messages of `now` stood in the agent's conversation before: all of it, or nothing."""
    return len(before) if before and now[: len(before)] == before else 0


def _turn_row(item_id: str, turn: Turn, score: float, history: int, new: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    done, answer, sampling = turn.completion, turn.answer, turn.request.sampling
    start, end = answer.span or (None, None)
    return {
        "item_id": item_id,
        "round": turn.round,
        "agent": turn.agent,
        "step": turn.step,
        "role": turn.role,
        "model": turn.request.model,
        "heard": [f"{agent}.{round}" for agent, round in turn.heard],
        "history": history,
        "prompt": _json([{"role": r, "content": c} for r, c in new]),
        "text": done.text,
        "reasoning": done.reasoning or None,
        "raw": done.raw if done.raw != done.text else None,
        "answer": answer.value,
        "answer_key": answer.key,
        "answer_rule": answer.rule,
        "answer_start": start,
        "answer_end": end,
        "score": score,
        "finish_reason": done.finish_reason,
        "clipped": done.clipped,
        "error": done.error,
        "prompt_tokens": done.prompt_tokens,
        "generated_tokens": done.generated_tokens,
        "logprobs": None if done.logprobs is None else [value for _, value in done.logprobs],
        "neutralised": done.neutralised,
        "notes": list(done.notes),
        "temperature": sampling.temperature,
        "seed": sampling.seed,
    }


def rows_hash(items: list[Item]) -> str:
    """A hash of what the items hold, so that a changed file is another run."""
    return digest([[item.id, item.question, item.target, list(item.choices)] for item in items])
