"""vLLM's sleep mode: who makes room for another model of a run gives back its GPU's memory and need not load again.

vLLM's place is taken, and nvidia-smi's: a GPU of 80 GiB, of which vLLM holds 70 while it is awake and 2 asleep.
"""

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from debate_local.core.chat import Engine, EngineDead
from debate_local.engines.memory import GIB, Memory
from debate_local.engines.pool import Pool, Switch
from debate_local.engines.vllm import vllm
from tests.engines.asking import answers, asking
from tests.engines.fake_vllm import FakeVllm
from tests.engines.tiny import save_tiny

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tiny(tmp_path_factory.mktemp("tiny")))


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeVllm:
    """vLLM's build for GPUs; what it holds is not free."""
    monkeypatch.setenv("DEBATE_LOCAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    free, smi = tmp_path / "free", tmp_path / "bin" / "nvidia-smi"
    smi.parent.mkdir()
    smi.write_text(
        f"#!/bin/sh\ncase \"$1\" in -L) echo 'GPU 0: H100 (UUID: GPU-1)' ;;"
        f' *compute_cap*) echo 9.0 ;; *) echo "0, GPU-1, 81920, $(cat {free})" ;; esac\n'
    )
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{smi.parent}:{os.environ['PATH']}")
    fake = FakeVllm(holds=lambda size: free.write_text(str(81920 - (size >> 20))))
    fake.holds(0)
    return fake.install(monkeypatch, cpu=False)


def made(folder: str, **options: Any) -> Any:
    """An engine that shares its GPU in turns."""
    engine: Any = vllm(folder, **options)
    engine.takes_turns = True
    return engine


def test_an_engine_that_takes_turns_is_started_in_sleep_mode_and_one_that_does_not_is_not(
    gpu: FakeVllm, tiny: str
) -> None:
    alone, in_turns = vllm(tiny), made(tiny)
    for engine in (alone, in_turns):
        engine.submit([])
    assert [arguments.get("enable_sleep_mode") for arguments in gpu.arguments] == [None, True]
    assert any("sleep" in reason for reason in in_turns.facts["why"])
    # Neither what it says nor how fast, so that a run in a pool and a run alone are no mixture.
    assert in_turns.identity == alone.identity
    assert in_turns.facts["speed"] == alone.facts["speed"]  # type: ignore[attr-defined]
    assert (in_turns.can_sleep, alone.can_sleep) == (True, False)  # type: ignore[attr-defined]


def test_a_sleeping_engine_gives_its_memory_back_until_it_is_asked_again(gpu: FakeVllm, tiny: str) -> None:
    engine = made(tiny)
    assert not engine.can_sleep
    answers(engine, [asking("a")])
    assert engine.footprint.free == 10 * GIB
    engine.sleep()
    # What it takes again is what it gave back.
    assert (engine.footprint.free, engine.footprint.needed) == (78 * GIB, 68 * GIB)
    assert answers(engine, [asking("b")])["b"].text == "Four."
    assert engine.footprint.free == 10 * GIB and engine.footprint.needed > 70 * GIB
    engine.sleep()
    engine.close()
    assert gpu.events == ["start", "sleep", "wake", "sleep", "end"]


@pytest.mark.parametrize(
    ("extra", "free_ram"), [({"enable_sleep_mode": False}, 64 * GIB), ({}, GIB // 2)], ids=["unwanted", "no RAM"]
)
def test_an_engine_does_not_sleep_where_the_user_forbids_it_or_ram_cannot_hold_its_weights(
    gpu: FakeVllm, tiny: str, monkeypatch: pytest.MonkeyPatch, extra: dict[str, Any], free_ram: int
) -> None:
    monkeypatch.setattr("debate_local.engines.vllm.ram", lambda: Memory(64 * GIB, free_ram))
    engine = made(tiny, extra=extra)
    engine.submit([])
    assert not engine.can_sleep
    engine.close()


def test_on_a_cpu_sleep_is_never_chosen(tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEBATE_LOCAL_CACHE", str(tmp_path))
    fake = FakeVllm().install(monkeypatch, cpu=True)
    engine = made(tiny, kv_cache_gib=0.1)
    engine.submit([])
    assert "enable_sleep_mode" not in fake.arguments[0]
    assert not engine.can_sleep
    engine.close()


def test_a_fault_while_falling_asleep_or_waking_is_the_engines_death(gpu: FakeVllm, tiny: str) -> None:
    def fail(held: int) -> None:
        raise RuntimeError("CUDA Error: out of memory at cumem_allocator.cpp:163")

    engine = made(tiny)
    engine.submit([])
    engine.sleep()
    gpu.holds = fail
    with pytest.raises(EngineDead, match=r"vLLM has died: CUDA Error: out of memory"):
        engine.submit([asking("a")])
    with pytest.raises(EngineDead, match=r"vLLM has died: CUDA Error: out of memory"):
        engine.sleep()


def test_two_models_on_one_gpu_take_turns_asleep_and_each_is_loaded_once(gpu: FakeVllm, tiny: str) -> None:
    makers: dict[str, Callable[[], Engine]] = {
        name: partial(vllm, tiny, gpu_memory_utilization=share) for name, share in (("a", 0.9), ("b", 0.91))
    }
    pool = Pool(makers)
    told: list[Switch] = []
    pool.on_switch = told.append
    for wave in range(2):
        found = answers(pool, [asking(f"{model}{wave}", model=model) for model in ("a", "b")])
        assert all(completion.text == "Four." for completion in found.values())
    json.dumps(pool.facts)
    pool.close()
    assert gpu.events == ["start", "sleep", "start", "sleep", "wake", "end", "end"]
    assert [(switch.opened, switch.slept, switch.woken) for switch in told] == [
        (("a",), (), False),
        (("b",), ("a",), False),
        (("a",), ("b",), True),
    ]
    assert told[1].free_before == 10 * GIB and told[1].free_after == 78 * GIB
