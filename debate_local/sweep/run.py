"""The pipeline: plan, skip what is done, drive every debate through one scheduler an engine, store.

All cells of one engine share one load and one stream of batches; engines come one after another.
"""

import contextlib
import gc
import math
import time
import traceback
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from debate_local.core.chat import Completion, Engine, EngineFailed
from debate_local.core.scheduler import Asking, Batch, Outcome, drive
from debate_local.core.task import Grade
from debate_local.core.transcript import Item, Transcript
from debate_local.engines.cache import CachedEngine, CacheFull
from debate_local.engines.pool import Switch
from debate_local.engines.restart import RestartingEngine

from . import machine
from .checks import check_lengths
from .config import HowToRun
from .events import EventLog, Listener
from .plan import Plan, PlannedEngine, PlannedRun
from .store import SCHEMA_VERSION, Sweep, is_done, load_sweep, locked, refuse_newer, write_json
from .writer import FinishedDebate, RunWriter


@dataclass(frozen=True)
class Graded:
    """A debate that went to its end, its grade, and the score of each of its turns."""

    transcript: Transcript
    grade: Grade
    turn_scores: tuple[float, ...]


class RunFailed(RuntimeError):
    """The sweep went to its end, or as far as it could, and something is missing: the message says what."""


@dataclass(frozen=True)
class SweepResult:
    """What came of a sweep. problems: what is missing and why, empty when all is well. sent: requests to an engine."""

    sweep: Sweep
    problems: tuple[str, ...]
    sent: int


def run_plan(plan: Plan, how: HowToRun, command: Sequence[str] = (), listeners: Sequence[Listener] = ()) -> SweepResult:
    """Run what is not done yet and store it. A run that is done is left as it is.

    command: what a person typed, for the record. listeners: called with every event. A dead engine ends its own cells
    only. KeyboardInterrupt is let through once everything answered so far is stored.
    """
    todo = [run for run in plan.runs if not is_done(how.output / run.id)]
    for run in todo:
        refuse_newer(how.output / run.id)
    notes = plan.notes + check_lengths(todo)
    folder = _write_sweep(plan, how, command, notes)
    log = EventLog(folder / "logs", tuple(listeners))
    problems: list[str] = []
    sent = 0
    with locked(folder), _rare_collections(), contextlib.closing(log):
        log.emit("start", **_start_facts(plan, todo, folder, command))
        for note in notes:
            log.emit("warning", text=note)
        for group in dict.fromkeys(run.engine.group for run in todo):
            runs = [run for run in todo if run.engine.group == group]
            one = _Group(runs, how, log, owner=f"{folder.name}-{group[:8]}")
            try:
                one.run()
            except (CacheFull, OSError):
                # A disk that is full is full for the other engines too.
                raise
            except Exception as error:
                told = str(error) if isinstance(error, EngineFailed) else f"{type(error).__name__}: {error}"
                problems.append(f"engine {one.name}: {told}")
                log.emit("warning", text=problems[-1], trace=traceback.format_exc())
            finally:
                sent += one.sent
            problems += one.problems
        missing = [run.id for run in plan.runs if not is_done(how.output / run.id)]
        if missing and not problems:
            problems.append(f"not finished: {', '.join(missing)}")
        log.emit("end", problems=problems, sent=sent)
    return SweepResult(load_sweep(folder), tuple(problems), sent)


@contextlib.contextmanager
def _rare_collections() -> Iterator[None]:
    """Collect garbage rarely: live debates are many objects and no cycles (measured: 1.7 times the rate)."""
    before = gc.get_threshold()
    gc.set_threshold(50_000, 20, 20)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _start_facts(plan: Plan, todo: Sequence[PlannedRun], folder: Path, command: Sequence[str]) -> dict[str, Any]:
    return {
        "sweep": str(folder),
        "runs": len(plan.runs),
        "todo": len(todo),
        "debates": sum(len(run.task.items) for run in todo),
        "turns": sum(len(run.task.items) * run.calls for run in todo),
        "command": list(command),
        "versions": machine.versions(),
        "commit": machine.commit(),
        "hardware": machine.hardware(),
    }


