"""How vLLM is started here, and ended: in silence, with one clear error when it does not start, and no process left.

Knows processes and logs; refuses to know requests, and why vLLM is started with what it is (vllm_settings.py).
"""

import contextlib
import dataclasses
import difflib
import gc
import json
import multiprocessing.spawn
import os
import re
import shlex
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from debate_local.engines.place import NoPlace, Place, claim
from debate_local.engines.silence import said_to
from debate_local.engines.vllm_settings import EngineStartFailed, Settings, version_of


class Started(NamedTuple):
    """A running `vllm.LLM`, and the place that it holds on this machine until that is released."""

    llm: Any
    place: Place


def start(settings: Settings, log: Path) -> Started:
    """Start vLLM in a place of its own, and in another one when somebody took a port of it.

    Everything that vLLM and its processes say goes to `log`. Raises EngineStartFailed.
    """
    tried: list[Place] = []
    try:
        while True:
            tried.append(_claimed())
            try:
                return Started(_llm(settings, _at_home(tried[-1]), log), tried.pop())
            except EngineStartFailed as failure:
                taken = _PORT_TAKEN.search(str(failure)) and "VLLM_PORT" not in os.environ
                if not taken or len(tried) == _MOST_STARTS:
                    raise
    finally:
        for place in tried:
            place.release()


_PORT_TAKEN = re.compile(r"EADDRINUSE|address already in use", re.IGNORECASE)
_MOST_STARTS = 3


def _claimed() -> Place:
    try:
        return claim()
    except NoPlace as error:
        raise EngineStartFailed(f"vLLM finds no place on this machine: {error}") from error


def _at_home(place: Place) -> dict[str, str]:
    """The variables that keep vLLM within a place; what the user has set stays."""
    folder = place.folder
    variables = {
        "VLLM_PORT": str(place.ports.start),
        "VLLM_CACHE_ROOT": str(folder),
        "TRITON_CACHE_DIR": str(folder / "triton"),
    }
    left = {name: value for name, value in variables.items() if name not in os.environ}
    # torch sets this one in every process that compiles, so that nobody knows whether it was the user.
    return {**left, "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor")}


def _llm(settings: Settings, place: Mapping[str, str], log: Path) -> Any:
    since = log.stat().st_size if log.exists() else 0
    with in_silence(log, {**place, **settings.environment}):
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
            llm = LLM(**arguments)
            # This reads the model's generation config, which transformers warns of; vLLM keeps what it read.
            llm.get_default_sampling_params()
            return llm
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
        with said_to(log):
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


# Some messages begin on the line below.
_FAILURE = re.compile(r"\b(?:\w+\.)*\w*(?:Error|Exception|Interrupt)\b:\s+\S.*")
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
        re.compile(r"An attempt has been made to start a new process before"),
        'vLLM starts processes that import your script again: put what it does under if __name__ == "__main__":',
    ),
    (_PORT_TAKEN, "another program takes the ports that vLLM wants: set VLLM_PORT to the first of a free range"),
    (
        re.compile(r"failed to be inspected|invalid literal for int\(\)[^\n]*(?:GPU|MIG)-|NVMLError"),
        "check nvidia-smi -L and CUDA_VISIBLE_DEVICES: a vLLM that cannot tell GPUs by UUID wants their numbers there",
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
    found = [" ".join(said.split()) for said in _FAILURE.findall(text) if not _NO_CAUSE.search(said)]
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


def batching_of(llm: Any) -> dict[str, Any]:
    """What vLLM has settled on of all that shapes its batches, and so the rounding of its replies."""
    config = llm.llm_engine.vllm_config
    found: dict[str, Any] = {}
    for part, names in _BATCHING.items():
        found |= {name: getattr(getattr(config, part, None), name, None) for name in names}
    return found


_BATCHING = {
    "scheduler_config": ("max_num_seqs", "max_num_batched_tokens", "enable_chunked_prefill", "async_scheduling"),
    "cache_config": ("enable_prefix_caching", "block_size", "num_gpu_blocks"),
}


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
