"""All cells of one engine: one load, one scheduler, one cache; every debate is stored as soon as it may be.

Engines come one after another; see `run.py`.
"""

import contextlib
import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from debate_local.core.chat import Completion, Engine
from debate_local.core.scheduler import Asking, Batch, Outcome, drive
from debate_local.core.task import Grade, trapped
from debate_local.core.transcript import Item, Transcript
from debate_local.engines.around import Around
from debate_local.engines.cache import CachedEngine
from debate_local.engines.pool import Switch
from debate_local.engines.restart import RestartingEngine

from . import machine
from .config import HowToRun
from .events import EventLog
from .plan import PlannedEngine, PlannedRun
from .stopping import LIVE_BEFORE_A_STOP, Allowance, Stop
from .thinking import ThinkingWatch
from .work import Portion, Work
from .writer import FinishedDebate, RunWriter


@dataclass(frozen=True)
class Graded:
    """A debate that went to its end, its grade, and the score of each of its turns.

    trapped, turn_traps: the share of its answers, and each turn, that are the item's trap; None where it has none.
    """

    transcript: Transcript
    grade: Grade
    turn_scores: tuple[float, ...]
    trapped: float | None
    turn_traps: tuple[bool | None, ...]


class Group:
    """What one engine does: one load, one scheduler, one cache."""

    def __init__(
        self,
        portions: Sequence[Portion],
        how: HowToRun,
        log: EventLog,
        owner: str,
        work: Work,
        allowance: Allowance,
        turns_before: int,
        second_phase: Callable[[], Sequence[Portion]],
    ) -> None:
        """second_phase: called when all that was known has been done, for what can be known only then."""
        self._portions, self._how, self._log, self._second_phase = portions, how, log, second_phase
        self._planned: PlannedEngine = portions[0].run.engine
        self._owner, self._work, self._allowance, self._turns_before = owner, work, allowance, turns_before
        self._generated: Callable[[], int] = lambda: 0
        self._current: Engine | None = None
        self._writers: dict[Portion, RunWriter] = {}
        self._places: dict[int, tuple[Portion, Item]] = {}
        self._thinking = ThinkingWatch()
        self.problems: list[str] = []
        self.sent = self.generated = 0
        self.stopped = ""

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
            facts={**machine.versions(), "hardware": _machine(), "speed": self._facts().get("speed", {})},
            on_warning=lambda text: self._log.emit("warning", text=text),
        )
        progress = _Progress(self._log, engine, self._turns_before)
        self._generated = lambda: engine.generated_tokens
        with contextlib.ExitStack() as at_the_end:
            # Last in, first out. Closing seals the cache's part: what came back is there for the next start.
            at_the_end.callback(self._abandon)
            at_the_end.callback(engine.close)
            at_the_end.callback(self._tell_the_end, engine, progress)
            portions = self._portions
            while portions:
                self._drive(portions, engine, progress)
                portions = [] if self.stopped else self._second_phase()
            self._leave_stopped()
            if 0 < engine.sent == engine.failed and not self.problems:
                # Whatever was answered before: an old success says nothing of this start.
                self.problems.append(
                    f"engine {self.name}: all {engine.sent} requests that were sent in this start failed: "
                    f"{engine.first_failure}. They are stored as failed; `resume --retry-failed` asks them again"
                )

    def _drive(self, portions: Sequence[Portion], engine: CachedEngine, progress: "_Progress") -> None:
        outcomes = drive(
            self._debates(portions),
            _Watched(engine, progress, self._read_ahead),
            schedule=self._how.schedule,
            max_live=self._max_live(),
            on_batch=progress.batch,
        )
        with contextlib.closing(outcomes):
            for outcome in outcomes:
                portion, item = self._places.pop(outcome.index)
                self._store(portion, item, outcome)
                progress.debate_ended()

    def _max_live(self) -> int:
        """Fewer when the sweep is to stop: what has begun is finished, and must not take half the next day."""
        most = self._how.max_live
        return min(most, LIVE_BEFORE_A_STOP) if self._how.stop != Stop() else most

    def _leave_stopped(self) -> None:
        """What a stop left of runs is stored as far as it is, without their marker."""
        for writer in self._writers.values():
            writer.finish(whole=False)
        self._writers.clear()
        if self.stopped:
            self._log.emit("stopped", engine=self.name, reason=self.stopped)

    def _tell_the_end(self, engine: CachedEngine, progress: "_Progress") -> None:
        self.sent, self.generated = engine.sent, engine.generated_tokens
        progress.emit()
        for told in self._thinking.warnings():
            self._log.emit("warning", text=f"engine {self.name}: {told}")
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
        if switch.plain:
            self._log.emit("loading", engine=self.name, models=switch.opened)
        else:
            self._log.emit("switch", engine=self.name, **asdict(switch))

    def _on_restart(self, reason: str) -> None:
        self._log.emit("restart", engine=self.name, reason=reason)

    def _debates(self, portions: Sequence[Portion]) -> Iterator[Asking[Graded]]:
        """Item by item over all runs: what an item's debates share stands close together.

        A stop is heard between items only, so that a stopped sweep holds the same items for all of its cells.
        """
        longest = max(len(portion.items) for portion in portions)
        numbers = itertools.count()
        for position in range(longest):
            if reason := self._allowance.spent(self._generated()):
                self.stopped = f"{reason}: the first {position} of {longest} items were debated"
                return
            for portion in portions:
                if position < len(portion.items):
                    item = portion.items[position]
                    self._places[next(numbers)] = (portion, item)
                    yield _graded(portion.run, item)

    def _read_ahead(self, id: str, completion: Completion) -> None:
        """Let a task that reads slowly begin, while the engine is still at others: ids begin with a debate's number."""
        portion, item = self._places[int(id.partition("/")[0])]
        prefetch = getattr(portion.run.task.task, "prefetch", None)
        if prefetch is not None and completion.text:
            prefetch(completion.text, item)

    def _store(self, portion: Portion, item: Item, outcome: Outcome[Graded]) -> None:
        if portion not in self._writers:
            self._writers[portion] = portion.writer()
        writer, run = self._writers[portion], portion.run
        writer.add(_finished(item, outcome))
        if outcome.result is not None:
            self._thinking.see(outcome.result.transcript.turns)
        if writer.debates == len(portion.items):
            del self._writers[portion]
            writer.finish()
            self._log.emit("run_end", run=run.id, debates=writer.debates, errors=len(writer.errors))
            if writer.problem:
                self.problems.append(f"run {run.id}: {writer.problem}")
            else:
                self._work.put_together(run)


