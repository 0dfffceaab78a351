"""How long `import debate_local` and `debate-local --help` take, each in a process of its own."""

import statistics
import subprocess
import sys
import time

from tests.bench.harness import keep

COMMANDS = {
    "import debate_local": [sys.executable, "-c", "import debate_local, sys; assert 'torch' not in sys.modules"],
    "debate-local --help": [sys.executable, "-m", "debate_local.cli", "--help"],
    "python alone": [sys.executable, "-c", "pass"],
}


def main() -> None:
    """Ten times each."""
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(10):
        for name, command in COMMANDS.items():
            started = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            times[name].append(time.perf_counter() - started)
    summary = {
        name: {"median": round(statistics.median(taken), 3), "worst": round(max(taken), 3)}
        for name, taken in times.items()
    }
    keep("startup", {"seconds": times, "summary": summary})
