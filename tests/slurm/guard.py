"""Runs the daemons of one test cluster, and ends them and all that they started. Run by path: guard.py PARENT FOLDER

Daemons and jobs outlive a parent that is killed. So this process stands above them: when it is told to end, when its
parent is gone or a daemon has ended, nothing of the cluster is left. Slurm detaches each job from its daemon; this
process is the one that adopts such orphans, so all of them stay below it, whatever session they are in.
"""

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

import psutil

_PR_SET_CHILD_SUBREAPER = 36


class _Ended(Exception):
    """Somebody wants the cluster to end."""


def main(parent: int, folder: Path) -> None:
    """Start the daemons, wait for a reason to end, and end everything."""
    if ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError("this kernel lets nobody adopt orphans: jobs could outlive the cluster")
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is the parent's matter
    daemons: list[int] = []
    try:
        for name, command in _commands(folder):
            with (folder / f"{name}.out").open("wb") as said:
                daemons.append(subprocess.Popen(command, stdout=said, stderr=said).pid)
        while os.getppid() == parent and not set(daemons) & set(_buried()):
            time.sleep(0.1)
    except _Ended:
        pass
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _end_all(daemons)
        if os.getppid() != parent:
            shutil.rmtree(folder, ignore_errors=True)  # its owner cannot do it any more


def _end(number: int, frame: FrameType | None) -> None:
    raise _Ended


def _commands(folder: Path) -> list[tuple[str, list[str]]]:
    """The daemons, each in the foreground."""
    munge = ["munged", "--foreground", "--force", "--num-threads=2"]
    for option in ("key-file", "socket", "pid-file", "log-file", "seed-file"):
        munge.append(f"--{option}={folder / 'munge'}.{option.removesuffix('-file')}")
    configuration = str(folder / "slurm.conf")
    return [
        ("munged", munge),
        ("slurmctld", ["slurmctld", "-D", "-f", configuration]),
        ("slurmd", ["slurmd", "-D", "-f", configuration]),
    ]


def _buried() -> list[int]:
    """The children, born or adopted, that have ended since the last call."""
    ended: list[int] = []
    with contextlib.suppress(ChildProcessError):
        while pid := os.waitpid(-1, os.WNOHANG)[0]:
            ended.append(pid)
    return ended


def _end_all(daemons: list[int]) -> None:
    """The daemons first, so that nothing new begins; then whatever is left, until nothing is."""
    for pid in reversed(daemons):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    kind_until = time.monotonic() + 1.0
    while left := psutil.Process().children(recursive=True):
        for process in left:
            if process.pid not in daemons or time.monotonic() > kind_until:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
        time.sleep(0.02)
        _buried()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
