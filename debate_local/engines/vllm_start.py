"""How vLLM is started here, and ended: its settings and why, in silence, with one clear error when it does not start.

Knows machines, processes and vLLM's arguments; refuses to know requests. `EngineArgs` names are vLLM's own.
"""

import contextlib
import dataclasses
import difflib
import gc
import importlib.metadata
import json
import multiprocessing.spawn
import os
import re
import shlex
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from debate_local.core.chat import EngineFailed
from debate_local.engines.memory import GIB, Footprint, gpu, ram
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
    extra: Mapping[str, Any]

    def __post_init__(self) -> None:
        own = {option.name for option in dataclasses.fields(self)} | {"kv_cache_memory_bytes", "enable_lora"}
        if clash := sorted(own & set(self.extra)):
            raise ValueError(f"engine.extra may not set {', '.join(clash)}: there are options of the engine for that")
        if self.max_model_len is not None and self.max_model_len < 2:
            raise ValueError(f"engine.max_model_len must hold a prompt and a reply, got {self.max_model_len}")
        if "default" in self.adapters:
            raise ValueError('no adapter may be called "default": that is the model without one')
        for name, folder in self.adapters.items():
            if not (Path(folder).expanduser() / "adapter_config.json").is_file():
                raise ValueError(f"engine.adapters.{name}={folder!r} is no folder with an adapter_config.json")


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
        *("max_loras", "max_cpu_loras", "max_lora_rank", "shutdown_timeout", "disable_custom_all_reduce"),
    }
)


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


def dtype_of(options: Options, weights: Weights, config: Mapping[str, Any], cpu: bool) -> str:
    """The data type that "auto" means: bfloat16 on a CPU, the model's own half precision on a GPU."""
    if options.dtype != "auto" or cpu:
        return "bfloat16" if options.dtype == "auto" else options.dtype
    stated = str(config.get("dtype") or config.get("torch_dtype") or "")
    return stated if stated in ("bfloat16", "float16") else "auto"


