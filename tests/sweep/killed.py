"""A sweep to be killed: it says in a shared byte which phase it is in, and dawdles there at random.

`python -m tests.sweep.killed OUTPUT PHASE_FILE SEED`. The sweep is always the same; the seed only changes the timing.
"""

import functools
import mmap
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

OVERRIDES = [
    "engine=scripted",
    "task=arithmetic",
    "limit=6",
    "protocol.agents=2,3",
    "max_samples=8",
    "engine.latency=0.002",
]
PHASES = ("poll", "commit", "flush", "rename")


def main(output: str, phase_file: str, seed: int) -> None:
    """Run the sweep with its phases marked."""
    import debate_local

    mark_phases(phase_file, seed)
    debate_local.run([*OVERRIDES, f"output={output}"], multirun=True)


def mark_phases(phase_file: str, seed: int) -> None:
    """Let the places where a kill may hurt say when they are entered."""
    from debate_local.engines import parts, scripted
    from debate_local.sweep import writer

    with Path(phase_file).open("r+b") as file:
        byte = mmap.mmap(file.fileno(), 1)
    draw = random.Random(seed)

    def marked(phase: int, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            byte[0] = phase + 1
            time.sleep(draw.expovariate(1000))
            try:
                return function(*args, **kwargs)
            finally:
                time.sleep(draw.expovariate(1000))
                byte[0] = 0

        return wrapper

    scripted.ScriptedEngine.poll = marked(0, scripted.ScriptedEngine.poll)  # type: ignore[method-assign]
    parts._OwnPart.add = marked(1, parts._OwnPart.add)  # type: ignore[method-assign]
    writer._TableWriter._write = marked(2, writer._TableWriter._write)  # type: ignore[method-assign]
    os.replace = marked(3, os.replace)
    # pathlib binds os.replace at each call in 3.11; nothing else needs to be changed for Path.replace.


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
