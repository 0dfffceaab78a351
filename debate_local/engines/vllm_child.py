"""Begins a process of vLLM's. Run by path in place of the interpreter: vllm_child.py PARENT [OPTIONS] -c CODE [REST]

By themselves vLLM's processes outlive a parent that is killed, and keep its memory; and they die of the Ctrl-C and of a
scheduler's warning signals, which are meant for the parent: it wants to finish what is running. Here they get a
session of their own, ignore those signals, and end when the parent has ended. Standard library only: nothing else can
be imported before multiprocessing has set the import path.
"""

import os
import signal
import sys
import threading
import time


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    # First kindly, for the sake of its shared memory.
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(10)
    os.kill(os.getpid(), signal.SIGKILL)


def main(parent: int, arguments: list[str]) -> None:
    """Set the process up, then run the code that multiprocessing gave to the interpreter."""
    os.setsid()
    for name in ("SIGHUP", "SIGUSR1", "SIGUSR2"):
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    at = arguments.index("-c")
    code, sys.argv = arguments[at + 1], ["-c", *arguments[at + 2 :]]
    if "--multiprocessing-fork" in sys.argv:
        # Not so for multiprocessing's resource tracker: it cleans up after a parent that was killed.
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    exec(code, {"__name__": "__main__"})


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
