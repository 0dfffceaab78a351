"""`debate-local decide RUN decision=majority,weighted:rescaled`: a stored run's debates, decided otherwise.

Decisions that ask no model are applied to the stored turns, without an engine; each is kept beside the run, in
`decisions/`, as a table of debates. Those that ask (judge, mediator, approval, ranked) are runs of their own through
the same cache, so that only what they ask is new, and in their cost. The run itself stays as it is.
"""

import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from debate_local.analysis.decisions import Redecided, redecide
from debate_local.analysis.rounds import round_by_round
from debate_local.analysis.statistics import Estimate
from debate_local.commands.show import print_rounds
from debate_local.commands.terminal import console
from debate_local.core.decisions import ASKED, check_decision
from debate_local.sweep.options import OptionFault
from debate_local.sweep.store import Run, StoreFault, load


def arguments(parser: ArgumentParser) -> None:
    """The options of `decide`."""
    parser.add_argument("run", help="a run folder")
    parser.add_argument("decision", help="decision=WORD, or several: decision=majority,trajectory:later")
    parser.add_argument("--judge", metavar="MODEL", help="which model of the run's engine judges or mediates")
    parser.add_argument("--by-round", action="store_true", help="print what each decision would be after each round")
    parser.add_argument("--json", action="store_true", help="print the table as JSON")


def main(options: Namespace) -> int:
    """Decide, tell, keep. Raises OptionFault for a decision that is none, StoreFault for a run without its needs."""
    run = load(options.run)
    if not isinstance(run, Run):
        raise StoreFault(f"{options.run} is a sweep; decide takes a run: {', '.join(str(r.folder) for r in run.runs)}")
    rules = _rules(options.decision)
    free = [rule for rule in rules if rule not in ASKED]
    found = [redecide(run, rule) for rule in free]
    for one in found:
        _keep(run, one)
    if options.json:
        told = [_told(one) for one in found]
        if options.by_round:
            rounds = round_by_round(run, free)
            told = [{**one, "by_round": [each.scores[one["rule"]] for each in rounds]} for one in told]
        json.dump(told, sys.stdout, indent=2, ensure_ascii=False)
        print()
    elif found:
        _print(run, found)
        if options.by_round:
            print_rounds(run, free)
    asking = [rule for rule in rules if rule in ASKED]
    if asking:
        _ask(run, asking, options.judge)
    return 0


def _rules(argument: str) -> list[str]:
    rules = [rule.strip() for rule in argument.removeprefix("decision=").split(",")]
    for rule in rules:
        try:
            check_decision(rule)
        except ValueError as error:
            raise OptionFault(str(error)) from error
    return rules


def _keep(run: Run, found: Redecided) -> None:
    """Write a decision's table beside the run; it is a function of the run, whenever it is written."""
    path = table_of(run.folder, found.rule)
    path.parent.mkdir(exist_ok=True)
    beside = path.with_name(f".{path.name}")
    found.debates.write_parquet(beside)
    beside.replace(path)


def table_of(run: Path, rule: str) -> Path:
    """Where the table of a decision is kept."""
    return run / "decisions" / f"{rule.replace(':', '-').replace('/', '_')}.parquet"


def _told(found: Redecided) -> dict[str, Any]:
    values = {name: getattr(found, name) for name in ("rule", "no_answer", "changed", "ties")}
    for name in ("score", "difference"):
        estimate: Estimate | None = getattr(found, name)
        values[name] = None if estimate is None else asdict(estimate)
    return values


def _print(run: Run, found: Sequence[Redecided]) -> None:
    out = console()
    metric = run.record["metric"]["name"]
    own = run.debates["rule"].drop_nulls().unique().to_list()
    table = Table(title=f"{run.label}: decided by {', '.join(own)}", title_justify="left", box=SIMPLE_HEAD)
    table.add_column("decision", overflow="fold")
    for heading in (f"{metric} %", "against its own", "no answer %", "other answers", "ties"):
        table.add_column(heading, justify="right")
    for one in found:
        cells = (_points(one.score), _points(one.difference, "+"), f"{100 * one.no_answer:.1f}")
        table.add_row(*(Text(cell) for cell in (one.rule, *cells, str(one.changed), str(one.ties))))
    out.print(table)
    out.print(Text(f"kept in {run.folder / 'decisions'}; the run is as it was", style="dim"), soft_wrap=True)


def _points(estimate: Estimate | None, sign: str = "") -> str:
    if estimate is None:
        return "-"
    value, low, high = (100 * x for x in (estimate.value, estimate.low, estimate.high))
    return f"{value:{sign}.1f} [{low:{sign}.0f}, {high:{sign}.0f}]"


def _ask(run: Run, rules: Sequence[str], judge: str | None) -> None:
    """Run the same cell with other decisions, through the cache of the run's own output folder."""
    from debate_local.commands.run import run_shown
    from debate_local.core.decisions import DECISION_TEMPLATES
    from debate_local.sweep.cells import cell_of
    from debate_local.sweep.config import HowToRun
    from debate_local.sweep.plan import make_plan

    cells = []
    for rule in rules:
        cell = cell_of(run.record, controls=False, decision=rule)
        # The wording of another decision is not this one's.
        kept = {name: text for name, text in cell.templates.items() if name not in DECISION_TEMPLATES or name == rule}
        member = None if judge is None else replace(cell.cast[0], model=judge, persona="", name="")
        cells.append(replace(cell, templates=kept, judge=member or cell.judge))
    how = replace(HowToRun(), output=run.folder.parent)
    run_shown(make_plan(cells), how, ["debate-local", "decide", str(run.folder), f"decision={','.join(rules)}"])
