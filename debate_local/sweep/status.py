"""How far a sweep is, from its frozen plan, its stored parts and the ends of its logs: no task, engine or lock.

Works from any machine that sees the folder.
"""

import json
import os
import re
import socket
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from .events import Event
from .frozen import FrozenPlan, FrozenRun
from .shards import Shard
from .sharing import is_alive
from .store import is_done, parts_folder

State = Literal["missing", "running", "done", "stopped", "failed", "died", "silent"]
# Workers emit two events a second once their engine is loaded; a large model may take this long to load (seconds).
SILENT_AFTER = 1800
_HEAD, _TAIL = 65_536, 8_192
_FILE = re.compile(r"events(?:-(?P<split>[0-9a-f]{8})-\d+(?:\+\d+)?)?-\d{8}-\d{6}-(?P<host>.+)-(?P<pid>\d+)")


@dataclass(frozen=True, slots=True)
class ShardStatus:
    """One shard, as its latest attempt left it. turns: of all its debates, at most. error: the last one."""

    number: int
    state: State = "missing"
    turns: int = 0
    turns_done: int = 0
    turns_per_second: float = 0.0
    tokens_per_second: float = 0.0
    host: str = ""
    pid: int = 0
    seconds_silent: float | None = None
    error: str = ""
    log: str = ""


@dataclass(frozen=True, slots=True)
class CellStatus:
    """One run. items_done: those that are stored. shards: by number, those that hold items of it.

    bought: it belongs to the second phase.
    """

    run: str
    label: str
    items: int
    items_done: int
    shards: dict[int, State]
    bought: bool = False

    @property
    def done(self) -> bool:
        """Is every item of it stored?"""
        return self.items_done == self.items


@dataclass(frozen=True, slots=True)
class SweepStatus:
    """A sweep as it stands. seconds_left: at the pace of the shards that run, None when none does."""

    sweep: str
    cells: tuple[CellStatus, ...]
    shards: tuple[ShardStatus, ...]

    @property
    def done(self) -> bool:
        """Is every item of every run stored?"""
        return all(cell.done for cell in self.cells)

    @property
    def first_phase_done(self) -> bool:
        """Is all stored by whose bills the second phase goes?"""
        return all(cell.done for cell in self.cells if not cell.bought)

    @property
    def turns(self) -> int:
        return sum(shard.turns for shard in self.shards)

    @property
    def turns_done(self) -> int:
        return sum(shard.turns_done for shard in self.shards)

    @property
    def tokens_per_second(self) -> float:
        return sum(shard.tokens_per_second for shard in self.shards)

    @property
    def seconds_left(self) -> float | None:
        pace = sum(shard.turns_per_second for shard in self.shards)
        return (self.turns - self.turns_done) / pace if pace else None

    def to_json(self) -> dict[str, Any]:
        """All of it as JSON values."""
        totals = ("done", "turns", "turns_done", "tokens_per_second", "seconds_left")
        return asdict(self) | {name: getattr(self, name) for name in totals}


def status(frozen: FrozenPlan) -> SweepStatus:
    """Look at a sweep's folder."""
    shards = frozen.shards
    split = shards[0].split if shards else None
    attempts = _latest_attempts(frozen.folder / "logs", split)
    states = [_attempted(number, attempts.get(number)) for number in range(max(1, len(shards)))]
    cells, turns, stored = [], Counter[int](), Counter[int]()
    sizes = _Sizes(frozen, shards)
    for run in frozen.runs:
        held = sizes.of(run)
        done = _stored_parts(frozen.how.output / run.id, split, set(held))
        for number, items in held.items():
            turns[number] += items * run.calls
            stored[number] += items * run.calls if number in done else 0
        by_shard: dict[int, State] = {n: "done" if n in done else _unfinished(states[n].state) for n in held}
        items, items_done = sum(held.values()), sum(held[n] for n in done)
        cells.append(CellStatus(run.id, run.label, items, items_done, by_shard, run.bought))
    return SweepStatus(frozen.id, tuple(cells), tuple(_counted(s, turns[s.number], stored[s.number]) for s in states))


def joint_log(frozen: FrozenPlan) -> list[Event]:
    """What all workers told, in order of time, without progress and batches; each event with its `worker`.

    A worker's events stay in the order in which it told them, though its clock was put back in between.
    """
    events: list[tuple[float, Event]] = []
    for path in sorted((frozen.folder / "logs").glob("events*.jsonl")):
        worker = path.stem.removeprefix("events").strip("-")
        order = 0.0
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            if '"event": "progress"' in line or '"event": "batch"' in line or (event := _parsed(line)) is None:
                continue
            order = max(order, event["time"])
            events.append((order, event | {"worker": worker}))
    return [event for _, event in sorted(events, key=lambda pair: pair[0])]


