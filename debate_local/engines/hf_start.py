"""How a model is loaded into transformers here, and how much fits beside it: device, data type, memory, adapters.

Knows machines and transformers' loading; refuses to know requests. Nothing heavy is imported before it is needed.
"""

import gc
import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from debate_local.core.chat import EngineFailed
from debate_local.engines.local import LocalModel, check_adapters
from debate_local.engines.memory import GIB
from debate_local.engines.silence import said_to
from debate_local.engines.weights import Weights, context_length, weight_bytes

DTYPES = ("auto", "bfloat16", "float16", "float32")


class LoadFailed(EngineFailed):
    """transformers cannot run this model with these options on this machine; says what is wrong, and what to change."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the `hf` engine, as given. Raises ValueError for what cannot be."""

    model: str
    revision: str | None
    dtype: str
    device: str
    max_model_len: int | None
    batch_tokens: int | None
    attn_implementation: str | None
    trust_remote_code: bool
    chat_template: str | None
    adapters: Mapping[str, str]

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise ValueError(f"engine.dtype={self.dtype!r} is none of: {', '.join(DTYPES)}")
        if not re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", self.device):
            raise ValueError(f"engine.device={self.device!r} is none of: auto, cuda, cuda:<number>, mps, cpu")
        if self.max_model_len is not None and self.max_model_len < 2:
            raise ValueError(f"engine.max_model_len must hold a prompt and a reply, got {self.max_model_len}")
        if self.batch_tokens is not None and self.batch_tokens < 2:
            raise ValueError(f"engine.batch_tokens must hold a prompt and a reply, got {self.batch_tokens}")
        check_adapters(self.adapters)
        if self.adapters and importlib.util.find_spec("peft") is None:
            raise ValueError("engine.adapters needs the package peft: pip install peft, or use engine=vllm")


# What is known without the model


def context_of(options: Options, weights: Weights) -> int | None:
    """How many tokens prompt and reply may have together; None where neither the options nor config.json say."""
    length, wanted = context_length(weights.path), options.max_model_len
    if wanted is not None and length is not None and wanted > length:
        raise ValueError(f"engine.max_model_len={wanted} is more than the {length} tokens that {weights.name} can hold")
    return length if wanted is None else wanted


def dtype_of(options: Options, config: Mapping[str, Any]) -> str:
    """The data type that "auto" means: the model's own half precision, bfloat16 otherwise.

    Always bfloat16 on a CPU, which is slow with float16.
    """
    if options.dtype != "auto":
        return options.dtype
    stated = str(config.get("dtype") or config.get("torch_dtype") or "")
    return "float16" if stated == "float16" and device_of(options.device) != "cpu" else "bfloat16"


def device_of(option: str) -> str:
    """The device that "auto" means: a GPU (cuda, mps) where torch finds one, the CPU otherwise."""
    if option != "auto":
        return option
    import torch

    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


# Memory


def free_bytes(device: str) -> int:
    """What tensors may still take on a device, in bytes."""
    import torch

    if device.startswith("cuda"):
        free: int = torch.cuda.mem_get_info(device)[0]
        return free + int(torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device))
    if device == "mps":
        return int(torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory())
    return int(psutil.virtual_memory().available)


def release(device: str) -> None:
    """Give back memory that nothing refers to any more."""
    import torch

    gc.collect()
    if device.startswith("cuda"):
        torch.cuda.empty_cache()
    elif device == "mps":
        torch.mps.empty_cache()


def is_out_of_memory(error: BaseException) -> bool:
    """True for the ways in which torch says on a CPU, MPS or CUDA that memory is at an end."""
    import torch

    return isinstance(error, torch.OutOfMemoryError | MemoryError) or bool(_NO_MEMORY.search(str(error)))


_NO_MEMORY = re.compile(r"out of memory|can't allocate memory|not enough memory", re.IGNORECASE)


@dataclass(slots=True)
class Room:
    """How many replies may be decoded together.

    rows: at most. capacity: what they may cost together, in tokens (rows times the longest) when by_tokens, else in
    bytes. kv_bytes: a token's keys and values. prompt_bytes: what reading a token of a prompt takes for a moment.
    row_bytes: what choosing a row's next token takes.
    """

    rows: int
    capacity: float
    by_tokens: bool
    kv_bytes: int
    prompt_bytes: int
    row_bytes: int

    def holds(self, rows: int, longest: int, prompt: int) -> bool:
        """Whether so many rows fit. longest: tokens of prompt and reply, prompt: of the prompt, in the longest row."""
        return rows <= self.rows and self._cost(rows, longest, prompt) <= self.capacity

    def halve(self, rows: int, longest: int, prompt: int) -> None:
        """These did not fit: half as many shall, or more that are shorter."""
        self.capacity = min(self.capacity, self._cost(rows, longest, prompt)) / 2

    def _cost(self, rows: int, longest: int, prompt: int) -> float:
        if self.by_tokens:
            return rows * longest
        # Keys and values are copied as they grow, and repeated for grouped heads, one layer at a time.
        kept = 1.5 * longest * self.kv_bytes
        read = prompt * self.prompt_bytes + 6 * prompt * prompt
        return rows * (kept + read + self.row_bytes)


# More rows make a CPU no faster, and lose more when the process is killed.
_MOST_ROWS_CPU, _MOST_ROWS = 64, 256
_PROBE = 8


