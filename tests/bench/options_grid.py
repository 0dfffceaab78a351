"""How many requests of a grid of options are planned and sent: agents 1..6 x rounds 1..6 x peers, scripted engine."""

import json
import tempfile

from tests.bench.harness import keep

ITEMS = 10
GRID = [
    "protocol.agents=1,2,3,4,5,6",
    "protocol.rounds=1,2,3,4,5,6",
    "protocol.peers=full,answers,none",
]


def counted(items: int, output: str) -> dict[str, int]:
    """The grid's cells; its requests if every cell ran alone, distinct by the plan, and sent by the run."""
    import debate_local
    from debate_local.sweep.compose import compose
    from debate_local.sweep.forecast import forecast
    from debate_local.sweep.plan import make_plan

    overrides = ["engine=scripted", "task=arithmetic", f"limit={items}", "controls=false", f"output={output}", *GRID]
    cells, how = compose(overrides, multirun=True)
    planned = forecast(make_plan(cells), how)
    sweep = debate_local.run(overrides, multirun=True)
    (log,) = (sweep.folder / "logs").glob("*.jsonl")
    last = json.loads(log.read_text(encoding="utf-8").splitlines()[-1])
    naive = sum(len(run.turns) for run in sweep.runs)
    return {"cells": len(cells), "naive": naive, "planned": planned.new, "sent": last["sent"]}


def main() -> None:
    """Counts, not times."""
    with tempfile.TemporaryDirectory() as folder:
        found = counted(ITEMS, folder)
    each = {name: found[name] / ITEMS for name in ("naive", "planned", "sent")}
    summary = f"{found['cells']} cells: {each['naive']:g} requests an item, {each['planned']:g} planned, "
    keep("options_grid", {"items": ITEMS, **found, "summary": f"{summary}{each['sent']:g} sent"})
