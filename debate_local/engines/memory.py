"""What an engine takes on its device, and what is free there. Asks the operating system and nvidia-smi, never CUDA: a
process that has touched CUDA can start no workers of its own.
"""

import os
import re
import subprocess
from dataclasses import dataclass
from typing import NamedTuple

import psutil

GIB = 1 << 30
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes that an engine holds on its device while it is open, and bytes that are free there now.

    free: None when it cannot be told. lower: the engine's options that make `needed` smaller.
    """

    device: str
    needed: int
    free: int | None
    lower: str = ""


class Memory(NamedTuple):
    """Of one device, in bytes."""

    total: int
    free: int


def ram() -> Memory:
    """The machine's memory; free is what can be had without swapping."""
    found = psutil.virtual_memory()
    return Memory(found.total, found.available)


def gpu(count: int = 1) -> Memory | None:
    """The least of the first `count` GPUs that CUDA_VISIBLE_DEVICES shows; None when nvidia-smi cannot tell."""
    said = _said(["--query-gpu=index,uuid,memory.total,memory.free", "--format=csv,noheader,nounits"])
    return None if said is None else least(said, os.environ.get("CUDA_VISIBLE_DEVICES"), count)


def gpu_capability() -> float | None:
    """The lowest compute capability of this machine's GPUs (8.0, 9.0, ...); None when nvidia-smi cannot tell."""
    said = _said(["--query-gpu=compute_cap", "--format=csv,noheader"])
    found = re.findall(r"^\s*(\d+\.\d+)\s*$", said or "", re.MULTILINE)
    return min(map(float, found), default=None)


def gpu_names() -> list[str] | None:
    """The UUIDs of this machine's GPUs (GPU-...) and of their slices (MIG-...); None when nvidia-smi cannot tell."""
    return re.findall(r"UUID: ((?:GPU|MIG)-[\w/-]+)", _said(["-L"]) or "") or None


def _said(options: list[str]) -> str | None:
    try:
        return subprocess.run(["nvidia-smi", *options], capture_output=True, text=True, timeout=10, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None


def least(said: str, visible: str | None, count: int) -> Memory | None:
    """`gpu` on what nvidia-smi said: index, UUID, total and free MiB a line. visible: CUDA_VISIBLE_DEVICES."""
    rows = [re.split(r",\s*", line.strip()) for line in said.splitlines() if line.strip()]
    try:
        known = [(index, uuid, Memory(int(total) * _MIB, int(free) * _MIB)) for index, uuid, total, free in rows]
    except ValueError:  # `[N/A]`, or a message instead of a table
        return None
    wanted = [index for index, _, _ in known] if visible is None else [one.strip() for one in visible.split(",")]
    found = []
    for name in wanted[:count]:
        # A UUID may be cut short; a slice of a GPU (MIG-...) is in no list.
        memory = next((m for index, uuid, m in known if name and (name == index or uuid.startswith(name))), None)
        if memory is None:
            return None
        found.append(memory)
    if len(found) < count:
        return None
    return Memory(min(memory.total for memory in found), min(memory.free for memory in found))