def _write_sweep(plan: Plan, how: HowToRun, command: Sequence[str], notes: Sequence[str]) -> Path:
    folder = how.output / "sweeps" / plan.id
    folder.mkdir(parents=True, exist_ok=True)
    record = {
        "schema_version": SCHEMA_VERSION,
        "command": list(command),
        "notes": list(notes),
        "cells": [
            {
                "run": run.id,
                "label": run.label,
                "asked": run.asked,
                "controls": [{"control": name, "of": of} for name, of in run.controls],
            }
            for run in plan.runs
        ],
    }
    write_json(folder / "sweep.json", record)
    return folder


class _Group:
    """The runs of one engine: one load, one scheduler, one cache."""

    def __init__(self, runs: Sequence[PlannedRun], how: HowToRun, log: EventLog, owner: str) -> None:
        self._runs, self._how, self._log = runs, how, log
        self._planned: PlannedEngine = runs[0].engine
        self._owner = owner
        self._current: Engine | None = None
        self._writers: dict[str, RunWriter] = {}
        self.problems: list[str] = []
        self.sent = 0

    @property
    def name(self) -> str:
        """The engine's name in the config."""
        return self._planned.choice.name

    def run(self) -> None:
        """Drive all debates of the group and store each run as soon as its last debate has ended."""
        restarting = RestartingEngine(self._make_engine, self._how.max_restarts, self._on_restart)
        engine = CachedEngine(
            restarting,
            None if self._how.cache == "off" else self._how.output / "cache",
            mode=self._how.cache,
            owner=self._owner,
            facts={**machine.versions(), "hardware": machine.hardware(), "speed": self._facts().get("speed", {})},
            on_warning=lambda text: self._log.emit("warning", text=text),
        )
        progress = _Progress(self._log, engine)
        waiting: deque[tuple[PlannedRun, Item]] = deque()
        with contextlib.ExitStack() as at_the_end:
            # Last in, first out. Closing seals the cache's part: what came back is there for the next start.
            at_the_end.callback(self._abandon)
            at_the_end.callback(engine.close)
            at_the_end.callback(self._tell_the_end, engine, progress)
            outcomes = drive(
                self._debates(waiting),
                _Watched(engine, progress),
                schedule=self._how.schedule,
                max_live=self._how.max_live,
                on_batch=progress.batch,
            )
            at_the_end.callback(outcomes.close)
            for outcome in outcomes:
                run, item = waiting.popleft()
                self._store(run, item, outcome)
                progress.debate_ended()

    def _tell_the_end(self, engine: CachedEngine, progress: "_Progress") -> None:
        self.sent = engine.sent
        progress.emit()
        self._log.emit("engine", name=self.name, facts=self._facts(), **progress.summary())
        for use in engine.mixed_facts():
            self._log.emit("mixed", engine=self.name, completions=use.completions, facts=use.facts)

    def _abandon(self) -> None:
        for writer in self._writers.values():
            writer.abandon()

    def _make_engine(self) -> Engine:
        """The planned engine first (it may hold a tokenizer already), then a fresh one after each death."""
        self._current = self._planned.engine if self._current is None else self._planned.make()
        # An engine with a noisy back end writes what it says to a file, and tells when it begins to load; a pool tells
        # which of its engines it opens.
        told = {"log_path": self._log.beside("engine"), "on_open": self._on_open, "on_switch": self._on_switch}
        for name, value in told.items():
            if hasattr(self._current, name):
                setattr(self._current, name, value)
        return self._current

    def _facts(self) -> dict[str, Any]:
        """What the engine tells of itself once it is open: versions, settings and why."""
        return dict(getattr(self._current, "facts", {}))

    def _on_open(self) -> None:
        self._log.emit("loading", engine=self.name)

    def _on_switch(self, switch: Switch) -> None:
        if switch.closed:
            self._log.emit("switch", engine=self.name, **asdict(switch))
        else:
            self._log.emit("loading", engine=self.name, models=switch.opened)

    def _on_restart(self, reason: str) -> None:
        self._log.emit("restart", engine=self.name, reason=reason)

    def _debates(self, waiting: deque[tuple[PlannedRun, Item]]) -> Iterator[Asking[Graded]]:
        """Item by item over all runs: what an item's debates share stands close together."""
        longest = max(len(run.task.items) for run in self._runs)
        for position in range(longest):
            for run in self._runs:
                if position < len(run.task.items):
                    item = run.task.items[position]
                    waiting.append((run, item))
                    yield _graded(run, item)

    def _store(self, run: PlannedRun, item: Item, outcome: Outcome[Graded]) -> None:
        if run.id not in self._writers:
            record = {**run.record(), "versions": machine.versions(), "commit": machine.commit()}
            record["hardware"] = machine.hardware()
            self._writers[run.id] = RunWriter(self._how.output / run.id, record)
        writer = self._writers[run.id]
        writer.add(_finished(item, outcome))
        if writer.debates == len(run.task.items):
            del self._writers[run.id]
            writer.finish()
            self._log.emit("run_end", run=run.id, debates=writer.debates, errors=len(writer.errors))
            if writer.problem:
                self.problems.append(f"run {run.id}: {writer.problem}")


