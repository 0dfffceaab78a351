"""`kill -9` of workers that run at once on shards of one sweep: nothing is lost, and the store ends up equal."""

import mmap
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

import debate_local
from debate_local.cli import main
from debate_local.engines.cache import cache_report
from debate_local.sweep.compose import compose
from debate_local.sweep.frozen import FrozenPlan, freeze
from debate_local.sweep.plan import make_plan
from debate_local.sweep.store import load_sweep
from tests.sweep.killed import OVERRIDES, PHASES
from tests.sweep.test_run import assert_equal_tables, sent

SHARDS = 4
KILLS = 52


class Victim:
    """A worker on one shard, and the phase that it is in."""

    def __init__(self, plan: FrozenPlan, number: int, marker: Path, seed: int) -> None:
        marker.write_bytes(b"\0")
        with marker.open("r+b") as file:
            self._byte = mmap.mmap(file.fileno(), 1)
        command = [sys.executable, "-m", "tests.sweep.killed_shard", str(plan.folder), f"{number}/{SHARDS}"]
        self.process = subprocess.Popen([*command, str(marker), str(seed)], stderr=subprocess.DEVNULL)
        self._visits = random.Random(seed).choice((1, 1, 2, 4))
        self._inside = False

    def kill_in(self, phase: int) -> bool:
        """Kill it if it has just entered this phase often enough."""
        now = self._byte[0] == phase + 1
        if now and not self._inside:
            self._visits -= 1
        self._inside = now
        if not now or self._visits > 0:
            return False
        self.process.kill()
        self.process.wait()
        return True


def killed(plan: FrozenPlan, folder: Path, seed: int) -> Counter[str]:
    """Start a worker on each shard, kill each in some phase; what was hit."""
    draw = random.Random(seed)
    victims = {
        Victim(plan, number, folder / f"marker-{number}", SHARDS * seed + number): draw.randrange(len(PHASES))
        for number in range(SHARDS)
    }
    hit: Counter[str] = Counter()
    while victims:
        for victim, phase in list(victims.items()):
            if victim.process.poll() is not None:
                del victims[victim]
            elif victim.kill_in(phase):
                hit[PHASES[phase]] += 1
                del victims[victim]
        time.sleep(0.0002)
    return hit


@pytest.mark.slow
def test_a_rerun_after_kill_9_of_any_workers_ends_with_an_equal_store(tmp_path: Path) -> None:
    undisturbed = debate_local.run([*OVERRIDES, f"output={tmp_path / 'undisturbed'}"], multirun=True)
    hit: Counter[str] = Counter()
    trial = 0
    while sum(hit.values()) < KILLS or set(hit) != set(PHASES):
        trial += 1
        assert trial < KILLS, f"too few kills landed: {hit}"
        output = tmp_path / str(trial)
        cells, how = compose([*OVERRIDES, f"output={output}"], multirun=True)
        plan = freeze(make_plan(cells), how, [], SHARDS)
        # Twice: the second kill falls into workers that adopt what the first ones left.
        for attempt in range(2):
            hit += killed(plan, tmp_path, 2 * trial + attempt)
        # Twice: what the debates' tokens pay for is known when all shards have ended.
        for number in [*range(SHARDS), *range(SHARDS)]:
            assert main(["work", str(plan.folder), "--shard", f"{number}/{SHARDS}"]) == 0
        rerun = load_sweep(plan.folder)
        assert all(run.done for run in rerun.runs)
        assert_equal_tables(undisturbed, rerun)
        # Nothing is lost, and nothing asked twice, whoever sealed what a killed one left.
        assert sum(entry.entries for entry in cache_report(output / "cache")) == sent(undisturbed)
        assert not list(output.glob("*/parts"))
