"""Completions a second through core, cache and store with the scripted engine, on one core, at three sizes."""

import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.harness import alone, keep, peak_mib

SIZES = (10_000, 100_000, 1_000_000)
MAX_LIVE = 1024


def measure(completions: int) -> None:
    """One sweep of a debate among 3 over 2 rounds, in this process; prints JSON."""
    from debate_local.core.chat import ChatRequest
    from debate_local.engines.scripted import ScriptedEngine
    from debate_local.sweep.compose import compose
    from debate_local.sweep.plan import make_plan
    from debate_local.sweep.run import run_plan

    items = -(-completions // 6)
    root = Path(tempfile.mkdtemp(dir=sys.argv[2] if len(sys.argv) > 2 else None))

    def reply(request: ChatRequest) -> str:
        words = "Adding the two numbers step by step gives the result that is stated at the end of this reply. " * 3
        return f"{words}The answer is {(request.sampling.seed or 0) % 19}."

    cells, how = compose(
        ["engine=scripted", "task=arithmetic", f"task.items={items}", "controls=false", f"output={root}",
         f"max_live={MAX_LIVE}"]
    )  # fmt: skip
    plan = make_plan(cells)
    plan.runs[0].engine.engine = ScriptedEngine(reply, name="bench")
    before = peak_mib()
    started = time.perf_counter()
    result = run_plan(plan, how)
    seconds = time.perf_counter() - started
    assert not result.problems and result.sent == items * 6
    size = sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
    shutil.rmtree(root)
    facts = {
        "completions": items * 6,
        "seconds": round(seconds, 2),
        "per_second": round(items * 6 / seconds),
        "peak_mib": round(peak_mib()),
        "mib_before": round(before),
        "disk_mib": round(size / 2**20),
    }
    print(json.dumps(facts))


def main() -> None:
    """Each size in a process of its own, bound to one core."""
    rows = [alone("tests.bench.core_rate", str(size)) for size in SIZES]
    summary = {str(row["completions"]): f"{row['per_second']}/s, peak {row['peak_mib']} MiB" for row in rows}
    keep("core_rate", {"max_live": MAX_LIVE, "rows": rows, "summary": summary})


if __name__ == "__main__":
    measure(int(sys.argv[1]))
