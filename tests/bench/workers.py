"""Two workers against one: the same shards with the scripted engine, whose latency stands for a GPU's."""

import shutil
import subprocess
import sys
import tempfile

from tests.bench.harness import in_pairs, keep

SWEEP = ["engine=scripted", "task=arithmetic", "limit=24", "protocol.agents=3", "protocol.rounds=2,3"]
# Twelve seconds of waiting in all, so that starting two processes does not decide.
SLOW = ["engine.latency=1.0", "max_live=16"]


def run(workers: int) -> None:
    folder = tempfile.mkdtemp()
    launcher = ["hydra/launcher=local", "hydra.launcher.shards=2", f"hydra.launcher.workers={workers}"]
    command = [sys.executable, "-m", "debate_local.cli", "run", "-m", *SWEEP, *SLOW, *launcher, f"output={folder}"]
    subprocess.run(command, check=True, capture_output=True)
    shutil.rmtree(folder)


def main() -> None:
    """a is two workers, b is one: the ratio says how much faster two are."""
    result = in_pairs(lambda: run(2), lambda: run(1), pairs=5)
    low, high = result["range"]
    keep("workers", {**result, "summary": f"two are {result['median_ratio']:.2f}x one ({low:.2f}-{high:.2f})"})
