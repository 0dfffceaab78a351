"""Writes runs: from finished debates to rows, and from rows to tables. What the columns mean stands in `store.py`."""

import contextlib
import heapq
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from debate_local.core.chat import Completion
from debate_local.core.confidence import answer_logprob, stated
from debate_local.core.task import Grade
from debate_local.core.transcript import Item, Transcript, Turn

from .sharing import alone_in, beside, remove_left_overs
from .store import DEBATE_COLUMNS, SCHEMA_VERSION, TURN_COLUMNS, is_done, times_rewritten, write_json

# Made once: json.dumps would make an encoder for every turn.
_json = json.JSONEncoder(ensure_ascii=False).encode
# Rows held before they are written: fixed, so that files do not depend on timing; small, so that many cells fit.
ROW_GROUP = 512


@dataclass(frozen=True, slots=True)
class FinishedDebate:
    """One debate as it is stored. turn_scores, turn_traps: one a turn; trapped: the share of its answers.

    No traps at all are those of an item that has none.
    """

    item: Item
    transcript: Transcript | None
    grade: Grade | None
    turn_scores: tuple[float, ...] = ()
    error: str | None = None
    trapped: float | None = None
    turn_traps: tuple[bool | None, ...] = ()


class RunWriter:
    """Writes one run, or a part of it: `add` its debates in the order of the items, then `finish`.

    folder: the run's, or a part's (`store.part_folder`), whose debates `merge_parts` puts in their place. again: the
    run is done and is written anew, because failed requests were asked again; what it held is kept.
    """

    def __init__(self, folder: Path, record: Mapping[str, Any], again: bool = False) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._again = folder, again
        remove_left_overs(folder)
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

    def finish(self, whole: bool = True) -> None:
        """Put both tables in place, then the marker.

        A run with a `problem`, and one that is not `whole` (it was stopped), gets no marker: it is run again.
        """
        with alone_in(self._folder):
            if is_done(self._folder) and not self._again:
                # Another process was faster; a finished run is never written again.
                self.abandon()
                return
            if self._again:
                keep_earlier(self._folder)
            self._debates.finish()
            self._turns.finish()
            if whole and self.problem is None:
                (self._folder / "done").touch()

    def abandon(self) -> None:
        """Remove the half-written tables; the completions are in the cache."""
        self._debates.abandon()
        self._turns.abandon()


def merge_parts(folder: Path, parts: Sequence[Path], order: Sequence[str], again: bool = False) -> bool:
    """Make a run's tables from those of its finished parts, in the order of the item ids; then its marker.

    Byte for byte what one process writes. Whoever finishes the last part does it; when two do, the second finds it
    done. False when another was faster. again: as for RunWriter.
    """
    with alone_in(folder):
        # Parts name how often their run was rewritten: when it was rewritten since, they are done with.
        if not all(is_done(part) for part in parts) or (is_done(folder) and not again):
            return False
        remove_left_overs(folder)
        try:
            _merge(folder, parts, order, again)
        except OSError:
            # Where there are no locks another may have been faster, and the parts are gone.
            if is_done(folder) and not parts[0].exists():
                return False
            raise
        (folder / "done").touch()
        _remove(folder / "parts", parts[0].parent)
    return True


def _merge(folder: Path, parts: Sequence[Path], order: Sequence[str], again: bool) -> None:
    place = {item: position for position, item in enumerate(order)}
    tables = {"debates": DEBATE_COLUMNS, "turns": TURN_COLUMNS}
    writers = {name: _TableWriter(folder / f"{name}.parquet", columns) for name, columns in tables.items()}
    try:
        record = json.loads((parts[0] / "run.json").read_text(encoding="utf-8"))
        for name, writer in writers.items():
            rows = [_rows_of(part / f"{name}.parquet") for part in parts]
            for row in heapq.merge(*rows, key=lambda row: place[row["item_id"]]):
                writer.add([row])
        if again:
            keep_earlier(folder)
        write_json(folder / "run.json", record)
        for writer in writers.values():
            writer.finish()
    except BaseException:
        for writer in writers.values():
            writer.abandon()
        raise


def _remove(parts: Path, merged: Path) -> None:
    """Remove the parts that were merged, and those of times before the run was last rewritten."""
    generation = int(merged.name.rpartition("-")[2])
    for split in parts.iterdir():
        if split == merged or int(split.name.rpartition("-")[2]) < generation:
            shutil.rmtree(split, ignore_errors=True)
    with contextlib.suppress(OSError):
        # Empty, unless the run was split otherwise, too.
        parts.rmdir()


def _rows_of(path: Path) -> Iterator[dict[str, Any]]:
    import pyarrow.parquet as pq

    for batch in pq.ParquetFile(path.absolute()).iter_batches(batch_size=ROW_GROUP):
        yield from batch.to_pylist()


def keep_earlier(folder: Path) -> None:
    """Put a copy of a run's tables aside, in `earlier-1`, `earlier-2`, ..., then take off its marker.

    Runs are never overwritten. Killed at any moment, the run is done as before, or what it held is in the copy.
    """
    if not is_done(folder):
        return
    copy = folder / ".earlier"
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir()
    for name in ("run.json", "debates.parquet", "turns.parquet"):
        shutil.copy2(folder / name, copy / name)
    copy.rename(folder / f"earlier-{times_rewritten(folder) + 1}")
    (folder / "done").unlink()


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
        self._beside = beside(path)
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
            # Absolute: pyarrow takes a relative `s3:x` for a bucket.
            self._writer = pq.ParquetWriter(self._beside.absolute(), self._schema, compression="zstd")
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
    row |= {"group": item.group, "suspect": item.suspect or None}
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
        "trapped": finished.trapped,
        "no_answer": sum(answer.missing for answer in answers) / max(1, len(answers)),
        "rule": decision.rule,
        "counts": _json(dict(decision.counts)),
        "tied": list(decision.tied),
        "eligible": decision.eligible,
        "received": decision.received,
        "rounds": transcript.rounds,
        "stopped": transcript.stopped,
        "side": decision.side or None,
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
    traps = finished.turn_traps or (None,) * len(finished.turn_scores)
    for turn, score, trap in zip(finished.transcript.turns, finished.turn_scores, traps, strict=True):
        messages = tuple((m.role, m.content) for m in turn.request.messages)
        history = _shared_beginning(seen.get((turn.agent, turn.role), ()), messages)
        seen[turn.agent, turn.role] = (*messages, ("assistant", turn.completion.text))
        row = _turn_row(finished.item.id, turn, score, history, messages[history:])
        rows.append({**row, "trapped": trap})
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
        "side": turn.side or None,
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
        "json_rule": turn.json_rule or None,
        "confidence": stated(turn.confidence),
        "stances": None if turn.stances is None else _json([list(one) for one in turn.stances]),
        "answer_logprob": answer_logprob(done, answer),
        "finish_reason": done.finish_reason,
        "clipped": done.clipped,
        "error": done.error,
        "prompt_tokens": done.prompt_tokens,
        "generated_tokens": done.generated_tokens,
        "logprobs": None if done.logprobs is None else [value for _, value in done.logprobs],
        "neutralised": done.neutralised,
        "notes": list(done.notes),
        "stop_reason": done.stop_reason or None,
        "prompt_hash": done.prompt_hash or None,
        "temperature": sampling.temperature,
        "seed": sampling.seed,
    }
