"""`debate-local work SWEEP --shard 3/16`: what a worker runs, whoever starts it (a launcher, Slurm, a script)."""

import os
import re
import signal
import threading
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from debate_local.commands.progress import ProgressBar
from debate_local.commands.terminal import to_type
from debate_local.sweep.events import EventLog, Listener
from debate_local.sweep.frozen import FrozenPlan, read_frozen, where_it_started
from debate_local.sweep.plan import Plan
from debate_local.sweep.run import RunFailed, SweepResult, run_plan, tell_failure
from debate_local.sweep.shards import Shard
from debate_local.sweep.store import StoreFault
from debate_local.trackers.process import trackers

# What clusters send before they kill: the signal differs by cluster, so all of them are heard.
_STOPPING = ("SIGTERM", "SIGUSR1", "SIGUSR2", "SIGHUP", "SIGXCPU")


def arguments(parser: ArgumentParser) -> None:
    """The options of `work`."""
    parser.add_argument("sweep", help="a sweep's folder, such as runs/sweeps/1a2b3c4d")
    parser.add_argument(
        "--shard", action="append", default=[], metavar="I/N", help="shard I (from 0) of N; may be given several times"
    )
    parser.add_argument("--retry-failed", action="store_true", help="ask failed requests of finished runs again")


def main(options: Namespace) -> int:
    """Run the shards. Raises RunFailed when something of them is missing at the end."""
    result = work(Path(options.sweep), options.shard, options.retry_failed)
    if result.problems:
        raise RunFailed("\n".join(result.problems))
    return 0


def work(folder: Path, names: Sequence[str], retry_failed: bool = False) -> SweepResult:
    """Run shards of a frozen plan, all in one engine; without names the whole sweep.

    What fails before there is anything to run is left in the sweep's logs too, so that no worker fails unheard.
    """
    with stopped_by_signals(), where_it_started(read_frozen(folder)) as frozen:
        shards = _shards(frozen, names)
        try:
            # The rows were prepared when the plan was frozen: workers that start together do not race for them.
            os.environ.setdefault("HF_DATASETS_OFFLINE", "1")
            plan = unchanged_plan(frozen)
        except Exception as error:
            name = f"-{shards[0].name}" if shards else ""
            with closing(EventLog(frozen.folder / "logs", name=name)) as log:
                tell_failure(log, error)
            raise
        with ProgressBar() as bar:
            command = ["debate-local", "work", str(folder), *names]
            listeners: list[Listener] = [bar, *trackers(frozen.how)]
            return run_plan(
                plan, frozen.how, command, listeners, frozen=frozen, shards=shards, retry_failed=retry_failed
            )


def unchanged_plan(frozen: FrozenPlan) -> Plan:
    """Today's plan of a frozen sweep, its notes saying what has changed.

    Raises StoreFault when the runs would be others: their results must not be mixed.
    """
    plan = frozen.plan()
    changes = frozen.changes(plan)
    if frozen.other_runs(plan):
        raise StoreFault(
            f"what sweep {frozen.id} asks has changed since it was started, so its runs would be others:\n  "
            + "\n  ".join(changes)
            + f"\nRestore it, or start anew with what there is today: {to_type('resume', frozen.folder, '--anyway')}"
        )
    plan.notes.extend(f"changed since the sweep was started: {change}" for change in changes)
    return plan


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """While it lasts, the signals by which clusters end a job are heard as Ctrl-C is: what was answered is kept."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before: dict[int, Any] = {}

    def stop(number: int, frame: FrameType | None) -> None:
        # A second signal must not break what the first one began to put in order.
        for one in before:
            signal.signal(one, signal.SIG_IGN)
        raise KeyboardInterrupt(signal.Signals(number).name)

    for name in _STOPPING:
        number = getattr(signal, name, None)
        # nohup has it ignored: the terminal's end is not ours. The others a launcher may ignore for us until now.
        if number is None or (name == "SIGHUP" and signal.getsignal(number) is signal.SIG_IGN):
            continue
        before[number] = signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _shards(frozen: FrozenPlan, names: Sequence[str]) -> list[Shard]:
    found = []
    for name in names:
        match = re.fullmatch(r"(\d+)/(\d+)", name)
        if match is None or not int(match[1]) < int(match[2]):
            raise StoreFault(f"--shard {name} is no shard: write I/N, with I from 0 to N - 1, such as 3/16")
        found.append(frozen.split(int(match[2]))[int(match[1])])
    if len({shard.split for shard in found}) > 1:
        raise StoreFault(f"--shard: {', '.join(names)} are not of one split")
    return found
