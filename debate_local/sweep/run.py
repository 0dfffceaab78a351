"""The pipeline: freeze the plan, skip what is done, run the rest engine after engine, put parts together."""

import contextlib
import gc
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from debate_local.core.chat import EngineFailed
from debate_local.engines.cache import CacheFull

from . import machine
from .checks import check_lengths
from .config import HowToRun
from .events import EventLog, Listener
from .frozen import FrozenPlan, freeze, with_bought
from .group import Group
from .plan import Plan, PlannedRun
from .purchases import purchases, stored_bills, with_purchases
from .shards import Shard
from .stopping import Budget
from .store import Sweep, load_sweep, locked, refuse_newer
from .work import Portion, Work

NOTHING_SCORED = "nothing was scored: the stop came before the first debate had ended"


class RunFailed(RuntimeError):
    """The sweep went to its end, or as far as it could, and something is missing: the message says what."""


@dataclass(frozen=True)
class SweepResult:
    """What came of a sweep. problems: what is missing and why, empty when all is well. sent: requests to an engine.

    stopped: why it ended before its last item, "" when it did not.
    """

    sweep: Sweep
    problems: tuple[str, ...]
    sent: int
    stopped: str = ""


def run_plan(
    plan: Plan,
    how: HowToRun,
    command: Sequence[str] = (),
    listeners: Sequence[Listener] = (),
    *,
    frozen: FrozenPlan | None = None,
    shards: Sequence[Shard] = (),
    retry_failed: bool = False,
) -> SweepResult:
    """Run what is not done yet and store it. A run that is done is left as it is.

    command: what a person typed, for the record. listeners: called with every event. frozen: the plan as it was frozen
    before; without one it is frozen here. shards: run on their items only. retry_failed: also run anew what holds
    failed requests, which are asked again. A dead engine ends its own cells only. KeyboardInterrupt is let through once
    everything answered so far is stored.
    """
    frozen = frozen or freeze(plan, how, command)
    work = Work(how.output, frozen.split(shards[0].count) if shards else (), shards, retry_failed)
    with contextlib.ExitStack() as locks:
        for name in work.locks:
            locks.enter_context(locked(frozen.folder, name))
        work.reopen(plan.runs)
        log = EventLog(frozen.folder / "logs", tuple(listeners), work.name)
        with _rare_collections(), contextlib.closing(log):
            try:
                return _Pipeline(plan, how, frozen, work, log, buys_first=not retry_failed).run(command)
            except BaseException as error:
                tell_failure(log, error)
                raise


def tell_failure(log: EventLog, error: BaseException) -> None:
    """Leave in the log why a process ends before its work does: its trace, or that somebody stopped it."""
    with contextlib.suppress(OSError):
        if isinstance(error, KeyboardInterrupt):
            log.emit("end", problems=[], sent=0, stopped=f"interrupted{f': {error}' if str(error) else ''}")
        else:
            told = f"{type(error).__name__}: {error}"
            log.emit("end", problems=[told], sent=0, stopped="", trace=traceback.format_exc())


