"""`debate-local rerun RUN`: says what differs now from when a run was made, and makes the same run again."""

from argparse import ArgumentParser, Namespace
from dataclasses import replace
from pathlib import Path

from rich.markup import escape

from debate_local.commands.run import run_shown
from debate_local.commands.terminal import console
from debate_local.sweep.again import differences
from debate_local.sweep.cells import cell_of
from debate_local.sweep.config import HowToRun
from debate_local.sweep.plan import make_plan
from debate_local.sweep.store import is_done, load_one


def arguments(parser: ArgumentParser) -> None:
    """The options of `rerun`."""
    parser.add_argument("run", help="a run folder, or a copy of its run.json in a folder of its own")
    parser.add_argument("--check", action="store_true", help="only say what differs; exit code 1 when something does")
    parser.add_argument("--output", default="runs", help="the output root to run in (default: runs)")


def main(options: Namespace) -> int:
    """Compare, then run."""
    stored = load_one(options.run, "rerun")
    plan = make_plan([cell_of(stored.record, controls=False)])
    (planned,) = plan.runs
    out = console()
    changed = differences(stored.record, planned)
    for line in changed:
        out.print(f"[yellow]differs:[/] {escape(line)}")
    if not changed:
        out.print("nothing differs: code, versions, model, rows and hardware are as they were")
    same = planned.id.rpartition("-")[2] == stored.id.rpartition("-")[2]
    out.print(f"this is {'the same run' if same else 'another run by what affects its result'}: {planned.id}")
    if options.check:
        return 1 if changed else 0
    how = replace(HowToRun(), output=Path(options.output))
    if is_done(how.output / planned.id):
        out.print(f"it is done already: {how.output / planned.id}")
        return 0
    run_shown(plan, how, ["debate-local", "rerun", str(options.run)])
    return 0
