"""How processes share a folder: locks, names that no two of them give a file, and what the killed have left.

Locks are advisory, by flock: gone with their process. Where a file system has none, every lock is had.
"""

import contextlib
import fcntl
import os
import re
import secrets
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import psutil


def flock(file: IO[Any], kind: int) -> bool:
    """Whether the lock is ours, or there are none here."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Put several files of a folder in place with nobody else doing so in between; waits. No lock where there are none.

    The folder itself is locked, so that nothing is left in it.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def beside(path: Path) -> Path:
    """A name for a file on its way to its place: no two writers share one, on whatever hosts."""
    return path.with_name(f".{path.name}.{_host()}.{os.getpid()}.{secrets.token_hex(4)}")


def remove_left_overs(folder: Path) -> None:
    """Remove what writers of this host that were killed have left on its way."""
    for path in folder.glob(".*.*.*.*"):
        left = _BESIDE.fullmatch(path.name)
        if left and left["host"] == _host() and not is_alive(int(left["pid"])):
            path.unlink(missing_ok=True)


_BESIDE = re.compile(r"\..+\.(?:json|parquet)\.(?P<host>.+)\.(?P<pid>\d+)\.[0-9a-f]{8}")


def _host() -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "_", socket.gethostname()) or "unknown"


def is_alive(pid: int) -> bool:
    """Whether a process of this host runs under this number."""
    return bool(psutil.pid_exists(pid))
