"""How vLLM is started and asked, with vLLM's place taken: what wants a GPU, or an unlucky moment, can be tried here."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from debate_local.core.chat import EngineFailed, request_key
from debate_local.engines.restart import RestartingEngine
from debate_local.engines.vllm import EngineStartFailed, vllm
from debate_local.engines.vllm_settings import check_visible_devices
from tests.engines.asking import answers, asking
from tests.engines.fake_vllm import FakeVllm, Said
from tests.engines.tiny import save_tiny

pytestmark = pytest.mark.slow

Smi = Callable[[str], None]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model folder: 512 tokens of context."""
    return str(save_tiny(tmp_path_factory.mktemp("tiny")))


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache folder, and no variable that sets what an engine would choose."""
    monkeypatch.setenv("DEBATE_LOCAL_CACHE", str(tmp_path / "cache"))
    for name in ("VLLM_PORT", "VLLM_CACHE_ROOT", "TRITON_CACHE_DIR", "VLLM_BATCH_INVARIANT", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "cache"


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Smi:
    """Make an nvidia-smi that runs a shell script."""

    def make(script: str) -> None:
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        (folder / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
        (folder / "nvidia-smi").chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    return make


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, own_cache: Path) -> FakeVllm:
    """vLLM's build for the CPU."""
    return FakeVllm().install(monkeypatch)


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch, own_cache: Path, nvidia_smi: Smi) -> FakeVllm:
    """vLLM's build for GPUs, on a machine with two."""
    nvidia_smi(TWO_GPUS)
    return FakeVllm().install(monkeypatch, cpu=False)


FIRST, SECOND = "GPU-7f57f032-34ab-a064-c37c-7a4f75601cc5", "GPU-8c7c9c30-f12f-20bf-e14e-d3c4c965af32"
SLICE = "MIG-377e0049-554c-540b-93c6-d0976f8426cb"
TWO_GPUS = f"""case "$1" in
-L) echo 'GPU 0: NVIDIA H100 80GB HBM3 (UUID: {FIRST})'
    echo '  MIG 2g.20gb     Device  0: (UUID: {SLICE})'
    echo 'GPU 1: NVIDIA H100 80GB HBM3 (UUID: {SECOND})' ;;
*compute_cap*) echo 9.0; echo 9.0 ;;
*) echo '0, {FIRST}, 81559, 81000'; echo '1, {SECOND}, 81559, 81000' ;;
esac"""


def facts(engine: Any) -> Mapping[str, Any]:
    found: Mapping[str, Any] = engine.facts
    json.dumps(found)
    return found


# Batches and what is promised of them


@pytest.mark.hazard("B01", "B04")
def test_the_settings_that_shape_batches_are_told_and_equal_texts_are_not_promised(fake: FakeVllm, tiny: str) -> None:
    engine = vllm(tiny, kv_cache_gib=0.1, max_num_seqs=7, enable_prefix_caching=False)
    engine.submit([])
    told = facts(engine)
    assert told["texts_depend_on_batches"] is True
    assert told["batches"]["max_num_seqs"] == 7
    assert told["batches"]["enable_prefix_caching"] is False
    # The speed settings go with every completion into the cache.
    assert (told["speed"]["max_num_seqs"], told["speed"]["enable_prefix_caching"]) == (7, False)
    engine.close()


@pytest.mark.hazard("B01")
def test_batch_invariant_mode_reaches_vllm_is_told_and_makes_a_record_of_its_own(gpus: FakeVllm, tiny: str) -> None:
    plain, invariant = vllm(tiny), vllm(tiny, batch_invariant=True)
    for engine in (plain, invariant):
        engine.submit([])
    assert "VLLM_BATCH_INVARIANT" not in gpus.environments[0]
    assert gpus.environments[1]["VLLM_BATCH_INVARIANT"] == "1"
    assert facts(invariant)["texts_depend_on_batches"] is False
    assert invariant.identity["default"] == {**plain.identity["default"], "batch_invariant": True}
    for engine in (plain, invariant):
        engine.close()


