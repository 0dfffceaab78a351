"""What vLLM is started with here, and why: from the engine's options, the model's files and the machine.

Knows machines and vLLM's arguments, of which `EngineArgs` has the names; refuses to know processes and requests.
"""

import contextlib
import dataclasses
import importlib.metadata
import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from debate_local.core.chat import EngineFailed
from debate_local.engines.local import LocalModel, check_adapters
from debate_local.engines.memory import GIB, Footprint, gpu, gpu_capability, ram
from debate_local.engines.weights import Weights, context_length, weight_bytes


class EngineStartFailed(EngineFailed):
    """vLLM cannot start with these options on this machine; says what is wrong, and what to change."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the `vllm` engine, as given."""

    model: str
    revision: str | None
    dtype: str
    max_model_len: int | None
    gpu_memory_utilization: float | None
    kv_cache_gib: float | None
    tensor_parallel_size: int
    pipeline_parallel_size: int
    quantization: str | None
    enforce_eager: bool | None
    kv_cache_dtype: str
    max_num_seqs: int | None
    max_num_batched_tokens: int | None
    enable_prefix_caching: bool
    trust_remote_code: bool
    chat_template: str | None
    adapters: Mapping[str, str]
    seed: int
    batch_invariant: bool | None
    extra: Mapping[str, Any]

    @property
    def invariant(self) -> bool:
        """Whether batch-invariant mode is asked for, by the option or by vLLM's own variable."""
        told = os.environ.get("VLLM_BATCH_INVARIANT", "").strip() not in ("", "0")
        return told if self.batch_invariant is None else self.batch_invariant

    def __post_init__(self) -> None:
        own = {option.name for option in dataclasses.fields(self)} | {"kv_cache_memory_bytes", "enable_lora"}
        if clash := sorted(own & set(self.extra)):
            raise ValueError(f"engine.extra may not set {', '.join(clash)}: there are options of the engine for that")
        if self.max_model_len is not None and self.max_model_len < 2:
            raise ValueError(f"engine.max_model_len must hold a prompt and a reply, got {self.max_model_len}")
        check_adapters(self.adapters)


@dataclass(frozen=True, slots=True)
class Settings:
    """What vLLM is started with. arguments: of EngineArgs. environment: variables, set while it starts.

    ours: the arguments that we add on our own; a vLLM that does not know one does without. why: a line for each choice
    that the user did not make.
    """

    arguments: dict[str, Any]
    environment: dict[str, str] = field(default_factory=dict)
    ours: frozenset[str] = frozenset()
    why: tuple[str, ...] = ()


# Arguments that change how fast replies come, and not what they say (law 3 keeps them out of the identity).
SPEED = frozenset(
    {
        *(
            "tensor_parallel_size",
            "pipeline_parallel_size",
            "distributed_executor_backend",
            "disable_custom_all_reduce",
        ),
        *("gpu_memory_utilization", "kv_cache_memory_bytes", "block_size", "num_gpu_blocks_override", "swap_space"),
        *("max_num_seqs", "max_num_batched_tokens", "enable_chunked_prefill", "scheduling_policy", "async_scheduling"),
        *("enforce_eager", "compilation_config", "optimization_level", "performance_mode", "enable_prefix_caching"),
        *("load_format", "download_dir", "max_parallel_loading_workers", "use_tqdm_on_load", "disable_log_stats"),
        *("enable_sleep_mode", "sleep_mode_backend", "enable_cumem_allocator"),
        *("max_loras", "max_cpu_loras", "max_lora_rank", "shutdown_timeout", "disable_custom_all_reduce"),
    }
)


# Lets an engine keep its processes and give back its GPU's memory; NVIDIA's only, and a no-op on a CPU.
SLEEP_MODE = "enable_sleep_mode"


# Which machine


def cpu_build() -> bool:
    """True when the installed vLLM runs on the CPU only; told from its version, without importing it."""
    if sys.platform == "darwin" or os.environ.get("VLLM_TARGET_DEVICE") == "cpu":
        return True
    return "cpu" in version_of("vllm")


