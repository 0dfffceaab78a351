"""`kill -9` at random moments: nothing is lost, nothing is asked twice, and the store ends up equal."""

import mmap
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

import debate_local
from debate_local.engines.cache import cache_report
from debate_local.sweep.store import Sweep
from tests.sweep.killed import OVERRIDES, PHASES
from tests.sweep.test_run import assert_equal_tables, sent

KILLS = 32


def complete(output: Path) -> Sweep:
    return debate_local.run([*OVERRIDES, f"output={output}"], multirun=True)


def killed_in(phase: int, output: Path, marker: Path, seed: int) -> bool:
    """Start the sweep and kill it in this phase; False when it ended first."""
    marker.write_bytes(b"\0")
    draw = random.Random(seed)
    with marker.open("r+b") as file:
        byte = mmap.mmap(file.fileno(), 1)
    process = subprocess.Popen([sys.executable, "-m", "tests.sweep.killed", str(output), str(marker), str(seed)])
    # Not always the first time that the phase comes by.
    visits = draw.choice((1, 1, 2, 3, 5, 9)) if PHASES[phase] in ("poll", "commit") else 1
    inside = False
    while process.poll() is None:
        if (now := byte[0] == phase + 1) and not inside:
            visits -= 1
            if visits <= 0:
                time.sleep(draw.uniform(0, 0.001))
                process.kill()
                process.wait()
                return True
        inside = now
    return False


@pytest.mark.slow
@pytest.mark.hazard("C24")
def test_a_rerun_after_kill_9_ends_with_an_equal_store_and_asks_only_what_is_missing(tmp_path: Path) -> None:
    undisturbed = complete(tmp_path / "undisturbed")
    total = sent(undisturbed)
    hit: Counter[str] = Counter()
    number = 0
    while sum(hit.values()) < KILLS or set(hit) != set(PHASES):
        number += 1
        assert number < 3 * KILLS, f"too few kills landed: {hit}"
        phase = number % len(PHASES)
        output = tmp_path / str(number)
        # Twice each: the second kill falls into a rerun that adopts what the first left.
        for attempt in range(2):
            if killed_in(phase, output, tmp_path / "marker", seed=2 * number + attempt):
                hit[PHASES[phase]] += 1
        rerun = complete(output)
        assert_equal_tables(undisturbed, rerun)
        assert all(run.done for run in rerun.runs)
        # Whatever the kill left behind, each distinct request was stored once, and no half-written file stays behind.
        assert sum(entry.entries for entry in cache_report(output / "cache")) == total
        assert sent(complete(output)) == 0
