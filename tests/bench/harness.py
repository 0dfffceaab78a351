"""Side-by-side measurement: A-B-B-A pairs in one run, median ratios, raw times kept with command, commit, machine."""

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from debate_local.sweep.machine import commit, hardware, versions

RESULTS = Path(__file__).parent / "results"


def in_pairs(
    a: Callable[[], Any], b: Callable[[], Any], pairs: int = 5, clock: Callable[[], float] = time.perf_counter
) -> dict[str, Any]:
    """Time a and b in the order A B B A A B ..., once each unmeasured before; the ratio is b over a, pair by pair.

    clock: time.process_time for work of this process alone, whatever else the machine does.
    """
    a()
    b()
    times: dict[str, list[float]] = {"a": [], "b": []}
    for pair in range(pairs):
        for name, work in [("a", a), ("b", b)] if pair % 2 == 0 else [("b", b), ("a", a)]:
            started = clock()
            work()
            times[name].append(clock() - started)
    ratios = [y / x for x, y in zip(times["a"], times["b"], strict=True)]
    return {
        "seconds": times,
        "ratios": ratios,
        "median_ratio": statistics.median(ratios),
        "range": [min(ratios), max(ratios)],
    }


def alone(module: str, *arguments: str, cores: int = 1) -> dict[str, Any]:
    """Run `python -m module arguments` on the first cores only and read the JSON of its last line."""
    allowed = sorted(os.sched_getaffinity(0))[:cores]
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=lambda: os.sched_setaffinity(0, allowed),
    )
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def peak_mib() -> float:
    """The largest resident size of this process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def keep(name: str, result: Mapping[str, Any]) -> None:
    """Write one result with where it comes from, and print it."""
    RESULTS.mkdir(exist_ok=True)
    record = {
        "name": name,
        "command": f"python -m tests.bench {name}",
        "commit": commit(),
        "date": time.strftime("%Y-%m-%d"),
        "machine": hardware(),
        "versions": versions(),
        **result,
    }
    (RESULTS / f"{name}.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    print(f"{name}: {json.dumps(result.get('summary', result))}")