def _measured(network: Any, device: str, batch_tokens: int | None) -> Room:
    """Run the network on a few tokens, which shows early that it runs, and see what a token takes."""
    import torch
    from transformers import DynamicCache

    cache = DynamicCache(config=network.config)
    with torch.no_grad():
        ids = torch.zeros((1, _PROBE), dtype=torch.long, device=device)
        logits = network(input_ids=ids, past_key_values=cache, use_cache=True).logits
    tensors = [getattr(layer, name, None) for layer in cache.layers for name in ("keys", "values")]
    config = network.config.get_text_config()
    hidden = int(getattr(config, "hidden_size", 4096))
    inner = int(getattr(config, "intermediate_size", None) or 4 * hidden)
    cpu = device == "cpu"
    return Room(
        # Whoever gives a number of tokens wants that to decide.
        rows=sys.maxsize if batch_tokens is not None else _MOST_ROWS_CPU if cpu else _MOST_ROWS,
        capacity=free_bytes(device) * (0.5 if cpu else 0.7) if batch_tokens is None else batch_tokens,
        by_tokens=batch_tokens is not None,
        kv_bytes=sum(tensor.nbytes for tensor in tensors if tensor is not None) // _PROBE,
        prompt_bytes=logits.element_size() * (8 * hidden + 4 * inner),
        # Some five copies in float32: log-probabilities, narrowed scores, noise.
        row_bytes=20 * logits.shape[-1],
    )


def weights_in_memory(model: LocalModel, dtype: str) -> int:
    """Bytes that the weights take once loaded."""
    stored = str(model.config.get("dtype") or model.config.get("torch_dtype") or "bfloat16")
    # A quantised model stays as small as its files.
    wider = dtype == "float32" and stored != "float32" and "quantization_config" not in model.config
    return weight_bytes(model.weights.path) * (2 if wider else 1)


def _require_memory(model: LocalModel, dtype: str, device: str) -> None:
    needed, free = weights_in_memory(model, dtype), free_bytes(device)
    if needed > free:
        raise LoadFailed(
            f"too little memory on {device}: {needed / GIB:.1f} GiB of weights in {dtype} are needed,"
            f" {free / GIB:.1f} GiB are free; {_LOWER}"
        )


_LOWER = (
    "choose engine.dtype=bfloat16, a smaller or quantised model, another engine.device or, over several GPUs,"
    " engine=vllm; or end other processes"
)


# Loading


class Loaded(NamedTuple):
    """A network on its device, with its adapters, and the room beside it."""

    network: Any
    room: Room


def load(options: Options, model: LocalModel, dtype: str, device: str, log: Path) -> Loaded:
    """Load a model and try it. All that transformers says goes to `log`. Raises LoadFailed."""
    _require_device(device)
    _require_memory(model, dtype, device)
    with said_to(log):
        try:
            network = _loaded(options, model, dtype, device)
            return Loaded(network, _measured(network, device, options.batch_tokens))
        except LoadFailed:
            raise
        except Exception as error:
            # Files of others may make transformers and torch raise anything.
            traceback.print_exc()  # into the log
            failure = _explain(error, model.weights)
    # Raised out here, so that the exception holds no frames of a half-loaded model.
    release(device)
    raise LoadFailed(failure)


def _require_device(device: str) -> None:
    import torch

    if device.startswith("cuda"):
        number, count = int(device.partition(":")[2] or 0), torch.cuda.device_count()
        if number >= count:
            raise LoadFailed(
                f"engine.device={device}, but torch {torch.__version__} sees {count} CUDA devices: check nvidia-smi,"
                " CUDA_VISIBLE_DEVICES and torch's build, or use engine.device=cpu"
            )
    elif device == "mps" and not torch.backends.mps.is_available():
        raise LoadFailed("engine.device=mps, but torch finds no Apple GPU; use engine.device=cpu")


def _loaded(options: Options, model: LocalModel, dtype: str, device: str) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    # Quantised weights must be put in their place while they are read, which takes accelerate.
    quantised = "quantization_config" in model.config
    network = AutoModelForCausalLM.from_pretrained(
        model.weights.path,
        dtype=getattr(torch, dtype),
        attn_implementation=options.attn_implementation,
        trust_remote_code=options.trust_remote_code,
        device_map={"": device} if quantised else None,
    )
    if "past_key_values" not in inspect.signature(network.forward).parameters or network.config.is_encoder_decoder:
        raise LoadFailed(
            f"engine hf runs decoders with a key-value cache, and {type(network).__name__} is none; use engine=vllm"
        )
    network = network.eval() if quantised else network.to(device).eval()
    for name, folder in model.adapters.items():
        try:
            network.load_adapter(folder, adapter_name=name)
        except Exception as error:
            raise LoadFailed(
                f"engine.adapters.{name} does not fit {model.weights.name}, or is damaged: {_brief(error)}"
            ) from error
    return network


def use_adapter(network: Any, name: str, adapters: Mapping[str, str]) -> None:
    """Let a network that has adapters speak with one of them, or as "default" without."""
    if not adapters:
        return
    if name == "default":
        network.disable_adapters()
    else:
        network.enable_adapters()
        network.set_adapter(name)


_ADVICE = (
    (re.compile(r"trust_remote_code"), "set engine.trust_remote_code=true if you trust the code in the model's folder"),
    (re.compile(r"does not recognize|Unrecognized"), "a newer transformers may know it, or engine=vllm"),
    (
        re.compile(r"attn_implementation|attention implementation|flash", re.IGNORECASE),
        "leave engine.attn_implementation out",
    ),
    (_NO_MEMORY, _LOWER),
    (re.compile(r"[Ss]afetensor|header|pickle|EOF"), "a file is damaged or cut off: get the model anew"),
)


def _explain(error: Exception, weights: Weights) -> str:
    said = _brief(error)
    advice = next((f"\n{advice}" for pattern, advice in _ADVICE if pattern.search(f"{type(error)} {said}")), "")
    return f"transformers did not load {weights.name}:\n  {said}{advice}"


def _brief(error: Exception, most: int = 600) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:most]}{'...' if len(text) > most else ''}"