class _Sizes:
    """How many items of a run each shard holds; counted once for all runs on the same rows."""

    def __init__(self, frozen: FrozenPlan, shards: Sequence[Shard]) -> None:
        self._frozen, self._shards = frozen, shards
        self._known: dict[tuple[str, str], dict[int, int]] = {}

    def of(self, run: FrozenRun) -> dict[int, int]:
        """Shard number -> items."""
        key = (run.task, run.rows)
        if key not in self._known:
            ids = set(self._frozen.items(run))
            counts = {shard.number: len(ids.intersection(shard.items.get(run.task, ()))) for shard in self._shards}
            self._known[key] = {n: count for n, count in counts.items() if count} if self._shards else {0: len(ids)}
        return self._known[key]


def _stored_parts(folder: Path, split: str | None, shards: set[int]) -> set[int]:
    """Which shards' parts of a run are stored: all when it is whole."""
    if is_done(folder):
        return shards
    if split is None:
        return set()
    parts = parts_folder(folder, split)
    return {number for number in shards if (parts / f"{number:04d}" / "done").exists()} if parts.is_dir() else set()


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One start of a worker: its first event, its last ones by kind, the time of the very last, and where it ran."""

    start: Event
    last: Mapping[str, Event]
    heard: float
    host: str
    pid: int
    path: Path


def _latest_attempts(logs: Path, split: str | None) -> dict[int, _Attempt]:
    """Shard number -> its latest attempt; a sweep that is not split has the number 0."""
    latest: dict[int, _Attempt] = {}
    for path in sorted(logs.glob("events*.jsonl")):
        match = _FILE.fullmatch(path.stem)
        if match is None or match["split"] != split:
            continue
        head, tail = _ends(path)
        # One that failed before it knew what to do has no start.
        start = head or {"time": path.stat().st_mtime}
        if start.get("event") != "start":
            start = {name: start[name] for name in ("time", "starts") if name in start}
        last = {event["event"]: event for event in tail}
        numbers = start.get("shards") or _numbers(path.stem, split)
        for number in numbers:
            if number not in latest or _order(latest[number].start) <= _order(start):
                heard = tail[-1]["time"] if tail else start["time"]
                latest[number] = _Attempt(start, last, heard, match["host"], int(match["pid"]), path)
    return latest


def _order(start: Event) -> tuple[int, float]:
    """The order of starts: by how many there were before, because the clock may have been set in between."""
    return start.get("starts", 0), start["time"]


def _numbers(stem: str, split: str | None) -> list[int]:
    return [0] if split is None else [int(stem.split("-")[2].partition("+")[0])]


def _ends(path: Path) -> tuple[Event | None, list[Event]]:
    """The first event of a log, and its last ones; a torn line is left out."""
    with path.open("rb") as file:
        head = file.readline(_HEAD)
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TAIL))
        lines = file.read().decode("utf-8", "replace").splitlines()
    tail = [event for line in lines if (event := _parsed(line)) is not None]
    return _parsed(head.decode("utf-8", "replace")), tail


def _parsed(line: str) -> Event | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and {"event", "time"} <= set(event) else None


def _attempted(number: int, attempt: _Attempt | None) -> ShardStatus:
    """A shard as its latest attempt tells; turns_done: of this attempt."""
    if attempt is None:
        return ShardStatus(number)
    progress = attempt.last.get("progress", {})
    shown = ShardStatus(
        number,
        turns_done=progress.get("turns_before", 0) + progress.get("turns", 0),
        turns=attempt.start.get("turns", 0),
        host=attempt.host,
        pid=attempt.pid,
        seconds_silent=round(max(0.0, time.time() - attempt.heard), 1),
        log=str(attempt.path),
    )
    if (end := attempt.last.get("end")) is not None:
        state: State = "failed" if end["problems"] else "stopped" if end.get("stopped") else "done"
        return replace(shown, state=state, error="; ".join(end["problems"]) or end.get("stopped", ""))
    if attempt.host == socket.gethostname() and not is_alive(attempt.pid):
        return replace(shown, state="died", error="its process is gone without a word (killed, or out of memory)")
    if shown.seconds_silent is not None and shown.seconds_silent > SILENT_AFTER:
        return replace(shown, state="silent", error="no sign for half an hour: look at its job")
    together = max(1, len(attempt.start.get("shards", ())))
    seconds = max(progress.get("seconds", 0.0), 1e-9)
    return replace(
        shown,
        state="running",
        turns_per_second=progress.get("turns", 0) / seconds / together,
        tokens_per_second=progress.get("generated_tokens", 0) / seconds / together,
    )


def _counted(shard: ShardStatus, turns: int, stored: int) -> ShardStatus:
    """With the turns of all its debates: those that are stored, and those that the running attempt has behind it."""
    if stored == turns:
        return replace(shard, state="done", turns=turns, turns_done=turns, error="")
    if shard.turns and shard.state != "done":
        # Whatever its end was, what it was answered is in the cache.
        share = min(1.0, shard.turns_done / shard.turns)
        done = round(turns - shard.turns * (1 - share)) if shard.turns <= turns else round(turns * share)
        stored = min(turns, max(stored, done))
    return replace(shard, state=_unfinished(shard.state), turns=turns, turns_done=stored)


def _unfinished(state: State) -> State:
    """The state of a cell's part that is not stored, in a shard whose latest attempt ended well before it was asked."""
    return "missing" if state == "done" else state
