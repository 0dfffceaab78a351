"""A task that notes in a file which signals it and its child hear, and in which of its lives. Run: listener.py FILE

The child has a session of its own. Both go on after each signal, and end when the file FILE.end is there.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

_HEARD = ("TERM", "USR2")


def main(file: Path, role: str = "parent") -> None:
    """Listen until told to end."""
    life = os.environ.get("SLURM_RESTART_COUNT", "0")
    for name in _HEARD:
        signal.signal(signal.Signals[f"SIG{name}"], _noting(file, f"{role} {name} {life}"))
    children = []
    if role == "parent":
        children.append(subprocess.Popen([sys.executable, __file__, str(file), "child"], start_new_session=True))
    note(file, f"{role} listens {life}")
    while not file.with_suffix(".end").exists():
        time.sleep(0.05)
    for child in children:
        child.wait()


def note(file: Path, line: str) -> None:
    """Add a line in one write, so that those of several processes do not mix."""
    with file.open("ab", buffering=0) as stream:
        stream.write(f"{line}\n".encode())


def notes(file: Path) -> list[str]:
    """The lines so far."""
    with contextlib.suppress(FileNotFoundError):
        return file.read_text(encoding="utf-8").splitlines()
    return []


def _noting(file: Path, line: str) -> Callable[[int, FrameType | None], None]:
    return lambda number, frame: note(file, line)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
