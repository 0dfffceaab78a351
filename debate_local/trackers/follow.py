"""A tracker's process: follows the log of one start of a sweep, and tells a tracker what it reads there.

    python -m debate_local.trackers.follow wandb <sweep folder> <log>

It ends when its standard input does, once it has told what was left. Of progress it tells the latest only, so it is
never behind. It prints into the sweep's logs; a line that begins with `note: ` is for the person.
"""

import importlib
import json
import os
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from debate_local.sweep.events import Event
from debate_local.sweep.store import StoreFault, is_done, root_of
from debate_local.trackers.results import Ledger, plain, told
from debate_local.trackers.tracker import Start, Tracker

_LOOK_SECONDS = 5.0
# Of a tracker whose sweep was killed.
_ORPHAN_SECONDS = 60
_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGXCPU")
_COUNTED = ("sent", "hits", "shared", "generated_tokens", "failed", "debates")


def main(arguments: Sequence[str]) -> None:
    """Follow to the end and leave at once: exit hooks of trackers may wait for a network."""
    name, sweep, log = arguments
    for number in _SIGNALS:
        # They are meant for the sweep, and its end is ours.
        signal.signal(getattr(signal, number), signal.SIG_IGN)
    os.nice(10)
    code = 0
    try:
        follow(name, Path(sweep), Path(log), _end_of_input())
    except Exception:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def follow(name: str, sweep: Path, log: Path, ended: threading.Event) -> None:
    """Tell the tracker of this name what the log of a start says, until it has ended."""
    output = root_of(sweep)
    folder = output / "trackers"
    folder.mkdir(parents=True, exist_ok=True)
    record = json.loads((sweep / "sweep.json").read_text(encoding="utf-8"))
    events = _Growing(log)
    first, *others = events.new()
    make = getattr(importlib.import_module(f"debate_local.trackers.{name}"), name)
    tracker: Tracker = make(_start(sweep.name, record, first), folder)
    ledger = Ledger(folder, f"{name} {tracker.destination}")
    teller = _Teller(tracker, ledger, sweep, _Pace(first))
    for event in others:
        teller.see(event)
    teller.tell_stored()
    last = False
    while not last:
        last = ended.wait(_LOOK_SECONDS)
        for event in events.new():
            teller.see(event)
        teller.tell()
    teller.close()


def _start(sweep: str, record: Mapping[str, Any], event: Event) -> Start:
    """One start of a sweep, from the sweep's record and the first event of the start."""
    words = [sweep, *(f"shard{number}" for number in event["shards"][:1])]
    words.append(time.strftime("%Y%m%d-%H%M%S", time.localtime(event["time"])))
    settings = {
        "command": " ".join(record["command"]),
        "cells": "; ".join(cell["label"] for cell in record["cells"]),
        "shards": ", ".join(str(number) for number in event["shards"]),
        **{key: event[key] for key in ("runs", "todo", "turns", "commit", "versions", "hardware")},
    }
    return Start(sweep, "-".join(words), event["time"], {key: plain(value) for key, value in settings.items()})


class _Teller:
    """Gathers what events say, and tells it when asked to."""

    def __init__(self, tracker: Tracker, ledger: Ledger, sweep: Path, pace: "_Pace") -> None:
        self._tracker, self._ledger, self._sweep, self._pace = tracker, ledger, sweep, pace
        self._output = root_of(sweep)
        self._waiting: dict[str, None] = {}
        # Until the log says otherwise: one that is cut off ended badly.
        self._failed = True

    def see(self, event: Event) -> None:
        """Take an event in."""
        if event["event"] in ("progress", "engine"):
            self._pace.see(event)
        elif event["event"] == "more":
            self._pace.more(event)
        elif event["event"] == "run_end":
            self._waiting[event["run"]] = None
        elif event["event"] == "end":
            self._failed = bool(event["problems"])

    def tell(self) -> None:
        """The latest progress, and the runs that have become whole."""
        if (numbers := self._pace.numbers()) is not None:
            self._tracker.progress(self._pace.seconds, numbers)
        for run in list(self._waiting):
            if is_done(self._output / run):
                del self._waiting[run]
                self._tell_run(run)

    def tell_stored(self) -> None:
        """All runs that are done, whoever did them."""
        for run in self._entries():
            if not self._ledger.knows(self._output / run) and is_done(self._output / run):
                self._tell_run(run)

    def _entries(self) -> Mapping[str, Mapping[str, Any]]:
        """The sweep's cells by run, as they stand: a second phase brings more."""
        record = json.loads((self._sweep / "sweep.json").read_text(encoding="utf-8"))
        return {cell["run"]: cell for cell in record["cells"]}

    def _tell_run(self, run: str) -> None:
        with self._ledger.claimed(self._output / run) as mine:
            if not mine:
                return
            try:
                result = told(self._output / run, self._entries()[run])
            except StoreFault as error:
                print(error, flush=True)
                return
            self._tracker.finished(result)
            print(f"told {run}", flush=True)

    def close(self) -> None:
        self.tell_stored()
        self._tracker.close(self._failed)


class _Pace:
    """Totals over all engines of a start, from their progress; each engine counts from zero."""

    def __init__(self, first: Event) -> None:
        self._started = self._time = self._told = float(first["time"])
        self._all_turns = first["turns"]
        self._turns = self._told_tokens = 0
        self._before = self._totals = dict.fromkeys(_COUNTED, 0)

    @property
    def seconds(self) -> int:
        """From the beginning to the latest progress."""
        return round(self._time - self._started)

    def see(self, event: Event) -> None:
        """Take a progress event in, or the last one of an engine."""
        self._time, self._turns = event["time"], event["turns_before"] + event["turns"]
        self._totals = {name: self._before[name] + event[name] for name in _COUNTED}
        if event["event"] == "engine":
            self._before = self._totals

    def more(self, event: Event) -> None:
        """Further turns are to come."""
        self._all_turns += event["turns"]

    def numbers(self) -> dict[str, float] | None:
        """What is to be told of the progress since it was last asked for; None when there was none."""
        if self._time == self._told:
            return None
        rate = (self._totals["generated_tokens"] - self._told_tokens) / max(self._time - self._told, 1e-9)
        self._told, self._told_tokens = self._time, self._totals["generated_tokens"]
        share = self._turns / self._all_turns if self._all_turns else 1.0
        return {**self._totals, "turns": self._turns, "share_done": share, "tokens_per_second": rate}


class _Growing:
    """A log that is still being written: its whole lines, each once."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._rest = b""

    def new(self) -> list[Event]:
        """The events that have come since it was last asked for, without batches."""
        *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
        return [json.loads(line) for line in lines if b'"event": "batch"' not in line]


def _end_of_input() -> threading.Event:
    """Set when our standard input ends, which nobody writes to, or when the process that started us is gone."""
    ended, parent = threading.Event(), os.getppid()

    def wait() -> None:
        while os.getppid() == parent and not select.select([sys.stdin], [], [], 1.0)[0]:
            pass
        ended.set()
        while os.getppid() == parent:
            time.sleep(1.0)
        time.sleep(_ORPHAN_SECONDS)
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
    return ended


if __name__ == "__main__":
    main(sys.argv[1:])