@pytest.mark.hazard("B01")
def test_vllms_own_variable_for_batch_invariant_mode_counts_unless_the_option_says_no(
    gpus: FakeVllm, tiny: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_BATCH_INVARIANT", "1")
    assert vllm(tiny).identity["default"]["batch_invariant"] is True
    off = vllm(tiny, batch_invariant=False)
    off.submit([])
    assert "batch_invariant" not in off.identity["default"]
    assert gpus.environments[0]["VLLM_BATCH_INVARIANT"] == "0"
    off.close()


@pytest.mark.hazard("B01")
@pytest.mark.parametrize(("cpu", "says"), [(True, "on a CPU"), (False, r"8\.0 or more, here there is 7\.5")])
def test_batch_invariant_mode_is_refused_where_there_is_none(
    cpu: bool, says: str, gpus: FakeVllm, tiny: str, nvidia_smi: Smi, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvidia_smi("echo 9.0; echo 7.5")
    FakeVllm().install(monkeypatch, cpu=cpu)
    with pytest.raises(ValueError, match=rf"engine\.batch_invariant=true: .*{says}"):
        vllm(tiny, batch_invariant=True)
    assert vllm(tiny, batch_invariant=False).limits.seed


# Seeds


@pytest.mark.hazard("B02")
def test_seeds_that_would_kill_a_cpu_engine_are_not_sent_and_that_is_told(fake: FakeVllm, tiny: str) -> None:
    engine = vllm(tiny, kv_cache_gib=0.1, extra={"enable_chunked_prefill": True})
    found = answers(engine, [asking("seeded", seed=1), asking("unseeded"), asking("greedy", temperature=0.0)])
    assert {params.seed for params in fake.asked.values()} == {None}
    assert found["seeded"].notes == found["unseeded"].notes == ("the seed is not honoured",)
    assert found["greedy"].notes == ()
    assert not engine.limits.seed and facts(engine)["seeds_honoured"] is False
    engine.close()


@pytest.mark.hazard("B02")
def test_elsewhere_every_seed_is_sent(fake: FakeVllm, tiny: str) -> None:
    engine = vllm(tiny, kv_cache_gib=0.1)
    found = answers(engine, [asking(str(seed), seed=seed) for seed in range(3)])
    assert sorted(params.seed for params in fake.asked.values()) == [0, 1, 2]
    assert fake.arguments[0]["enable_chunked_prefill"] is False
    assert {completion.notes for completion in found.values()} == {()}
    assert engine.limits.seed
    engine.close()


# Requests and replies


@pytest.mark.hazard("B06")
def test_a_prompt_that_is_too_long_never_reaches_vllm_and_the_others_are_answered(fake: FakeVllm, tiny: str) -> None:
    engine = vllm(tiny, kv_cache_gib=0.1)
    found = answers(engine, [asking("short"), asking("too long", "word " * 500), asking("short too")])
    assert {name: completion.finish_reason for name, completion in found.items()} == {
        "short": "stop",
        "too long": "too_long",
        "short too": "stop",
    }
    assert len(fake.asked) == 2
    engine.close()


@pytest.mark.hazard("B09")
def test_an_empty_text_is_an_empty_reply(fake: FakeVllm, tiny: str) -> None:
    fake.answer = lambda params: Said("", token_ids=[2])
    engine = vllm(tiny, kv_cache_gib=0.1)
    empty = answers(engine, [asking("empty", logprobs=False)])["empty"]
    assert (empty.text, empty.finish_reason, empty.error, empty.generated_tokens) == ("", "stop", None, 1)
    engine.close()


@pytest.mark.hazard("B11", "B26")
@pytest.mark.parametrize(
    "logprobs",
    [
        None,
        [],
        [{1: SimpleNamespace(logprob=-0.5, decoded_token="a")}],
        [{1: SimpleNamespace(logprob=-0.5, decoded_token="a")}, {7: SimpleNamespace(logprob=-0.1, decoded_token="b")}],
    ],
    ids=["none", "empty", "too few", "another token's"],
)
def test_log_probabilities_that_do_not_come_back_are_none_and_noted(fake: FakeVllm, tiny: str, logprobs: Any) -> None:
    fake.answer = lambda params: Said("ab", token_ids=[1, 2], logprobs=logprobs)
    engine = vllm(tiny, kv_cache_gib=0.1)
    found = answers(engine, [asking("asked", logprobs=True), asking("not asked")])
    assert found["asked"].logprobs is None
    assert found["asked"].notes == ("log-probabilities are missing",)
    assert found["asked"].text == "ab"
    assert found["not asked"].notes == ()
    engine.close()


@pytest.mark.hazard("B22")
def test_every_sampling_field_is_stated_whatever_the_models_file_says(
    fake: FakeVllm, tmp_path: Path, own_cache: Path
) -> None:
    opinions: dict[str, Any] = {"temperature": 0.1, "top_k": 5, "top_p": 0.5, "repetition_penalty": 1.3}
    engine = vllm(str(save_tiny(tmp_path / "model", **opinions)), kv_cache_gib=0.1)
    answers(engine, [asking("swept", temperature=0.7, seed=3, max_tokens=9)])
    (params,) = fake.asked.values()
    stated: dict[str, Any] = {"temperature": 0.7, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
    others = {"presence_penalty": 0.0, "frequency_penalty": 0.0, "seed": 3, "max_tokens": 9, "stop": []}
    expected = {**stated, **others}
    assert {name: getattr(params, name) for name in expected} == expected
    engine.close()


@pytest.mark.hazard("B24")
def test_each_request_has_its_own_schema_and_every_reply_says_what_stopped_it(fake: FakeVllm, tiny: str) -> None:
    ends = {"\n": Said("a", stop_reason="\n"), "token": Said("b", stop_reason=2)}
    fake.answer = lambda params: ends[next(iter(params.stop), "token")]
    engine = vllm(tiny, kv_cache_gib=0.1)
    schema = {"type": "object"}
    found = answers(
        engine, [*(asking(str(n), schema=schema, stop=("\n",)) for n in range(50)), asking("by itself", schema=schema)]
    )
    assert {found[str(n)].stop_reason for n in range(50)} == {"\n"}
    assert found["by itself"].stop_reason == ""
    assert len({id(params.structured_outputs) for params in fake.asked.values()}) == 51
    engine.close()


@pytest.mark.hazard("B25")
def test_a_completion_holds_the_hash_of_its_prompts_token_ids(fake: FakeVllm, tiny: str) -> None:
    engine = vllm(tiny, kv_cache_gib=0.1)
    found = answers(engine, [asking("one", "a"), asking("same", "a", seed=2), asking("other", "b")])
    assert found["one"].prompt_hash == found["same"].prompt_hash != found["other"].prompt_hash
    assert len(bytes.fromhex(found["one"].prompt_hash)) == 8
    engine.close()


@pytest.mark.hazard("B21")
def test_the_thinking_switch_reaches_the_prompt_and_the_key(fake: FakeVllm, tiny: str) -> None:
    template = "{{ messages[0]['content'] }}{% if enable_thinking is false %}<think></think>{% endif %}"
    engine = vllm(tiny, kv_cache_gib=0.1, chat_template=template)
    on, off = asking("on"), asking("off", template_args={"enable_thinking": False})
    found = answers(engine, [on, off])
    assert found["on"].prompt_hash != found["off"].prompt_hash
    assert found["off"].notes == ()
    assert request_key(on, "") != request_key(off, "")
    engine.close()


# Starting


NO_MEMORY = (
    "Free memory on device cuda:0 (20.1/79.2 GiB) on startup is less than desired GPU memory utilization"
    " (0.4, 31.7 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes."
)


@pytest.mark.hazard("B05")
def test_too_little_memory_is_one_error_with_what_is_free_and_needed_and_one_start(gpus: FakeVllm, tiny: str) -> None:
    gpus.starts = [ValueError(NO_MEMORY)] * 9
    engine = RestartingEngine(lambda: vllm(tiny, gpu_memory_utilization=0.4), max_restarts=2)
    with pytest.raises(EngineFailed, match=r"20\.1/79\.2 GiB.*31\.7 GiB(.|\n)*engine\.gpu_memory_utilization"):
        engine.submit([asking("a")])
    engine.close()
    assert len(gpus.arguments) == 1


@pytest.mark.hazard("B12")
def test_processes_are_spawned_whatever_the_environment_says(
    gpus: FakeVllm, tiny: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_WORKER_MULTIPROC_METHOD", "fork")
    engine = vllm(tiny, tensor_parallel_size=2)
    engine.submit([])
    assert gpus.environments[0]["VLLM_WORKER_MULTIPROC_METHOD"] == "spawn"
    assert os.environ["VLLM_WORKER_MULTIPROC_METHOD"] == "fork"
    engine.close()


@pytest.mark.hazard("B12")
def test_this_process_never_touches_cuda(gpus: FakeVllm, tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    def touched() -> None:
        raise AssertionError("CUDA was touched")

    monkeypatch.setattr(torch.cuda, "_lazy_init", touched)
    engine: Any = vllm(tiny, tensor_parallel_size=2)
    assert engine.identity and engine.limits.context_length == 512
    assert engine.footprint.free == 81000 << 20
    assert engine.count_tokens(asking("a").messages) > 5
    assert answers(engine, [asking("a")])["a"].text == "Four."
    assert facts(engine)["device"] == "a GPU"
    engine.close()


VLLM_THAT_STARTS_A_PROCESS = """
import dataclasses, multiprocessing
from types import ModuleType
import sys

class LLM:
    def __init__(self, **arguments):
        child = multiprocessing.get_context("spawn").Process(target=print)
        child.start()
        child.join()
        if child.exitcode:
            raise RuntimeError("Engine core initialization failed. See root cause above.")

sys.modules["vllm.engine"] = ModuleType("vllm.engine")
arg_utils = sys.modules["vllm.engine.arg_utils"] = ModuleType("vllm.engine.arg_utils")
arg_utils.EngineArgs = dataclasses.make_dataclass("EngineArgs", ["model"])
"""
WITHOUT_A_GUARD = """
import sys
from pathlib import Path
from debate_local.engines.vllm_settings import Settings
from debate_local.engines.vllm_start import start
start(Settings({"model": "a"}), Path(sys.argv[1]))
"""


@pytest.mark.hazard("B12")
def test_a_script_without_a_main_guard_is_told_to_have_one(tmp_path: Path, own_cache: Path) -> None:
    (tmp_path / "vllm.py").write_text(VLLM_THAT_STARTS_A_PROCESS)
    (tmp_path / "script.py").write_text(WITHOUT_A_GUARD)
    done = subprocess.run(
        [sys.executable, tmp_path / "script.py", tmp_path / "vllm.log"], capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert 'put what it does under if __name__ == "__main__"' in done.stderr


# A place of its own on the machine


@pytest.mark.hazard("B15", "B23")
def test_engines_on_one_machine_have_ports_and_compile_caches_of_their_own(
    gpus: FakeVllm, tiny: str, own_cache: Path
) -> None:
    both = [vllm(tiny, tensor_parallel_size=2) for _ in range(2)]
    for engine in both:
        engine.submit([])
    first, second = gpus.environments
    assert abs(int(first["VLLM_PORT"]) - int(second["VLLM_PORT"])) >= 100
    folders = [
        [env[name] for name in ("VLLM_CACHE_ROOT", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")]
        for env in (first, second)
    ]
    assert not set(folders[0]) & set(folders[1])
    assert all(folder.startswith(str(own_cache)) for one in folders for folder in one)
    for engine in both:
        engine.close()
    # Whoever comes after them finds what the first has compiled.
    again = vllm(tiny)
    again.submit([])
    assert gpus.environments[2]["VLLM_CACHE_ROOT"] == first["VLLM_CACHE_ROOT"]
    again.close()


@pytest.mark.hazard("B15", "B23")
def test_ports_and_folders_that_the_user_set_stay(gpus: FakeVllm, tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_PORT", "45678")
    monkeypatch.setenv("VLLM_CACHE_ROOT", "/scratch/mine")
    engine = vllm(tiny)
    engine.submit([])
    (seen,) = gpus.environments
    assert (seen["VLLM_PORT"], seen["VLLM_CACHE_ROOT"]) == ("45678", "/scratch/mine")
    engine.close()


TAKEN = (
    "The server socket has failed to listen on any local network address. port: 20001, useIpv6: false, code: -98,"
    " name: EADDRINUSE, message: address already in use"
)


@pytest.mark.hazard("B15")
def test_a_port_that_somebody_took_in_between_is_a_start_with_others(gpus: FakeVllm, tiny: str) -> None:
    gpus.starts = [RuntimeError(TAKEN), None]
    engine = vllm(tiny, tensor_parallel_size=2)
    assert answers(engine, [asking("a")])["a"].text == "Four."
    first, second = gpus.environments
    assert first["VLLM_PORT"] != second["VLLM_PORT"]
    engine.close()


@pytest.mark.hazard("B15")
def test_starts_for_the_sake_of_ports_are_bounded_and_say_what_to_set(gpus: FakeVllm, tiny: str) -> None:
    gpus.starts = [RuntimeError(TAKEN)] * 9
    engine = vllm(tiny, tensor_parallel_size=2)
    with pytest.raises(EngineStartFailed, match=r"EADDRINUSE(.|\n)*VLLM_PORT"):
        engine.submit([asking("a")])
    assert len({seen["VLLM_PORT"] for seen in gpus.environments}) == len(gpus.environments) == 3
    engine.close()


# Which GPUs


@pytest.mark.hazard("B16")
@pytest.mark.parametrize("value", ["0", "0,1", "1", FIRST, f"{FIRST},{SECOND}", SLICE])
def test_gpus_that_are_here_are_taken_by_number_by_uuid_and_by_slice(
    gpus: FakeVllm, tiny: str, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    engine = vllm(tiny)
    assert answers(engine, [asking("a")])["a"].text == "Four."
    engine.close()


@pytest.mark.hazard("B16")
@pytest.mark.parametrize(
    ("value", "wanted", "says"),
    [
        ("GPU-abc", 1, f"'GPU-abc', which is not on this machine: nvidia-smi -L lists {FIRST}, {SLICE}, {SECOND}"),
        (FIRST[:12], 1, "whole UUID"),
        ("2", 1, "names '2', which is not on this machine"),
        (f"MIG-{FIRST}/9/0", 1, "which is not on this machine"),
        (f"{SLICE},{SLICE}", 2, "slices of GPUs, of which CUDA lets a process use one, and 2 GPUs are wanted"),
        ("none", 1, "'none' is neither a number nor"),
        ("0", 2, "shows 1 GPUs, and 2 are wanted"),
    ],
)
def test_gpus_that_are_not_here_are_said_before_vllm_starts(
    gpus: FakeVllm, tiny: str, monkeypatch: pytest.MonkeyPatch, value: str, wanted: int, says: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    engine = vllm(tiny, tensor_parallel_size=wanted)
    with pytest.raises(EngineStartFailed) as told:
        engine.submit([asking("a")])
    assert says in str(told.value)
    assert gpus.arguments == []
    engine.close()


def test_without_nvidia_smi_only_the_form_of_the_list_is_judged() -> None:
    check_visible_devices("GPU-abc,7", wanted=2, known=None)


@pytest.mark.hazard("B16")
def test_a_vllm_that_cannot_read_uuids_is_not_blamed_on_the_architecture(
    gpus: FakeVllm, tiny: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", SLICE)
    gpus.starts = [ValueError("Model architectures ['LlamaForCausalLM'] failed to be inspected.")]
    engine = vllm(tiny)
    with pytest.raises(EngineStartFailed, match="CUDA_VISIBLE_DEVICES: a vLLM that cannot tell GPUs by UUID wants"):
        engine.submit([asking("a")])
    engine.close()
