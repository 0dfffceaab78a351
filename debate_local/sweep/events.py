"""What happens while a sweep runs, as events: the progress bar, `status` and any tracker read only these.

One line of JSON an event, in `logs/` of the sweep's folder. Kinds: start, loading, batch, progress, restart,
switch, warning, run_end, engine, mixed, end. They hold who ran when and how fast; no result depends on them.
"""

import json
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

Event = dict[str, Any]
Listener = Callable[[Event], None]


class ListenerEnded(Exception):
    """Raised by a listener that cannot go on: it hears nothing more, and its message becomes a warning."""


class EventLog:
    """Writes events to one file of this process's own and hands them to listeners.

    The first one says how many logs the folder held before: the order of starts does not hang on a clock.
    """

    def __init__(self, folder: Path | None, listeners: tuple[Listener, ...] = (), name: str = "") -> None:
        self._listeners = listeners
        self._file: TextIO | None = None
        self._first: Event = {}
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            self._first = {"starts": sum(1 for _ in folder.glob("events*.jsonl"))}
            name = f"events{name}-{time.strftime('%Y%m%d-%H%M%S')}-{socket.gethostname()}-{os.getpid()}.jsonl"
            self._file = (folder / name).open("a", encoding="utf-8")

    def emit(self, kind: str, **values: Any) -> None:
        """Record an event; `time` is seconds since the epoch."""
        event = {"event": kind, "time": round(time.time(), 3), **self._first, **values}
        self._first = {}
        if self._file is not None:
            self._file.write(json.dumps(event, ensure_ascii=False, default=str) + "\n")
            self._file.flush()
        for listener in self._listeners:
            try:
                listener(event)
            except ListenerEnded as ended:
                self._listeners = tuple(other for other in self._listeners if other is not listener)
                self.emit("warning", text=str(ended))

    @property
    def path(self) -> str | None:
        """The file that the events go to."""
        return None if self._file is None else self._file.name

    def beside(self, word: str) -> str | None:
        """The path of another log of this process, beside its events."""
        if self._file is None:
            return None
        path = Path(self._file.name)
        return str(path.with_name(f"{word}{path.stem.removeprefix('events')}.log"))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
