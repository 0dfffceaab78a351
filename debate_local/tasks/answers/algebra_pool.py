"""A small pool of worker processes that do algebra (`algebra.py`). Knows nothing of what the expressions mean.

Started when first asked, as fresh processes (not forks: engines hold threads and GPUs). A worker that takes too long or
dies is replaced; what it was asked has no result then. Results are kept, and those that are awaited go first. The
workers end with this process, however it ends.
"""

import atexit
import functools
import itertools
import json
import os
import queue
import subprocess
import sys
import threading
from collections import OrderedDict
from concurrent.futures import Future
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

WORKERS = 2
_KEPT = 100_000
_START_SECONDS = 120.0
# Only for a worker that is stuck without using the processor; `algebra.CPU_SECONDS` ends all others.
_STUCK_SECONDS = 20.0
# The package may lie beside the script that was started, and be installed nowhere.
_PROGRAM = """\
import sys
sys.path.append(sys.argv[1])
from debate_local.tasks.answers.algebra import serve
serve(int(sys.argv[2]))
"""
_ROOT = str(Path(__file__).parents[3])

Asked = tuple[str, ...]
Result = str | bool | None


class AlgebraFailed(RuntimeError):
    """The worker processes cannot be started: the message says why."""


def simplified(latex: str) -> str | None:
    """`algebra.simplified`, in a worker; None also when it took too long."""
    found = _pool().ask(("simplified", latex))
    return found if isinstance(found, str) else None


def same(one: str, other: str) -> bool:
    """`algebra.same`, in a worker; False also when it took too long."""
    return _pool().ask(("same", one, other)) is True


def begin(latex: str) -> None:
    """Begin `simplified` without waiting: a later call finds it done, or under way."""
    _pool().begin(("simplified", latex))


@dataclass(order=True)
class _Job:
    """What stands in the queue. The same job may stand there twice, the second time as an urgent one."""

    urgency: int
    number: int
    asked: Asked = field(compare=False)
    result: "Future[Result]" = field(compare=False)


class AlgebraPool:
    """Workers behind one queue, and what they have found. Safe to use from any thread."""

    def __init__(self, workers: int = WORKERS) -> None:
        self._queue: queue.PriorityQueue[_Job] = queue.PriorityQueue()
        self._known: OrderedDict[Asked, Future[Result]] = OrderedDict()
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._closed = False
        self.workers = [_Worker() for _ in range(workers)]
        for worker in self.workers:
            threading.Thread(target=self._serve, args=(worker,), daemon=True, name="algebra").start()

    def ask(self, asked: Asked) -> Result:
        """The result, waited for. Raises AlgebraFailed when no worker can be started."""
        return self._put(asked, urgency=0).result()

    def begin(self, asked: Asked) -> None:
        """Have it done when nothing awaited is to do."""
        self._put(asked, urgency=1)

    def close(self) -> None:
        """End the workers. What is still asked has no result."""
        self._closed = True
        for worker in self.workers:
            worker.stop()

    def _put(self, asked: Asked, urgency: int) -> "Future[Result]":
        with self._lock:
            result = self._known.get(asked)
            if result is None:
                result = self._known[asked] = Future()
                if len(self._known) > _KEPT:
                    self._known.popitem(last=False)
            else:
                self._known.move_to_end(asked)
                if urgency or result.running() or result.done():
                    return result
        self._queue.put(_Job(urgency, next(self._numbers), asked, result))
        return result

    def _serve(self, worker: "_Worker") -> None:
        while True:
            job = self._queue.get()
            with self._lock:
                if job.result.running() or job.result.done():
                    continue
                job.result.set_running_or_notify_cancel()
            if self._closed:
                job.result.set_result(None)
                continue
            try:
                job.result.set_result(worker.do(job.asked))
            except Exception as error:
                with self._lock:
                    # A later start may succeed.
                    self._known.pop(job.asked, None)
                job.result.set_exception(error)


class _Worker:
    """One process, started when first needed and again after each end."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None

    def do(self, asked: Asked) -> Result:
        """What the process answers; None when it ends instead."""
        if self._pipe is None or self._process is None or self._process.poll() is not None:
            self._pipe = self._start()
        try:
            self._pipe.send_bytes(json.dumps(asked).encode())
            if self._pipe.poll(_STUCK_SECONDS):
                found: Result = json.loads(self._pipe.recv_bytes())
                return found
        except (EOFError, OSError):
            pass
        self.stop()
        return None

    def stop(self) -> None:
        """Kill the process, if there is one."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        if self._pipe is not None:
            self._pipe.close()
        self._process = self._pipe = None

    def _start(self) -> Connection:
        ours, theirs = Pipe()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, _ROOT, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
            )
        try:
            if ours.poll(_START_SECONDS) and ours.recv_bytes() == b"ready":
                return ours
        except (EOFError, OSError):
            pass
        self._process.kill()
        told = self._process.communicate()[1].decode(errors="replace").strip().rpartition("\n")[2]
        raise AlgebraFailed(
            f"a process that reads mathematical answers could not be started ({told or 'it did not answer'}); is "
            "math-verify installed? pip install 'math-verify[antlr4_9_3]'"
        )


@functools.cache
def _pool() -> AlgebraPool:
    pool = AlgebraPool()
    atexit.register(pool.close)
    return pool


# A child that forks off has no threads of ours, and must leave our workers alone.
os.register_at_fork(after_in_child=lambda: _pool.cache_clear())
