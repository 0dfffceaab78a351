"""10,000 live debates with a random graph against as many in which everybody hears everybody; scripted engine.

Seconds are of the processor, so that neighbours on the machine do not matter. random:1.0 has the same prompts, so its
ratio is what the graphs cost; random:0.5 is what a person would run. The debates are those of `core_rate` (3 agents, 2
rounds).
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.bench.harness import alone, in_pairs, keep

DEBATES, PAIRS = 10_000, 3
GRAPHS = ("random:1.0", "random:0.5")
CALLS = 6


def prepared(topology: str, debates: int, root: Path) -> Callable[[], None]:
    """One run with all its debates live at once, planned; what is called runs and stores it."""
    from debate_local.core.chat import ChatRequest
    from debate_local.engines.scripted import ScriptedEngine
    from debate_local.sweep.compose import compose
    from debate_local.sweep.plan import make_plan
    from debate_local.sweep.run import run_plan

    words = "Adding the two numbers step by step gives the result that is stated at the end of this reply. " * 3

    def reply(request: ChatRequest) -> str:
        return f"{words}The answer is {(request.sampling.seed or 0) % 19}."

    cells, how = compose(
        ["engine=scripted", "task=arithmetic", f"task.items={debates}", "controls=false", f"output={root}",
         f"max_live={debates}", f"protocol.topology={topology}"]
    )  # fmt: skip
    plan = make_plan(cells)
    plan.runs[0].engine.engine = ScriptedEngine(reply, name="bench")

    def run() -> None:
        result = run_plan(plan, how)
        assert not result.problems and result.sent == debates * CALLS

    return run


def measure(topology: str, debates: int) -> None:
    """Pairs of runs in this process; prints JSON."""
    with tempfile.TemporaryDirectory() as folder:
        ready = {
            graph: iter([prepared(graph, debates, Path(folder, f"{graph}-{n}")) for n in range(PAIRS + 1)])
            for graph in ("full", topology)
        }
        print(
            json.dumps(
                in_pairs(lambda: next(ready["full"])(), lambda: next(ready[topology])(), PAIRS, time.process_time)
            )
        )


def main() -> None:
    """Each topology in a process of its own, bound to one core."""
    found: dict[str, Any] = {graph: alone("tests.bench.random_graph", graph, str(DEBATES)) for graph in GRAPHS}
    rate = round(DEBATES * CALLS / min(found[GRAPHS[0]]["seconds"]["a"]))
    told = ", ".join(f"{graph} x{one['median_ratio']:.3f} of the time" for graph, one in found.items())
    keep("random_graph", {"debates": DEBATES, "graphs": found, "summary": f"full {rate}/s of processor time; {told}"})


if __name__ == "__main__":
    measure(sys.argv[1], int(sys.argv[2]))
