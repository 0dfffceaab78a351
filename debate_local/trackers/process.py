"""The sweep's side of a tracker: a listener that starts its process and hears of its end. Nothing waits for it before.

Measured: wandb in a thread of the sweep held up its end by 91 s where there was no network.
"""

import contextlib
import subprocess
import sys
import time
from pathlib import Path

from debate_local.sweep.config import HowToRun
from debate_local.sweep.events import Event, Listener, ListenerEnded

# How long a tracker may give no sign once the sweep has ended (seconds): when it ended by itself, and when somebody
# ended it, who will not wait.
_PATIENCE = 45.0
_HURRY = 5.0
# With a sign now and then, so many times as long.
_ENOUGH = 10
_POLL_SECONDS = 0.05


def trackers(how: HowToRun) -> list[Listener]:
    """The listeners that a sweep's settings ask for."""
    return [] if how.tracker == "none" else [TrackerProcess(how.tracker)]


class TrackerProcess:
    """A listener for EventLog. name: of a module beside this one.

    Raises ListenerEnded when the tracker failed, gives no sign after the end, or has a note for the person.
    """

    def __init__(self, name: str, patience: float = _PATIENCE, hurry: float = _HURRY) -> None:
        self._name, self._patience, self._hurry = name, patience, hurry
        self._process: subprocess.Popen[bytes] | None = None
        self._log = Path()

    def __call__(self, event: Event) -> None:
        if event["event"] == "start":
            self._begin(event)
        elif self._process is not None and event["event"] == "end":
            self._finish(event.get("stopped", "").startswith("interrupted"))
        elif self._process is not None and self._process.poll() is not None:
            raise ListenerEnded(self._failure())

    def _begin(self, event: Event) -> None:
        events = Path(event["log"])
        self._log = events.with_name(f"tracker{events.stem.removeprefix('events')}.log")
        # -P: a file of the working folder that is called wandb.py is not wandb.
        command = [sys.executable, "-P", "-m", "debate_local.trackers.follow", self._name, event["sweep"], str(events)]
        try:
            with self._log.open("wb") as output:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    # Ctrl-C is for the sweep.
                    start_new_session=True,
                )
        except OSError as error:
            raise ListenerEnded(f"tracker {self._name} cannot be started ({error}); the sweep goes on") from error

    def _finish(self, hurry: bool) -> None:
        process = self._process
        assert process is not None and process.stdin is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            if not self._ends(process, self._hurry if hurry else self._patience):
                raise ListenerEnded(
                    f"tracker {self._name} was ended, for it gave no sign any more. What it has not told of the runs, "
                    f"it tells when the sweep is started again. Its log: {self._log}"
                )
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
        if process.returncode != 0:
            raise ListenerEnded(self._failure())
        if note := next((line for line in self._lines() if line.startswith("note: ")), ""):
            raise ListenerEnded(f"tracker {self._name}: {note.removeprefix('note: ')}")

    def _ends(self, process: "subprocess.Popen[bytes]", patience: float) -> bool:
        """Wait for the process while its log grows, but not for ever. False when it did not end."""
        size, since = -1, time.monotonic()
        last = since + _ENOUGH * patience
        while process.poll() is None:
            if (grown := self._log.stat().st_size) != size:
                size, since = grown, time.monotonic()
            if time.monotonic() > min(last, since + patience):
                return False
            time.sleep(_POLL_SECONDS)
        return True

    def _failure(self) -> str:
        last = next((line for line in reversed(self._lines()) if line.strip()), "no word")
        return f"tracker {self._name} failed; the sweep goes on without it. It said: {last}. Its log: {self._log}"

    def _lines(self) -> list[str]:
        return self._log.read_text(encoding="utf-8", errors="replace").splitlines()