def _graded(run: PlannedRun, item: Item) -> Asking[Graded]:
    """A debate and then its grading, which may ask a model too. What fails here ends this debate only."""
    task = run.task.task
    transcript = yield from run.debate(item)
    grade = yield from task.grade(transcript, item)
    scores = tuple(0.0 if turn.answer.missing else task.score(turn.answer, item) for turn in transcript.turns)
    if wrong := [score for score in (grade.score, *scores) if not math.isfinite(score)]:
        raise ValueError(f"task {task.name!r} gave the score {wrong[0]!r}; a score is a finite number")
    return Graded(transcript, grade, scores)


def _finished(item: Item, outcome: Outcome[Graded]) -> FinishedDebate:
    if outcome.result is None:
        return FinishedDebate(item, None, None, error=f"{type(outcome.error).__name__}: {outcome.error}")
    return FinishedDebate(item, outcome.result.transcript, outcome.result.grade, outcome.result.turn_scores)


class _Watched:
    """The cached engine, with every completion counted for the progress events."""

    def __init__(self, engine: CachedEngine, progress: "_Progress") -> None:
        self._engine, self._progress = engine, progress
        self.identity, self.limits = engine.identity, engine.limits
        self.submit, self.cancel = engine.submit, engine.cancel
        self.close, self.count_tokens = engine.close, engine.count_tokens

    def poll(self, timeout: float) -> list[tuple[str, Completion]]:
        """What has finished, counted."""
        finished: list[tuple[str, Completion]] = self._engine.poll(timeout)
        self._progress.completions(finished)
        return finished


class _Progress:
    """Counts turns and tokens and emits a progress event at most twice a second."""

    def __init__(self, log: EventLog, engine: CachedEngine) -> None:
        self._log, self._engine = log, engine
        self._started = time.monotonic()
        self._last = 0.0
        self._turns = self._debates = self._failed = 0
        self._generated = self._prompted = 0

    def batch(self, batch: Batch) -> None:
        self._log.emit("batch", requests=batch.requests, live=batch.live)

    def completions(self, finished: Sequence[tuple[str, Completion]]) -> None:
        self._turns += len(finished)
        self._failed += sum(completion.failed for _, completion in finished)
        if time.monotonic() - self._last > 0.5:
            self.emit()

    def debate_ended(self) -> None:
        self._debates += 1

    def emit(self) -> None:
        self._last = time.monotonic()
        self._log.emit("progress", **self.summary())

    def summary(self) -> dict[str, Any]:
        """Totals so far. turns holds shared and cached ones; sent and generated_tokens only what an engine did now."""
        return {
            "turns": self._turns,
            "debates": self._debates,
            "failed": self._failed,
            "sent": self._engine.sent,
            "hits": self._engine.hits,
            "shared": self._engine.shared,
            "generated_tokens": self._engine.generated_tokens,
            "seconds": round(time.monotonic() - self._started, 3),
        }
