"""`debate-local convince --output FILE OVERRIDE ...`: find samples that convince each model, on a training split.

It takes what `run` takes, so that the line of a later run will do, with a task that holds training rows: the cast's
models, their sampling, the seed and the items are taken from it, and its protocol's `cot` and `confidence`. Each model
is asked alone, and where it is wrong again with a person's explanation (protocols/explained.py), as a run of its own
through the cache. FILE then holds, for each model, so many questions on which the explanation turned a wrong answer
into the right one, and as many drawn at random from the same rows, for comparison. `convincing=FILE` names it.
"""

from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.text import Text

from debate_local.commands.run import run_shown
from debate_local.commands.terminal import console, to_type
from debate_local.core.chat import derive_seed
from debate_local.core.protocol import facts_of
from debate_local.core.samples import Kind, Sample, usable
from debate_local.core.transcript import Item
from debate_local.sweep import options as known
from debate_local.sweep.compose import compose
from debate_local.sweep.config import Cell, Choice
from debate_local.sweep.options import OptionFault
from debate_local.sweep.plan import PlannedRun, make_plan
from debate_local.sweep.samples import SampleFile, write_samples
from debate_local.sweep.store import Run

PROTOCOL = "explained"


def arguments(parser: ArgumentParser) -> None:
    """The options of `convince`."""
    parser.add_argument("overrides", nargs="+", metavar="OVERRIDE", help="as for run, such as task.path=train.json")
    parser.add_argument("--output", required=True, help="the file to write")
    parser.add_argument("--shots", type=int, default=4, help="samples of each kind a model (Chen et al. 2024: 4)")


def main(words: Sequence[str]) -> int:
    """Find, write and tell. Raises OptionFault for what cannot be, and where too few samples are found."""
    parser = ArgumentParser(prog="debate-local convince", description=__doc__)
    arguments(parser)
    # Overrides may stand before and behind the options.
    options = parser.parse_intermixed_args(words)
    if options.shots < 1:
        raise OptionFault(f"--shots must be at least 1, got {options.shots}")
    cells, how = compose(options.overrides)
    plan = make_plan([asking_of(cells[0])])
    (planned,) = plan.runs
    pool = [item for item in planned.task.items if usable(item, planned.task.task)]
    _require_enough(planned, pool, options.shots)
    result = run_shown(plan, how, ["debate-local", "convince", "--output", options.output, *options.overrides])
    (run,) = result.sweep.runs
    found = samples_in(planned, run, pool, options.shots)
    write_samples(Path(options.output), found)
    _tell(planned, found, options.output)
    return 0


def asking_of(cell: Cell) -> Cell:
    """The cell that asks each model of another cell's cast, alone and with explanations."""
    before = cell.protocol.options
    kept = {name: before[name] for name in ("cot", "confidence") if name in before}
    cast = [member for place, member in enumerate(cell.cast) if member.model not in _models(cell.cast[:place])]
    checked = known.check("protocol", PROTOCOL, {**kept, "agents": len(cast)})
    templates = facts_of(known.load("protocol", PROTOCOL)).templates
    return replace(
        cell,
        protocol=Choice(PROTOCOL, checked),
        cast=tuple(cast),
        templates={name: text for name, text in cell.templates.items() if name in templates},
        controls=False,
        decision=None,
        convincing=None,
    )


def _models(cast: Sequence[Any]) -> list[str]:
    return [member.model for member in cast]


def _require_enough(planned: PlannedRun, pool: Sequence[Item], shots: int) -> None:
    """Before anything is asked: are there as many explanations as samples are wanted?"""
    wanted, items = shots * len(planned.cell.cast), planned.task.items
    if len(pool) >= wanted:
        return
    without = sum(not item.explanation.strip() for item in items)
    raise OptionFault(
        f"{wanted} explanations are needed, and {len(pool)} of {len(items)} items have one that can be used: {without} "
        f"have none, and from those of {len(items) - len(pool) - without} the answer can be read. Give more items "
        "(limit=), or a task whose explanations do not state the answer"
    )


def samples_in(planned: PlannedRun, run: Run, pool: Sequence[Item], shots: int) -> SampleFile:
    """The samples that a run of `explained` found. Raises OptionFault where a model has too few."""
    cast, seed = planned.cell.cast, planned.cell.seed
    turned = _turned(run)
    drawn = sorted(pool, key=lambda item: derive_seed(seed, item.id, -1, 0, "random sample"))
    samples: list[Sample] = []
    lacking = []
    for place, member in enumerate(cast):
        convincing = [item for item in pool if (item.id, place) in turned]
        if len(convincing) < shots:
            lacking.append(f"{len(convincing)} of {shots} for model {member.model!r}")
        at_random = drawn[place * shots : (place + 1) * shots]
        samples += [_sample("convincing", member.model, item) for item in convincing[:shots]]
        samples += [_sample("random", member.model, item) for item in at_random]
    if lacking:
        raise OptionFault(
            f"too few answers were turned by an explanation: {', '.join(lacking)}, in {len(pool)} items. Give more "
            "items (limit=; what was asked is in the cache) or lower --shots. Nothing was written"
        )
    return SampleFile(_about(planned, run, len(pool)), tuple(samples))


def _turned(run: Run) -> set[tuple[str, int]]:
    """(item, agent): the answer alone was wrong, and with the explanation it is right."""
    right = run.turns.filter((run.turns["round"] == 1) & (run.turns["score"] == 1.0))
    return set(right.select("item_id", "agent").iter_rows())


def _sample(kind: Kind, model: str, item: Item) -> Sample:
    return Sample(kind, model, item.id, item.question, item.target, item.explanation)


def _about(planned: PlannedRun, run: Run, pool: int) -> Mapping[str, Any]:
    """Where samples come from: enough to find them again."""
    cell, record = planned.cell, run.record
    return {
        "task": record["task"]["name"],
        "source": {name: value for name, value in record["source"].items() if name != "path"},
        "rows": record["rows_hash"],
        "items": record["items"],
        "usable": pool,
        "models": {member.model: planned.engine.identities[member.model] for member in cell.cast},
        "seed": cell.seed,
        "protocol": record["protocol"],
        "templates": record["templates"],
        "answer_format": record["answer_format"],
        "run": run.id,
    }


def _tell(planned: PlannedRun, found: SampleFile, output: str) -> None:
    out = console()
    each = len(found.samples) // (2 * len(planned.cell.cast))
    models = ", ".join(member.model for member in planned.cell.cast)
    out.print(Text(f"{output}: {each} convincing and {each} random samples for each of: {models}"), soft_wrap=True)
    told = to_type("run", "protocol=reconcile", "protocol.samples=convincing", f"convincing={output}")
    out.print(Text(f"to show them: {told} ..."), soft_wrap=True)