def check_visible_devices(value: str | None, wanted: int) -> None:
    """Raise EngineStartFailed when CUDA_VISIBLE_DEVICES hides the GPUs that are wanted, or is no list of devices.

    Said before vLLM starts, since CUDA reports it as a missing or an old GPU.
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


# Settings


def settings_for(options: Options, weights: Weights, config: Mapping[str, Any], cpu: bool) -> Settings:
    """What to start vLLM with. What the user set is never changed. Raises EngineStartFailed when it cannot fit."""
    given = {
        "model": weights.path,
        "dtype": dtype_of(options, weights, config, cpu),
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
        **_adapter_arguments(options.adapters),
    }
    environment = {"VLLM_WORKER_MULTIPROC_METHOD": "spawn"}
    if "VLLM_NO_USAGE_STATS" not in os.environ:
        environment["VLLM_NO_USAGE_STATS"] = "1"  # nothing is reported to anybody unless the user says so
    why: list[str] = []
    if cpu:
        _choose_for_cpu(options, weights, given, ours, environment, why)
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
    ranks = [
        json.loads((Path(folder).expanduser() / "adapter_config.json").read_text()).get("r", 8)
        for folder in adapters.values()
    ]
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


# Start and end


def start(settings: Settings, log: Path) -> Any:
    """A running `vllm.LLM`. Everything that vLLM and its processes say goes to `log`. Raises EngineStartFailed."""
    since = log.stat().st_size if log.exists() else 0
    with in_silence(log, settings.environment):
        try:
            from vllm import LLM
            from vllm.engine.arg_utils import EngineArgs
        except ImportError as error:
            raise EngineStartFailed(
                f"vLLM cannot be imported ({error}): pip install 'debate-local[vllm]' on a machine with a GPU; the"
                " README says how to get the CPU build"
            ) from error
        known = [option.name for option in dataclasses.fields(EngineArgs) if not option.name.startswith("_")]
        arguments = _known_arguments(settings, known)
        try:
            return LLM(**arguments)
        except Exception as error:
            traceback.print_exc()  # into the log
            failure = _explain(error, log, since)
    # Raised out here, so that the exception holds no frames of a half-started engine, nor its processes.
    raise EngineStartFailed(failure)


def _known_arguments(settings: Settings, known: Sequence[str]) -> dict[str, Any]:
    arguments = {name: value for name, value in settings.arguments.items() if name in known}
    for name in settings.arguments.keys() - arguments.keys() - settings.ours:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]}?" if near else "the names are those of vllm.EngineArgs"
        raise EngineStartFailed(f"vLLM {version_of('vllm')} has no engine argument {name!r} (engine.extra): {hint}")
    return arguments


@contextlib.contextmanager
def in_silence(log: Path, environment: Mapping[str, str]) -> Iterator[None]:
    """While vLLM starts: our environment on top, and all that is said in `log`.

    Its loggers get a file handler by its own configuration file; prints and warnings of this process are redirected;
    child processes are started through a wrapper that sends their output to the log (and see vllm_child.py). Whatever
    vLLM leaves in the environment is taken out again: other child processes of ours shall not inherit its LD_PRELOAD.
    """
    before = dict(os.environ)
    python = multiprocessing.spawn.get_executable()
    configuration, wrapper = log.with_suffix(".logging.json"), log.with_suffix(".python.sh")
    try:
        os.environ.update(environment)
        if not before.keys() & {"VLLM_LOGGING_CONFIG_PATH", "VLLM_CONFIGURE_LOGGING"}:
            configuration.write_text(json.dumps(_log_configuration(log, before.get("VLLM_LOGGING_LEVEL", "INFO"))))
            os.environ["VLLM_LOGGING_CONFIG_PATH"] = str(configuration)
        child = shlex.join(
            [os.fsdecode(python), "-P", str(Path(__file__).with_name("vllm_child.py")), str(os.getpid())]
        )
        wrapper.write_text(f'#!/bin/sh\nexec {child} "$@" >>{shlex.quote(str(log))} 2>&1\n')
        wrapper.chmod(0o700)
        if os.access(wrapper, os.X_OK):  # not so on a file system mounted with noexec
            multiprocessing.set_executable(str(wrapper))
        with (
            log.open("a", buffering=1) as stream,
            contextlib.redirect_stdout(stream),
            contextlib.redirect_stderr(stream),
        ):
            yield
    finally:
        multiprocessing.set_executable(python)
        os.environ.clear()
        os.environ.update(before)
        configuration.unlink(missing_ok=True)
        wrapper.unlink(missing_ok=True)


def _log_configuration(log: Path, level: str) -> dict[str, Any]:
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"format": "%(asctime)s %(processName)s %(levelname)s %(name)s: %(message)s"}},
        "handlers": {"file": {"class": "logging.FileHandler", "filename": str(log), "formatter": "line"}},
        "loggers": {"vllm": {"handlers": ["file"], "level": level, "propagate": False}},
    }


_FAILURE = re.compile(r"\b(?:\w+\.)*\w*(?:Error|Exception|Interrupt)\b: .+")
_NO_CAUSE = re.compile(
    r"See root cause above|EngineDeadError|WorkerProc initialization failed|EngineCore failed to start"
)
_ADVICE = (
    (
        re.compile(r"memory|KV cache|OutOfMemory|': -9\b", re.IGNORECASE),
        "lower engine.max_model_len, engine.max_num_seqs or engine.gpu_memory_utilization (raise the last when the KV"
        " cache is what does not fit), set engine.kv_cache_gib, take a smaller or quantised model, or more GPUs with"
        " engine.tensor_parallel_size",
    ),
    (
        re.compile(r"bootstrapping phase"),
        'vLLM starts processes that import your script again: put what it does under if __name__ == "__main__":',
    ),
    (re.compile(r"max_model_len"), "set engine.max_model_len to what the model was made for, or less"),
    (re.compile(r"device type|CUDA|driver", re.IGNORECASE), "check nvidia-smi and CUDA_VISIBLE_DEVICES"),
)


def _explain(error: Exception, log: Path, since: int) -> str:
    """What went wrong, from the log of all processes: the parent only knows that a child failed."""
    said = last_failures(log, since)
    cause = "\n  ".join(said) if said else f"{type(error).__name__}: {error}"
    advice = next((advice for pattern, advice in _ADVICE if pattern.search(cause)), "")
    return f"vLLM did not start:\n  {cause}" + (f"\n{advice}" if advice else "")


def last_failures(log: Path, since: int, most: int = 3) -> list[str]:
    """The last different error messages in a log after byte `since`, without those that only point to others."""
    try:
        text = log.read_bytes()[since:].decode("utf-8", "replace")
    except OSError:
        return []
    found = [line for line in _FAILURE.findall(text) if not _NO_CAUSE.search(line)]
    return list(dict.fromkeys(found))[-most:]


def processes_of(llm: Any) -> list[psutil.Process]:
    """vLLM's engine process and all below it; none when the engine runs inside this process."""
    manager = getattr(getattr(llm.llm_engine.engine_core, "resources", None), "engine_manager", None)
    found: list[psutil.Process] = []
    for process in getattr(manager, "processes", []):
        with contextlib.suppress(psutil.NoSuchProcess):
            top = psutil.Process(process.pid)
            found += [top, *top.children(recursive=True)]
    return found


def stop(llm: Any, processes: Sequence[psutil.Process]) -> None:
    """End an engine, dead or alive, and every process of it."""
    with contextlib.suppress(Exception):
        # A dead engine may fail at this in many ways; the processes are ended below all the same.
        llm.llm_engine.engine_core.shutdown()
    left = [process for process in processes if process.is_running()]
    for process in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(left, timeout=10)
    gc.collect()
