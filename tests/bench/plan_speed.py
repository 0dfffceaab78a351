"""How long planning takes: `plan` of 1,000 cells x 1,319 items, freezing 10,000 cells, and `status` on 1,000 shards."""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.bench.harness import keep

CELLS = ["protocol.agents=1,2,3,4,5", "protocol.rounds=1,2,3,4"]


def rows(folder: Path, count: int) -> str:
    """A file in GSM8K's columns with so many questions of about its mean length."""
    path = folder / "rows.jsonl"
    filler = "It is open. " * 15
    sums = [
        {"question": f"A shop has {n} boxes of 12 pens. {filler}How many pens?", "answer": f"#### {12 * n}"}
        for n in range(count)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in sums))
    return str(path)


def timed(*command: str) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-m", "debate_local.cli", *command], check=True, capture_output=True)
    return round(time.perf_counter() - started, 2)


def shards(folder: Path, count: int) -> dict[str, Any]:
    """A sweep split into so many shards, a few of them done; how long `status` takes."""
    runs = f"output={folder / 'shards'}"
    task = ["task=gsm8k", f"task.path={rows(folder, 1319)}", "engine=scripted"]
    grid = [*CELLS[:1], "protocol.rounds=1,2,3", "sampling.temperature=0.3,0.7,1.0,1.3", "controls=false"]
    timed("run", "-m", *task, *grid, runs, "hydra/launcher=freeze", f"hydra.launcher.shards={count}")
    (sweep,) = (folder / "shards" / "sweeps").iterdir()
    done = [word for number in range(20) for word in ("--shard", f"{number}/{count}")]
    timed("work", str(sweep), *done)
    # As if every shard had a worker: copies of one worker's log, under each shard's name.
    log = next(sweep.glob("logs/events*"))
    text = log.read_text()
    for number in range(20, count):
        name = log.name.replace("-0000+19-", f"-{number:04d}-")
        (log.parent / name).write_text(text.replace(json.dumps(list(range(20))), f"[{number}]"))
    seconds = [timed("status", str(sweep), "--json") for _ in range(5)]
    return {"shards": count, "cells": 60, "seconds": seconds}


def main() -> None:
    """Each as a person would run it, process start included."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        base = [f"output={folder / 'runs'}", "engine=scripted"]
        task = ["task=gsm8k", f"task.path={rows(folder, 1319)}"]
        seeds = ",".join(map(str, range(50)))
        plan = timed("plan", "-m", *base, *task, *CELLS, f"seed={seeds}", "controls=false")
        seeds = ",".join(map(str, range(500)))
        freeze = timed("run", "-m", *base, "task=arithmetic", "limit=100", *CELLS, f"seed={seeds}",
                       "hydra/launcher=freeze", "hydra.launcher.shards=16")  # fmt: skip
        status = shards(folder, 1000)
    summary = {
        "plan of 1,000 cells x 1,319 items": f"{plan} s",
        "10,000 cells planned with their controls, frozen and split": f"{freeze} s",
        "status on 1,000 shards x 60 cells": f"{sorted(status['seconds'])[2]} s (median of 5)",
    }
    keep("plan_speed", {"plan": plan, "freeze": freeze, "status": status, "summary": summary})
