"""The main job, for real: sweeps on vLLM with the built-in model."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

import debate_local
from debate_local.core.chat import ChatRequest, Engine
from debate_local.engines.cache import cache_report
from debate_local.sweep.compose import compose
from debate_local.sweep.plan import make_plan
from debate_local.sweep.run import run_plan
from debate_local.sweep.store import Sweep
from tests.sweep.test_run import sent

SUMS = ["task=arithmetic", "task.operands=2", "task.operators=+", "task.low=1", "task.high=9", "sampling.max_tokens=48"]


class Shared:
    """The test run's one engine, which outlives each sweep."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.identity, self.limits = engine.identity, engine.limits
        self.poll, self.cancel, self.count_tokens = engine.poll, engine.cancel, engine.count_tokens
        self.batches: list[int] = []

    def submit(self, requests: Sequence[ChatRequest]) -> None:
        self.batches.append(len(requests))
        self._engine.submit(requests)

    def close(self) -> None:
        """Not yet."""


def run(engine: Engine, overrides: list[str], output: Path) -> tuple[Sweep, Shared]:
    cells, how = compose([*SUMS, *overrides, f"output={output}"], multirun=True)
    plan = make_plan(cells)
    shared = Shared(engine)
    for planned in plan.runs:
        planned.engine.engine = shared
    result = run_plan(plan, how)
    assert not result.problems
    return result.sweep, shared


@pytest.mark.vllm
@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["rounds", "continuous"])
def test_agents_by_rounds_by_temperature_is_one_load_and_few_batches(
    vllm_engine: Engine, tmp_path: Path, schedule: str
) -> None:
    sweep, shared = run(
        vllm_engine,
        ["limit=3", "protocol.agents=1,3", "protocol.rounds=1,2", "sampling.temperature=0.3,1.0",
         f"schedule={schedule}"],
        tmp_path,
    )  # fmt: skip
    assert all(run.done for run in sweep.runs)
    # agents=1 and agents=3 share round 0, rounds=2 contains rounds=1, sc_calls holds round 0; two temperatures.
    assert sent(sweep) == sum(shared.batches) < sum(len(run.turns) for run in sweep.runs) / 2
    if schedule == "rounds":
        # Two rounds, and the votes that the debates' tokens pay for.
        assert len(shared.batches) == 3
    for stored in sweep.runs:
        assert (stored.turns["finish_reason"].is_in(["stop", "length"])).all()
        assert (stored.turns["generated_tokens"] > 0).all()
    again, shared = run(
        vllm_engine, ["limit=3", "protocol.agents=1,3", "protocol.rounds=1,2", "sampling.temperature=0.3,1.0"], tmp_path
    )
    assert not shared.batches and len(again.runs) == len(sweep.runs)


@pytest.mark.hazard("B13")
@pytest.mark.vllm
@pytest.mark.slow
def test_a_dead_worker_and_a_kill_9_lose_nothing_that_was_answered(tmp_path: Path) -> None:
    overrides = [*SUMS, "limit=8", "sampling.max_tokens=96", "engine.max_model_len=2048", f"output={tmp_path}"]
    command = [sys.executable, "-m", "debate_local.cli", "run", *overrides]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    events = _events(tmp_path)
    _wait(process, lambda: any(e["event"] == "progress" and e["turns"] >= 5 for e in events()))
    _worker(process).kill()
    _wait(process, lambda: any(e["event"] == "restart" for e in events()))
    before = max(e["turns"] for e in events() if e["event"] == "progress")
    _wait(process, lambda: events()[-1].get("turns", 0) > before)
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGKILL)
    process.wait()
    _, alive = psutil.wait_procs(children, timeout=60)
    assert not alive, "vLLM's processes outlived the run"
    sweep = debate_local.run(overrides)
    stored = sum(entry.entries for entry in cache_report(tmp_path / "cache"))
    assert 0 < sent(sweep) < stored
    # Each distinct request of the sweep is stored once: nothing that was answered was asked again.
    assert stored == _distinct(sweep)
    assert all(run.done for run in sweep.runs)


def _distinct(sweep: Sweep) -> int:
    rows = {
        (turn["item_id"], turn["agent"], turn["round"], turn["prompt"], turn["history"], turn["text"])
        for run in sweep.runs
        for turn in run.turns.iter_rows(named=True)
    }
    return len(rows)


def _events(output: Path) -> Callable[[], list[dict[str, Any]]]:
    def read() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for path in output.glob("sweeps/*/logs/events-*.jsonl"):
            found += [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]
        return found

    return read


def _wait(process: subprocess.Popen[bytes], until: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 240
    while not until():
        assert process.poll() is None, "the run ended before it was disturbed"
        assert time.monotonic() < deadline, "what was waited for did not happen"
        time.sleep(0.05)


def _worker(process: subprocess.Popen[bytes]) -> psutil.Process:
    """The process of vLLM that holds the weights: the largest."""
    return max(psutil.Process(process.pid).children(recursive=True), key=lambda p: p.memory_info().rss)
