"""How long `debate-local run` takes from its start to the first submit, without the load of a model."""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.harness import keep


def main() -> None:
    """Ten starts each, of one debate and of a sweep of 60 cells, on the scripted engine."""
    sweeps = {
        "one cell": ["task=arithmetic"],
        "60 cells": ["-m", "task=arithmetic", "protocol.agents=1,2,3,4,5", "protocol.rounds=1,2,3",
                     "sampling.temperature=0.3,0.5,0.7,1.0"],
    }  # fmt: skip
    times: dict[str, list[float]] = {name: [] for name in sweeps}
    for _ in range(10):
        for name, overrides in sweeps.items():
            with tempfile.TemporaryDirectory() as folder:
                started = time.time()
                command = [sys.executable, "-m", "debate_local.cli", "run", *overrides, "engine=scripted", "limit=20"]
                subprocess.run([*command, f"output={folder}"], check=True, capture_output=True)
                (log,) = Path(folder).glob("sweeps/*/logs/events*")
                events = [json.loads(line) for line in log.read_text().splitlines()]
                first = next(event["time"] for event in events if event["event"] == "batch")
                times[name].append(round(first - started, 3))
    summary = {
        name: f"median {statistics.median(taken):.2f} s, worst {max(taken):.2f} s" for name, taken in times.items()
    }
    keep("first_submit", {"seconds": times, "summary": summary})
