"""Workers on one machine: a process a shard, so many at once, each with GPUs or cores of its own.

A worker that dies is started again a bounded number of times; it goes on from its cache. No worker's end ends another.
"""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from debate_local.sweep import machine
from debate_local.sweep.frozen import FrozenPlan
from debate_local.sweep.options import OptionFault
from debate_local.sweep.plan import Plan
from debate_local.sweep.shards import Shard

_POLL_SECONDS = 0.2
# After TERM a worker stores what it has and closes its engine; then it is killed.
_GRACE_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Place:
    """Where a worker runs: its GPUs by name, its cores."""

    gpus: tuple[str, ...] = ()
    cores: tuple[int, ...] = ()

    def environment(self) -> dict[str, str]:
        """What a worker is told of its place."""
        found = {"CUDA_VISIBLE_DEVICES": ",".join(self.gpus)} if self.gpus else {}
        return found | ({"OMP_NUM_THREADS": str(len(self.cores))} if self.cores else {})


@dataclass(frozen=True, slots=True)
class LocalSettings:
    """shards: None for one a worker. workers: None for one a GPU group (one on a machine without a GPU).

    gpus: names as in CUDA_VISIBLE_DEVICES; None for all that there are. max_restarts: of one shard.
    """

    shards: int | None = None
    workers: int | None = None
    gpus: Sequence[str] | None = None
    max_restarts: int = 2


def places(plan: Plan, settings: LocalSettings) -> list[Place]:
    """One place a worker: GPU groups of tensor x pipeline parallel size, or even shares of the cores.

    Raises OptionFault for more workers than there is room for.
    """
    gpus = list(_visible_gpus() if settings.gpus is None else settings.gpus)
    cores = sorted(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1))
    if settings.workers is not None and settings.workers < 1:
        raise OptionFault(f"hydra.launcher.workers must be at least 1, got {settings.workers}")
    if gpus:
        size = max(_gpus_an_engine(run.cell.engine.options) for run in plan.runs)
        room = len(gpus) // size
        wanted = room if settings.workers is None else settings.workers
        if wanted > room or not room:
            raise OptionFault(
                f"{wanted or 1} workers of {size} GPUs (tensor x pipeline parallel) do not fit on {len(gpus)} GPUs "
                f"({', '.join(gpus)}): at most {room}"
            )
        return [Place(gpus=tuple(gpus[n * size : (n + 1) * size])) for n in range(wanted)]
    workers = settings.workers or 1
    if workers == 1:
        return [Place()]
    if workers > len(cores):
        raise OptionFault(f"hydra.launcher.workers={workers} is more than the {len(cores)} cores of this machine")
    return [Place(cores=tuple(cores[n::workers])) for n in range(workers)]


def _visible_gpus() -> list[str]:
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        return [name for name in given.split(",") if name.strip()]
    return [str(number) for number in range(len(machine.hardware()["gpus"]))]


def _gpus_an_engine(options: Mapping[str, object]) -> int:
    sizes = (options.get(f"{kind}_parallel_size", 1) for kind in ("tensor", "pipeline"))
    tensor, pipeline = (size if isinstance(size, int) else 1 for size in sizes)
    return tensor * pipeline


@dataclass
class _Worker:
    shard: Shard
    place: Place
    process: "subprocess.Popen[bytes]"
    log: Path


@dataclass
class Workers:
    """Runs shards of a frozen plan. on_look is called several times a second; on_event is told of starts and ends."""

    frozen: FrozenPlan
    at: Sequence[Place]
    max_restarts: int = 2
    retry_failed: bool = False
    on_look: Callable[[], None] = lambda: None
    on_event: Callable[[str], None] = lambda text: None
    _running: list[_Worker] = field(default_factory=list)

    def run(self, shards: Sequence[Shard]) -> list[str]:
        """Run them all and return what is missing and why, a line a shard. Ctrl-C ends all workers, then is let go."""
        waiting, restarts, problems = deque(shards), dict.fromkeys((s.number for s in shards), 0), []
        free = deque(self.at)
        try:
            while waiting or self._running:
                while waiting and free:
                    self._running.append(self._start(waiting.popleft(), free.popleft()))
                time.sleep(_POLL_SECONDS)
                self.on_look()
                for worker in [w for w in self._running if w.process.poll() is not None]:
                    self._running.remove(worker)
                    free.append(worker.place)
                    if (code := worker.process.returncode) == 0:
                        continue
                    number = worker.shard.number
                    if code < 0 and restarts[number] < self.max_restarts:
                        restarts[number] += 1
                        self.on_event(f"shard {number}: {_ended(code)}; it is started again ({restarts[number]})")
                        waiting.append(worker.shard)
                    else:
                        problems.append(
                            f"shard {number}: {_ended(code)}. {_last_words(worker.log)}Its log: {worker.log}"
                        )
        finally:
            self._end_all()
        return problems

    def _start(self, shard: Shard, place: Place) -> _Worker:
        folder = self.frozen.folder
        log = folder / "logs" / f"worker-{shard.name}-{time.strftime('%Y%m%d-%H%M%S')}.log"
        command = [sys.executable, "-m", "debate_local.cli", "work", str(folder.absolute())]
        command += ["--shard", f"{shard.number}/{shard.count}", *(["--retry-failed"] if self.retry_failed else [])]
        with log.open("ab") as output:
            output.write(f"{shlex.join(command)}\n".encode())
            output.flush()
            process = subprocess.Popen(
                command,
                env={**os.environ, **place.environment()},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # A Ctrl-C of the terminal goes to us, and we tell our workers.
                start_new_session=True,
            )
        if place.cores and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(process.pid, place.cores)
        return _Worker(shard, place, process, log)

    def _end_all(self) -> None:
        for worker in self._running:
            worker.process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + _GRACE_SECONDS
        for worker in self._running:
            try:
                worker.process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()
        self._running.clear()


def _ended(code: int) -> str:
    if code >= 0:
        return f"its worker ended with exit code {code}"
    name = signal.Signals(-code).name
    return f"its worker was killed by {name}{' (out of memory?)' if name == 'SIGKILL' else ''}"


def _last_words(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[1:]
    errors = [line for line in lines if line.startswith("error: ")] or lines[-1:]
    return f"It said: {errors[-1]}. " if errors else ""
