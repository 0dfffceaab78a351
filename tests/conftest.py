"""What all tests share: one vLLM engine and one vLLM server a test run, each started when a test first asks for it."""

import importlib.util
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from debate_local.core.chat import Engine
from tests.engines.real_server import Server, serving

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


@pytest.fixture(scope="session")
def opinionated_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SmolLM2 with traps: a generation_config.json of strong opinions, and a tokenizer that puts a BOS before any text.

    An engine that leaves a sampling field out, or that tokenises a rendered prompt again, falls into one.
    """
    from debate_local.engines.weights import WeightsMissing, resolve

    try:
        plain = Path(resolve("smollm2-135m-instruct").path)
    except WeightsMissing as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("opinionated")
    for file in plain.iterdir():
        changed = folder / file.name
        if file.name == "generation_config.json":
            changed.write_text(json.dumps({**json.loads(file.read_bytes()), **_OPINIONS}))
        elif file.name == "tokenizer.json":
            tokenizer = json.loads(file.read_bytes())
            tokenizer["post_processor"] = _BOS_FIRST
            changed.write_text(json.dumps(tokenizer))
        else:
            _link(file, changed)
    return folder


_OPINIONS = {"do_sample": True, "repetition_penalty": 1.3, "top_k": 5, "temperature": 0.1}
_BOS = "<|im_start|>"
_BOS_FIRST = {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": _BOS, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
    "special_tokens": {_BOS: {"id": _BOS, "ids": [1], "tokens": [_BOS]}},
}


def _link(file: Path, to: Path) -> None:
    """A hard link where the file system can, a symbolic one elsewhere: the weights are not copied."""
    try:
        os.link(file, to)
    except OSError:
        to.symlink_to(file)


@pytest.fixture(scope="session")
def vllm_server_starting(opinionated_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """`vllm_server`, for those who have something to do while it starts."""
    if importlib.util.find_spec("vllm") is None:
        pytest.skip("vLLM is not installed")
    log = tmp_path_factory.mktemp("server") / "vllm.log"
    with serving(opinionated_folder, log, "--dtype", "float32") as server:
        yield server


@pytest.fixture(scope="session")
def vllm_server(vllm_server_starting: Server) -> str:
    """The base URL of a real vLLM server of the opinionated folder, in float32, with 2048 tokens of context."""
    return vllm_server_starting.ready()
