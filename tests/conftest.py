"""What all tests share: one vLLM engine a test run, loaded when the first test asks for it."""

import importlib.util
from collections.abc import Iterator

import pytest

from debate_local.core.chat import Engine

pytest_plugins = ["tests.honesty"]


@pytest.fixture(scope="session")
def vllm_engine() -> Iterator[Engine]:
    """Real vLLM with SmolLM2: 2048 tokens of context, 1 GiB of KV cache. Cancel what you do not await."""
    if importlib.util.find_spec("vllm") is None:
        pytest.skip("vLLM is not installed")
    from debate_local.engines.vllm import vllm
    from debate_local.engines.weights import WeightsMissing

    try:
        engine = vllm(max_model_len=2048, kv_cache_gib=1)
    except WeightsMissing as error:
        pytest.skip(str(error))
    yield engine
    engine.close()