def _machine() -> dict[str, Any]:
    """The hardware that completions are made on; how many of its cores a worker was given makes no mix of them."""
    return {name: value for name, value in machine.hardware().items() if name != "cores"}


def _graded(run: PlannedRun, item: Item) -> Asking[Graded]:
    """A debate and then its grading, which may ask a model too. What fails here ends this debate only."""
    task = run.task.task
    transcript = yield from run.debate(item)
    grade = yield from task.grade(transcript, item)
    scores = tuple(0.0 if turn.answer.missing else task.score(turn.answer, item) for turn in transcript.turns)
    if wrong := [score for score in (grade.score, *scores) if not math.isfinite(score)]:
        raise ValueError(f"task {task.name!r} gave the score {wrong[0]!r}; a score is a finite number")
    traps = tuple(trapped(task, turn.answer, item) for turn in transcript.turns)
    decided = [found for answer in transcript.decision.answers if (found := trapped(task, answer, item)) is not None]
    return Graded(transcript, grade, scores, sum(decided) / len(decided) if decided else None, traps)


def _finished(item: Item, outcome: Outcome[Graded]) -> FinishedDebate:
    if outcome.result is None:
        return FinishedDebate(item, None, None, error=f"{type(outcome.error).__name__}: {outcome.error}")
    done = outcome.result
    return FinishedDebate(
        item, done.transcript, done.grade, done.turn_scores, trapped=done.trapped, turn_traps=done.turn_traps
    )


class _Watched(Around):
    """The cached engine, with every completion counted for the progress events and told as it arrives."""

    def __init__(
        self, engine: CachedEngine, progress: "_Progress", on_finished: Callable[[str, Completion], None]
    ) -> None:
        super().__init__(engine)
        self._progress, self._on_finished = progress, on_finished
        self.submit, self.cancel, self.close = engine.submit, engine.cancel, engine.close

    def poll(self, timeout: float) -> list[tuple[str, Completion]]:
        """What has finished, counted."""
        finished: list[tuple[str, Completion]] = self._engine.poll(timeout)
        self._progress.completions(finished)
        for id, completion in finished:
            self._on_finished(id, completion)
        return finished


class _Progress:
    """Counts turns and tokens and emits a progress event at most twice a second."""

    def __init__(self, log: EventLog, engine: CachedEngine, turns_before: int) -> None:
        self._log, self._engine, self._turns_before = log, engine, turns_before
        self._started = time.monotonic()
        self._last = 0.0
        self._turns = self._debates = self._failed = 0

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
        """Totals of this engine so far.

        turns holds shared and cached ones, turns_before those of engines before it; sent, sent_failed and
        generated_tokens only what an engine did now.
        """
        return {
            "turns": self._turns,
            "turns_before": self._turns_before,
            "debates": self._debates,
            "failed": self._failed,
            "sent": self._engine.sent,
            "sent_failed": self._engine.failed,
            "hits": self._engine.hits,
            "shared": self._engine.shared,
            "generated_tokens": self._engine.generated_tokens,
            "seconds": round(time.monotonic() - self._started, 3),
        }