class _Pipeline:
    """One start of a sweep, or of some of its shards: engine after engine.

    buys_first: what finished debates' bills pay for is known before anything runs; not so where they are run anew.
    """

    def __init__(
        self, plan: Plan, how: HowToRun, frozen: FrozenPlan, work: Work, log: EventLog, buys_first: bool
    ) -> None:
        self._plan, self._how, self._frozen, self._work, self._log = plan, how, frozen, work, log
        self._problems: list[str] = []
        self._stopped: list[str] = []
        self._sent = self._turns = 0
        if buys_first:
            self._buy()

    def run(self, command: Sequence[str]) -> SweepResult:
        """Run what is to be done, and say what came of it."""
        todo = self._todo(self._plan.runs)
        self._log.emit("start", **self._start_facts(todo, command))
        for note in self._plan.notes + check_lengths([portion.run for portion in todo]):
            self._log.emit("warning", text=note)
        budget = Budget(self._how.stop, sum(portion.turns for portion in todo), self._work.share)
        for group in dict.fromkeys(portion.run.engine.group for portion in todo):
            self._run_group([portion for portion in todo if portion.run.engine.group == group], budget)
        for run in self._plan.runs:
            # Those whose last part was stored before somebody could put them together.
            self._work.put_together(run)
        missing = self._work.missing(self._plan.runs)
        # What a worker on a shard has made known is for all to run: its own share of it comes with its next start.
        self._buy()
        if missing and not self._problems and not self._stopped:
            self._problems.append(f"not finished: {', '.join(missing)}")
        stored = load_sweep(self._frozen.folder)
        if self._stopped and not self._work.numbers and not any(run.has_tables for run in stored.runs):
            self._problems.append(NOTHING_SCORED)
        self._log.emit("end", problems=self._problems, sent=self._sent, stopped="; ".join(self._stopped))
        return SweepResult(stored, tuple(self._problems), self._sent, "; ".join(self._stopped))

    def _todo(self, runs: Sequence[PlannedRun]) -> list[Portion]:
        """What is ours of these runs and not done. Raises StoreFault for a run that a later version wrote."""
        todo = self._work.todo(runs)
        for portion in todo:
            refuse_newer(self._how.output / portion.run.id)
        return todo

    def _buy(self) -> None:
        """Take into the plan what the bills of stored debates pay for."""
        bought = purchases(self._plan, stored_bills(self._how.output))
        self._plan = with_purchases(self._plan, bought)
        if [asdict(one) for one in bought] != self._frozen.record.get("bought"):
            self._frozen = with_bought(self._frozen, self._plan, bought)

    def _second_phase(self, group: str) -> list[Portion]:
        """What a group has to do once its debates have ended: the votes that their bills pay for."""
        known = {run.id for run in self._plan.runs}
        self._buy()
        todo = self._todo([run for run in self._plan.runs if run.id not in known and run.engine.group == group])
        if todo:
            debates, turns = sum(len(portion.items) for portion in todo), sum(portion.turns for portion in todo)
            self._turns += turns
            self._log.emit("more", runs=len({portion.run.id for portion in todo}), debates=debates, turns=turns)
        return todo

    def _run_group(self, portions: Sequence[Portion], budget: Budget) -> None:
        turns = sum(portion.turns for portion in portions)
        allowance, before = budget.share(turns), self._turns
        self._turns += turns
        group = portions[0].run.engine.group
        owner = f"{self._frozen.id}-{group[:8]}{self._work.name}"
        one = Group(
            portions, self._how, self._log, owner, self._work, allowance, before, lambda: self._second_phase(group)
        )
        try:
            one.run()
        except (CacheFull, OSError):
            # A disk that is full is full for the other engines too.
            raise
        except Exception as error:
            told = str(error) if isinstance(error, EngineFailed) else f"{type(error).__name__}: {error}"
            self._problems.append(f"engine {one.name}: {told}")
            self._log.emit("warning", text=self._problems[-1], trace=traceback.format_exc())
        finally:
            self._sent += one.sent
            budget.used(one.generated)
        self._problems += one.problems
        self._stopped += [one.stopped] if one.stopped else []

    def _start_facts(self, todo: Sequence[Portion], command: Sequence[str]) -> dict[str, Any]:
        return {
            "sweep": str(self._frozen.folder),
            "log": self._log.path,
            "shards": self._work.numbers,
            "runs": len(self._plan.runs),
            "todo": len({portion.run.id for portion in todo}),
            "debates": sum(len(portion.items) for portion in todo),
            "turns": sum(portion.turns for portion in todo),
            "command": list(command),
            "versions": machine.versions(),
            "commit": machine.commit(),
            "hardware": machine.hardware(),
        }


@contextlib.contextmanager
def _rare_collections() -> Iterator[None]:
    """Collect garbage rarely: live debates are many objects and no cycles (measured: 1.7 times the rate)."""
    before = gc.get_threshold()
    gc.set_threshold(50_000, 20, 20)
    try:
        yield
    finally:
        gc.set_threshold(*before)