def version_of(package: str) -> str:
    """An installed version; vLLM's CPU build is another package, which `+cpu` tells. "" when there is none."""
    for name, suffix in ((package, ""), (f"{package}-cpu", "+cpu")):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(name) + suffix
    return ""


# CPU attention has no use for more, and a long context costs memory that a small machine lacks.
_CPU_CONTEXT = 8192


def context_of(options: Options, weights: Weights, cpu: bool) -> int | None:
    """How many tokens prompt and reply may have together; None where only vLLM can tell."""
    if options.max_model_len is not None:
        return options.max_model_len
    length = context_length(weights.path)
    return min(length or _CPU_CONTEXT, _CPU_CONTEXT) if cpu else length


def dtype_of(options: Options, config: Mapping[str, Any], cpu: bool) -> str:
    """The data type that "auto" means: bfloat16 on a CPU, the model's own half precision on a GPU."""
    if options.dtype != "auto" or cpu:
        return "bfloat16" if options.dtype == "auto" else options.dtype
    stated = str(config.get("dtype") or config.get("torch_dtype") or "")
    return stated if stated in ("bfloat16", "float16") else "auto"


def no_batch_invariance(cpu: bool) -> str | None:
    """Why vLLM has no batch-invariant mode on this machine, or None."""
    if cpu:
        return "vLLM has no batch-invariant mode on a CPU"
    oldest = gpu_capability()
    if oldest is not None and oldest < _LEAST_CAPABILITY:
        return f"batch-invariant mode wants NVIDIA GPUs of compute capability 8.0 or more, here there is {oldest}"
    return None


# Source: vLLM 0.32, "Batch Invariance", hardware requirements. AMD Instinct and Intel GPUs have it too.
_LEAST_CAPABILITY = 8.0


def seeds_reach(options: Options, cpu: bool) -> bool:
    """Whether vLLM can be given seeds: a CPU's generator cannot be wound back, which vLLM does after half a prompt."""
    return not (cpu and options.extra.get("enable_chunked_prefill"))


def check_visible_devices(value: str | None, wanted: int, known: Sequence[str] | None = None) -> None:
    """Raise EngineStartFailed when CUDA_VISIBLE_DEVICES hides the GPUs that are wanted, or is no list of devices.

    known: the UUIDs of this machine's GPUs and of their slices (GPU-..., MIG-...), None when they are not known. Said
    before vLLM starts, since CUDA reports it as a missing or an old GPU, and vLLM as an unknown architecture.
    """
    if value is None:
        return
    entries = [entry.strip() for entry in value.split(",")] if value.strip() else []
    strange = [entry for entry in entries if not re.fullmatch(r"\d+|(GPU|MIG)-[\w/-]+", entry)]
    if strange:
        raise EngineStartFailed(
            f"CUDA_VISIBLE_DEVICES={value!r} is no list of devices: {strange[0]!r} is neither a number nor GPU-... or"
            " MIG-...; set it to something like 0,1, or unset it"
        )
    if len(entries) < wanted:
        raise EngineStartFailed(
            f"CUDA_VISIBLE_DEVICES={value!r} shows {len(entries)} GPUs, and {wanted} are wanted"
            " (engine.tensor_parallel_size x engine.pipeline_parallel_size); show more or lower these"
        )
    if known is not None and (strange := [entry for entry in entries if not _is_here(entry, known)]):
        raise EngineStartFailed(
            f"CUDA_VISIBLE_DEVICES={value!r} names {strange[0]!r}, which is not on this machine: nvidia-smi -L lists"
            f" {', '.join(known)}. Name GPUs by number, from 0, or by the whole UUID"
        )
    if wanted > 1 and any(entry.startswith("MIG-") for entry in entries):
        raise EngineStartFailed(
            f"CUDA_VISIBLE_DEVICES={value!r} shows slices of GPUs, of which CUDA lets a process use one, and {wanted}"
            " GPUs are wanted (engine.tensor_parallel_size x engine.pipeline_parallel_size); show whole ones, or lower"
            " these to 1"
        )


def _is_here(entry: str, known: Sequence[str]) -> bool:
    if entry.isdecimal():
        return int(entry) < sum(uuid.startswith("GPU-") for uuid in known)
    return entry in known


