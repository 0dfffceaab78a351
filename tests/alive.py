"""Whether a process still runs."""

import contextlib

import psutil


def is_alive(pid: int) -> bool:
    """False when it is gone, or dead and only not yet buried by its parent."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    return False
