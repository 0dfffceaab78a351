"""Runs on vLLM, with vLLM's place taken: what is known before it is loaded, and what is stored of it."""

import json
from pathlib import Path

import pytest

import debate_local
from debate_local.sweep.compose import compose
from debate_local.sweep.options import OptionFault
from debate_local.sweep.plan import Plan, make_plan
from tests.engines.fake_vllm import FakeVllm
from tests.engines.tiny import save_tiny


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model folder: 512 tokens of context."""
    return str(save_tiny(tmp_path_factory.mktemp("tiny")))


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeVllm:
    """vLLM's build for the CPU."""
    return FakeVllm().install(monkeypatch)


def plan(tiny: str, *overrides: str) -> Plan:
    cells, _ = compose(
        ["engine=vllm", f"engine.model={tiny}", "task=arithmetic", "limit=1", "controls=false", *overrides]
    )
    return make_plan(cells)


@pytest.mark.hazard("B01", "B04")
def test_the_options_that_shape_batches_are_in_run_json(tiny: str) -> None:
    (run,) = plan(tiny, "engine.max_num_seqs=16", "engine.enable_prefix_caching=false", "sampling.max_tokens=64").runs
    stored = json.loads(json.dumps(run.record()))["engine"]
    assert (stored["max_num_seqs"], stored["enable_prefix_caching"], stored["batch_invariant"]) == (16, False, None)


@pytest.mark.hazard("B02")
def test_seeds_that_are_not_honoured_are_told_before_anything_runs(tiny: str) -> None:
    chunked = "engine.extra.enable_chunked_prefill=true"
    (told,) = plan(tiny, "sampling.max_tokens=64", chunked).notes
    assert "does not honour seeds" in told
    assert plan(tiny, "sampling.max_tokens=64").notes == []
    # A greedy agent needs none.
    assert not any(
        "seeds" in note for note in plan(tiny, "sampling.max_tokens=64", "sampling.temperature=0", chunked).notes
    )


@pytest.mark.hazard("B10")
@pytest.mark.parametrize("option", ["sampling.max_tokens=512", "engine.max_model_len=64"])
def test_a_reply_as_long_as_the_context_is_refused(tiny: str, option: str) -> None:
    with pytest.raises(OptionFault, match=r"leaves no room for a prompt: the context is (512|64) tokens"):
        plan(tiny, "sampling.max_tokens=64", option)


@pytest.mark.hazard("B22")
def test_every_sampling_value_is_in_run_json(tiny: str) -> None:
    (run,) = plan(tiny, "sampling.max_tokens=64", "sampling.temperature=0.3").runs
    assert json.loads(json.dumps(run.record()))["cast"][0]["sampling"] == {
        "temperature": 0.3,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "stop": [],
        "max_tokens": 64,
        "seed": None,
    }


@pytest.mark.hazard("B01")
def test_batch_invariance_that_cannot_be_is_told_by_plan(tiny: str) -> None:
    with pytest.raises(OptionFault, match=r"engine 'vllm': engine\.batch_invariant=true: .* on a CPU"):
        plan(tiny, "sampling.max_tokens=64", "engine.batch_invariant=true")


@pytest.mark.hazard("B25")
def test_the_hash_of_each_prompt_is_stored_with_its_turn(
    tiny: str, fake: FakeVllm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEBATE_LOCAL_CACHE", str(tmp_path / "cache"))
    words = [
        "engine=vllm",
        f"engine.model={tiny}",
        "engine.kv_cache_gib=0.1",
        "task=arithmetic",
        "sampling.max_tokens=9",
    ]
    (run,) = debate_local.run([*words, "limit=2", "controls=false", f"output={tmp_path / 'runs'}"]).runs
    first = run.turns.filter(run.turns["round"] == 0)
    # Three agents with one prompt, for each of two items.
    assert first["prompt_hash"].str.len_chars().to_list() == [16] * 6
    assert first.n_unique(["item_id", "prompt_hash"]) == first.n_unique("prompt_hash") == 2


def test_nothing_is_started_for_a_plan(tiny: str, fake: FakeVllm, tmp_path: Path) -> None:
    plan(tiny, "sampling.max_tokens=64", f"output={tmp_path}")
    assert fake.arguments == []
