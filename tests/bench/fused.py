"""One fused sweep on vLLM against one process a cell, and against the papers' way: one request at a time.

agents {1,3,5} x rounds {1,2,4} x temperature {0.3,1.0}, 12 items, SmolLM2. The slow ways are measured on samples and
extrapolated: some cells of each size in a process of their own, and some of the requests one by one.
"""

import itertools
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.bench.harness import keep

AGENTS, ROUNDS, TEMPERATURES = (1, 3, 5), (1, 2, 4), (0.3, 1.0)
BASE = [
    "task=arithmetic",
    "limit=12",
    "controls=false",
    "sampling.max_tokens=64",
    "engine=vllm",
    "engine.kv_cache_gib=4",
]
ONE_BY_ONE = 40


def timed(folder: str, *overrides: str) -> float:
    started = time.perf_counter()
    command = [sys.executable, "-m", "debate_local.cli", "run", *overrides, *BASE, f"output={folder}"]
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - started


def last_event(folder: str, kind: str) -> dict[str, Any]:
    (log,) = Path(folder).glob("sweeps/*/logs/events*")
    return [event for line in log.open() if (event := json.loads(line))["event"] == kind][-1]


def one_by_one(count: int) -> float:
    """Seconds a request when each is sent alone, loading apart: one agent, one item at a time."""
    with tempfile.TemporaryDirectory() as folder:
        timed(folder, "protocol.agents=1", "protocol.rounds=4", f"limit={count // 4}", "max_live=1")
        engine = last_event(folder, "engine")
        return float(engine["seconds"]) / float(engine["sent"])


def main() -> None:
    """Whole fused sweep, every cell alone, a sample one by one."""
    grid = [f"protocol.agents={','.join(map(str, AGENTS))}", f"protocol.rounds={','.join(map(str, ROUNDS))}",
            f"sampling.temperature={','.join(map(str, TEMPERATURES))}"]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        fused = timed(folder, "-m", *grid)
        sent = int(last_event(folder, "end")["sent"])
        turns = int(last_event(folder, "start")["turns"])
    alone = {}
    for agents, rounds, temperature in itertools.product(AGENTS, ROUNDS, TEMPERATURES):
        # A folder each: a process a cell shares nothing, as with a launcher that runs one job a cell.
        with tempfile.TemporaryDirectory() as folder:
            cell = [f"protocol.agents={agents}", f"protocol.rounds={rounds}", f"sampling.temperature={temperature}"]
            alone[f"{agents}x{rounds} t{temperature}"] = round(timed(folder, *cell), 1)
    a_request = one_by_one(ONE_BY_ONE)
    each = sum(alone.values())
    summary = (
        f"fused {fused:.0f} s; a process a cell {each:.0f} s ({each / fused:.1f}x); one request at a time, "
        f"extrapolated from {ONE_BY_ONE} to {turns} requests: {a_request * turns:.0f} s "
        f"({a_request * turns / fused:.1f}x)"
    )
    facts = {"fused": fused, "sent": sent, "turns": turns, "alone": alone, "seconds_a_request_one_by_one": a_request}
    keep("fused", {**facts, "summary": summary})