# Settings


def settings_for(options: Options, model: LocalModel, cpu: bool, takes_turns: bool = False) -> Settings:
    """What to start vLLM with. What the user set is never changed. Raises EngineStartFailed when it cannot fit.

    takes_turns: other engines want the GPU in between.
    """
    given = {
        "model": model.weights.path,
        "dtype": dtype_of(options, model.config, cpu),
        "max_model_len": options.max_model_len,
        "gpu_memory_utilization": options.gpu_memory_utilization,
        "kv_cache_memory_bytes": None if options.kv_cache_gib is None else int(options.kv_cache_gib * GIB),
        "tensor_parallel_size": options.tensor_parallel_size,
        "pipeline_parallel_size": options.pipeline_parallel_size,
        "quantization": options.quantization,
        "enforce_eager": options.enforce_eager,
        "kv_cache_dtype": options.kv_cache_dtype,
        "max_num_seqs": options.max_num_seqs,
        "max_num_batched_tokens": options.max_num_batched_tokens,
        "enable_prefix_caching": options.enable_prefix_caching,
        "trust_remote_code": options.trust_remote_code,
        "seed": options.seed,
        **options.extra,
    }
    given = {name: value for name, value in given.items() if value is not None}
    ours: dict[str, Any] = {
        "scheduling_policy": "priority",
        "logprobs_mode": "raw_logprobs",
        "disable_log_stats": True,
        "use_tqdm_on_load": False,
        **_adapter_arguments(model.adapters),
    }
    # Whatever in this process has touched CUDA: a forked child could use it no more.
    environment = {"VLLM_WORKER_MULTIPROC_METHOD": "spawn"}
    if options.batch_invariant is not None:
        environment["VLLM_BATCH_INVARIANT"] = str(int(options.batch_invariant))
    if "VLLM_NO_USAGE_STATS" not in os.environ:
        environment["VLLM_NO_USAGE_STATS"] = "1"  # nothing is reported to anybody unless the user says so
    why: list[str] = []
    if takes_turns and SLEEP_MODE not in given and not cpu and gpu() is not None:
        ours[SLEEP_MODE] = True
        why.append(
            f"{SLEEP_MODE}=True: other models of this run want the GPU in between; waking is faster than loading"
        )
    if cpu:
        _choose_for_cpu(options, model.weights, given, ours, environment, why)
    ours = {name: value for name, value in ours.items() if name not in given}
    return Settings({**ours, **given}, environment, frozenset(ours), tuple(why))


def _choose_for_cpu(
    options: Options,
    weights: Weights,
    given: Mapping[str, Any],
    ours: dict[str, Any],
    environment: dict[str, str],
    why: list[str],
) -> None:
    """Add what a CPU-only build needs, with the reasons."""

    def choose(name: str, value: Any, reason: str) -> None:
        if name not in given:
            ours[name] = value
            why.append(f"CPU build: {name}={value}: {reason}")

    if options.dtype == "auto":
        why.append("CPU build: dtype=bfloat16: half the memory of float32, and what CPU kernels are made for")
    context = context_of(options, weights, cpu=True) or _CPU_CONTEXT
    choose("max_model_len", context, f"the model's own length, at most {_CPU_CONTEXT}")
    choose("enforce_eager", True, "compiling takes longer than most CPU runs")
    choose("enable_chunked_prefill", False, "a seeded request would kill the engine when its prompt is cut into chunks")
    choose("max_num_batched_tokens", max(context, 8192), "without chunks a whole prompt must fit one step")
    if "kv_cache_memory_bytes" not in given and "gpu_memory_utilization" not in given:
        if space := os.environ.get("VLLM_CPU_KVCACHE_SPACE"):
            why.append(f"CPU build: the KV cache has {space} GiB: VLLM_CPU_KVCACHE_SPACE says so")
        else:
            size = _cpu_kv_cache(weights)
            choose("kv_cache_memory_bytes", size, f"{size / GIB:.1f} GiB, of what the weights leave free")
    elif options.kv_cache_gib is not None:
        _require_memory(weights, options.kv_cache_gib)
    choose("gpu_memory_utilization", 0.1, "the KV cache has a fixed size; this share of RAM is not used up")
    if options.adapters:
        places = len(options.adapters) + 1
        reason = (
            "requests without an adapter take the weights of the last place when batched with others: it stays empty"
        )
        choose("max_loras", places, reason)
        if given.get("max_loras", places) < places:
            raise EngineStartFailed(f"engine.extra.max_loras must be at least {places} on the CPU: {reason}")
    if "VLLM_CPU_OMP_THREADS_BIND" not in os.environ and given["tensor_parallel_size"] == 1:
        cores = ",".join(str(core) for core in sorted(_allowed_cores()))
        environment["VLLM_CPU_OMP_THREADS_BIND"] = cores
        why.append(f"CPU build: threads on cores {cores}: all that this process may use")


