"""Starting the shards of a sweep: on this machine with one joint view, or in a Slurm queue; and what is said of it."""

import sys
import time
from collections.abc import Sequence

from rich.console import Console
from rich.live import Live

from debate_local.commands.progress import clock
from debate_local.commands.show import print_sweep
from debate_local.commands.status import drawn
from debate_local.commands.terminal import to_type
from debate_local.launchers.local import LocalSettings, Workers, places
from debate_local.launchers.slurm import SlurmSettings, submit
from debate_local.sweep.frozen import FrozenPlan, read_frozen
from debate_local.sweep.plan import Plan
from debate_local.sweep.run import NOTHING_SCORED, RunFailed
from debate_local.sweep.shards import Shard
from debate_local.sweep.status import status
from debate_local.sweep.store import load_sweep

_LOOK_SECONDS = 2.0
_LINE_SECONDS = 30.0


def launch_local(
    frozen: FrozenPlan, plan: Plan, shards: Sequence[Shard], settings: LocalSettings, retry_failed: bool = False
) -> None:
    """Run shards with workers of this machine, then print the table of results. Raises RunFailed."""
    at = places(plan, settings)
    with _JointView(frozen) as view:
        workers = Workers(frozen, at, settings.max_restarts, retry_failed, view.look, view.say)
        view.say(f"{len(shards)} shards, {min(len(at), len(shards))} at once; their logs: {frozen.folder / 'logs'}")
        problems = workers.run(shards)
        if not problems and (again := _of_second_phase(frozen)):
            view.say(f"the debates' tokens are known: {len(again)} shards go on with the votes that they pay for")
            problems = workers.run(again)
    frozen = read_frozen(frozen.folder)
    print_sweep(load_sweep(frozen.folder))
    there = status(frozen)
    stopped = [shard for shard in there.shards if shard.state == "stopped"]
    if stopped and not any(run.has_tables for run in load_sweep(frozen.folder).runs):
        problems.append(NOTHING_SCORED)
    if not problems and not stopped and (missing := [cell.run for cell in there.cells if not cell.done]):
        problems = [f"not finished: {', '.join(missing)}"]
    if problems:
        raise RunFailed("\n".join([*problems, f"to go on: {to_type('resume', frozen.folder)}"]))


def launch_slurm(
    frozen: FrozenPlan, shards: Sequence[Shard], settings: SlurmSettings, retry_failed: bool = False
) -> None:
    """Submit shards to Slurm and say how to go on; returns at once. Raises SlurmFault."""
    submitted = submit(frozen, shards, settings, retry_failed)
    jobs, second = submitted.job, ""
    if frozen.buys and not status(frozen).first_phase_done:
        # Any shard may have a share in it, and its tokens are known only when all have ended.
        second = submit(frozen, frozen.split(shards[0].count), settings, after=submitted.job).job
        jobs += f" {second}"
    together = max(len(task) for task in submitted.tasks)
    several = f", up to {together} to a task" if together > 1 else ""
    for line in (
        f"submitted: job {submitted.job}, {len(shards)} shards in {len(submitted.tasks)} tasks{several}",
        *([f"after it:  job {second}, the votes that the debates' tokens pay for"] if second else []),
        f"sweep:     {frozen.folder}",
        f"watch:     {to_type('status', frozen.folder, '--watch')}",
        f"cancel:    scancel {jobs}",
        f"resume:    {to_type('resume', frozen.folder, '--on', 'slurm')}",
        f"results:   {to_type('show', frozen.folder)}",
    ):
        print(line)


def _of_second_phase(frozen: FrozenPlan) -> list[Shard]:
    """The shards that have a share in the second phase, once nothing but that is left."""
    there = status(latest := read_frozen(frozen.folder))
    left = {number for cell in there.cells for number, state in cell.shards.items() if state != "done"}
    return [shard for shard in latest.shards if shard.number in left] if there.first_phase_done else []


class _JointView:
    """All workers as one table on a terminal; elsewhere a line twice a minute."""

    def __init__(self, frozen: FrozenPlan) -> None:
        self._frozen = frozen
        self._console = Console(file=sys.stderr)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._looked = self._printed = 0.0

    def __enter__(self) -> "_JointView":
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.stop()

    def say(self, text: str) -> None:
        self._console.print(text, soft_wrap=True, markup=False, highlight=False)

    def look(self) -> None:
        """Show how far all of it is, every two seconds."""
        if (now := time.monotonic()) - self._looked < _LOOK_SECONDS:
            return
        self._looked = now
        if self._console.is_terminal:
            self._live.update(drawn(self._frozen, status(self._frozen)), refresh=True)
        elif now - self._printed >= _LINE_SECONDS:
            self._printed = now
            there = status(self._frozen)
            pace = f"{there.tokens_per_second:.0f} tokens/s, left {clock(there.seconds_left)}"
            self.say(f"{there.turns_done} of {there.turns} turns, {pace}")
