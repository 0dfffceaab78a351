"""`debate-local resume SWEEP`: run what is missing of a sweep, from its frozen plan."""

from argparse import ArgumentParser, Namespace
from dataclasses import replace
from pathlib import Path

from debate_local.commands import terminal
from debate_local.commands.launching import launch_local, launch_slurm
from debate_local.commands.run import run_shown
from debate_local.commands.work import stopped_by_signals
from debate_local.launchers.local import LocalSettings
from debate_local.launchers.slurm import SlurmSettings
from debate_local.sweep.frozen import FrozenPlan, freeze, read_frozen, where_it_started, without_stop
from debate_local.sweep.plan import Plan
from debate_local.sweep.shards import Shard
from debate_local.sweep.stopping import Stop
from debate_local.sweep.store import StoreFault
from debate_local.sweep.work import Work


def arguments(parser: ArgumentParser) -> None:
    """The options of `resume`."""
    parser.add_argument("sweep", help="a sweep's folder, such as runs/sweeps/1a2b3c4d")
    parser.add_argument("--retry-failed", action="store_true", help="ask failed requests of finished runs again, too")
    parser.add_argument("--anyway", action="store_true", help="go on although code, versions, rows or models changed")
    parser.add_argument(
        "--on", choices=("here", "local", "slurm"), default="here",
        help="in this process (the default), with workers of this machine, or in Slurm's queue as it was started",
    )  # fmt: skip


def main(options: Namespace) -> int:
    """Say what has changed, then run what is missing. A stop that the sweep had is not applied again."""
    with where_it_started(read_frozen(Path(options.sweep))) as frozen:
        return _resume(frozen, options)


def _resume(frozen: FrozenPlan, options: Namespace) -> int:
    plan = frozen.plan()
    changes = frozen.changes(plan)
    out = terminal.console()
    for change in changes:
        out.print(f"changed since the sweep was started: {change}", markup=False, soft_wrap=True)
    if changes and not options.anyway:
        raise StoreFault(
            "results made before and after would be mixed. Restore what changed, or add --anyway: runs that would be "
            "others are then made beside the old ones"
        )
    if frozen.other_runs(plan):
        command = ["debate-local", "resume", options.sweep, "--anyway"]
        frozen = freeze(plan, frozen.how, command, frozen.record["split"], frozen.record["launchers"])
        out.print(f"its runs are others now; they make up the sweep {frozen.folder}")
    missing = _missing(frozen, plan, options.retry_failed)
    if options.on != "here":
        _on_workers(options.on, without_stop(frozen), plan, missing, options.retry_failed)
        return 0
    how = replace(frozen.how, stop=Stop())
    with stopped_by_signals():
        run_shown(
            plan, how, ["debate-local", "resume", options.sweep], frozen=frozen, shards=missing,
            retry_failed=options.retry_failed,
        )  # fmt: skip
    return 0


def _missing(frozen: FrozenPlan, plan: Plan, retry_failed: bool) -> list[Shard]:
    """The shards that have something to do; the last one when all that is left is to put parts together."""
    shards = frozen.shards
    work = Work(frozen.how.output, shards, shards, retry_failed)
    work.reopen(plan.runs)
    undone = {portion.shard.number for portion in work.todo(plan.runs) if portion.shard is not None}
    return [shard for shard in shards if shard.number in undone] or shards[-1:]


def _on_workers(where: str, frozen: FrozenPlan, plan: Plan, missing: list[Shard], retry_failed: bool) -> None:
    if not missing:
        raise StoreFault(
            f"sweep {frozen.id} was never split into shards: resume it here, or run its command again with "
            "hydra/launcher=local or slurm"
        )
    settings = frozen.record["launchers"].get(where, {})
    if where == "local":
        launch_local(frozen, plan, missing, LocalSettings(**settings), retry_failed)
    else:
        launch_slurm(frozen, missing, SlurmSettings(**settings), retry_failed)