def _allowed_cores() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def _adapter_arguments(adapters: Mapping[str, str]) -> dict[str, Any]:
    if not adapters:
        return {}
    ranks = [json.loads((Path(folder) / "adapter_config.json").read_text()).get("r", 8) for folder in adapters.values()]
    allowed = next((rank for rank in (8, 16, 32, 64, 128, 256, 320, 512) if rank >= max(ranks)), max(ranks))
    return {"enable_lora": True, "max_loras": len(adapters), "max_lora_rank": allowed}


# vLLM's own code in its three processes, measured on the CPU build.
_CPU_OVERHEAD = 2 * GIB
_LEAST_KV_CACHE, _MOST_KV_CACHE = GIB // 4, 4 * GIB


def _cpu_kv_cache(weights: Weights) -> int:
    """4 GiB, or what is left of the free memory."""
    free = psutil.virtual_memory().available
    left = free - weight_bytes(weights.path) - _CPU_OVERHEAD
    if left < _LEAST_KV_CACHE:
        raise EngineStartFailed(_too_little_memory(weights, _LEAST_KV_CACHE, free))
    return int(min(_MOST_KV_CACHE, left))


def _require_memory(weights: Weights, kv_cache_gib: float) -> None:
    free = psutil.virtual_memory().available
    if weight_bytes(weights.path) + kv_cache_gib * GIB + _CPU_OVERHEAD / 2 > free:
        raise EngineStartFailed(_too_little_memory(weights, int(kv_cache_gib * GIB), free))


def _too_little_memory(weights: Weights, kv_cache: int, free: int) -> str:
    parts = f"{weight_bytes(weights.path) / GIB:.1f} GiB of weights, {kv_cache / GIB:.1f} GiB of KV cache"
    return (
        f"too little memory: {parts} and about {_CPU_OVERHEAD / GIB:.0f} GiB for vLLM itself are needed,"
        f" {free / GIB:.1f} GiB are free; lower engine.kv_cache_gib or engine.max_model_len, take a smaller model, or"
        " end other processes"
    )


# What vLLM takes of a GPU when it is not told how much.
_GPU_SHARE = 0.92


def footprint_of(options: Options, weights: Weights, cpu: bool) -> Footprint:
    """What an engine takes, about: a share of each of its GPUs; on a CPU the weights, the KV cache and vLLM itself."""
    if not cpu:
        lower = "engine.gpu_memory_utilization"
        count = options.tensor_parallel_size * options.pipeline_parallel_size
        if (found := gpu(count)) is None:
            return Footprint("gpu", weight_bytes(weights.path) // count, None, lower)
        # vLLM refuses to start with less, even when engine.kv_cache_gib says that it will use less.
        return Footprint("gpu", int((options.gpu_memory_utilization or _GPU_SHARE) * found.total), found.free, lower)
    memory = ram()
    if options.kv_cache_gib is not None:
        kv_cache = options.kv_cache_gib * GIB
    elif options.gpu_memory_utilization is not None:
        kv_cache = options.gpu_memory_utilization * memory.total
    else:
        kv_cache = float(os.environ.get("VLLM_CPU_KVCACHE_SPACE") or _MOST_KV_CACHE / GIB) * GIB
    needed = int(weight_bytes(weights.path) + kv_cache + _CPU_OVERHEAD)
    return Footprint("cpu", needed, memory.free, "engine.kv_cache_gib")
