"""The progress bar: reads the events of a sweep and nothing else."""

import sys
from collections import deque
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text

from debate_local.sweep.events import Event


class _Left(ProgressColumn):
    """Time left, from the turns that are still to come and the pace of those that an engine answered."""

    def render(self, task: Task) -> Text:
        return Text(clock(task.fields["left"]), style="cyan")


class ProgressBar:
    """A listener for EventLog: a bar on a terminal, one line every ten seconds elsewhere; warnings as they come."""

    def __init__(self) -> None:
        # This stream itself: while an engine loads, sys.stderr points at its log.
        self._console = Console(file=sys.stderr)
        self._bar = Progress(
            TextColumn("debating"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("turns"),
            TextColumn("{task.fields[rate]:.0f} tokens/s"),
            TimeElapsedColumn(),
            TextColumn("left"),
            _Left(),
            console=self._console,
            disable=not self._console.is_terminal,
            transient=False,
        )
        self._task = self._bar.add_task("", total=None, rate=0.0, left=None, visible=False)
        self._turns = 0
        self._window: deque[tuple[float, int]] = deque()
        self._printed = 0.0

    def __enter__(self) -> "ProgressBar":
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def __call__(self, event: Event) -> None:
        handler = getattr(self, f"_on_{event['event']}", None)
        if handler is not None:
            handler(event)

    def _on_start(self, event: Event) -> None:
        self._turns = event["turns"]
        self._bar.update(self._task, total=self._turns, visible=event["todo"] > 0)
        done = event["runs"] - event["todo"]
        if done:
            self._console.print(f"{done} of {event['runs']} runs are done already")

    def _on_more(self, event: Event) -> None:
        self._turns += event["turns"]
        self._bar.update(self._task, total=self._turns)
        self._console.print(f"the debates' tokens are known: {more_told(event)}")

    def _on_loading(self, event: Event) -> None:
        models = f" ({', '.join(event['models'])})" if "models" in event else ""
        self._console.print(f"loading {_plain(event['engine'] + models)} ...")

    def _on_switch(self, event: Event) -> None:
        self._console.print(f"switch: {_plain(switch_told(event))}")

    def _on_warning(self, event: Event) -> None:
        self._console.print(f"[yellow]warning:[/] {_plain(event['text'])}")

    def _on_mixed(self, event: Event) -> None:
        self._console.print(f"[yellow]a mix:[/] {_plain(mix_told(event))}")

    def _on_restart(self, event: Event) -> None:
        self._console.print(f"[yellow]engine {event['engine']} died and is started again:[/] {_plain(event['reason'])}")

    def _on_progress(self, event: Event) -> None:
        seconds = max(event["seconds"], 1e-9)
        done = event["turns_before"] + event["turns"]
        asked = event["turns"] - event["hits"] - event["shared"]
        left = (self._turns - done) * seconds / event["turns"] if asked > 0 else None
        rate = self._rate(event["time"], event["generated_tokens"])
        self._bar.update(self._task, completed=done, rate=rate, left=left)
        if not self._console.is_terminal and event["time"] - self._printed >= 10:
            self._printed = event["time"]
            self._console.print(f"{done} of {self._turns} turns, {rate:.0f} tokens/s, left {clock(left)}")

    def _rate(self, now: float, generated: int) -> float:
        """Tokens a second over the last half minute: loading, and a pause before it, do not count."""
        self._window.append((now, generated))
        while len(self._window) > 2 and now - self._window[0][0] > 30:
            self._window.popleft()
        (begun, before), (_, after) = self._window[0], self._window[-1]
        return (after - before) / max(now - begun, 1e-9)

    def _on_engine(self, event: Event) -> None:
        self._window.clear()

    def _on_stopped(self, event: Event) -> None:
        self._console.print(f"[yellow]stopped by {_plain(event['reason'])}[/]")


def clock(seconds: float | None) -> str:
    """Seconds as 1:02:03."""
    if seconds is None:
        return "-:--:--"
    whole = max(0, int(seconds))
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def switch_told(event: Event) -> str:
    """Which models made room for which, in words."""
    ended = [f"{', '.join(event[key])} {word}" for key, word in _MADE_ROOM if event[key]]
    if event["free_after"] is not None and event["free_before"] is not None:
        ended.append(f"free memory {_gib(event['free_before'])} -> {_gib(event['free_after'])}")
    begins = f"{'waking' if event['woken'] else 'loading'} {', '.join(event['opened'])} ..."
    return "; ".join([*ended, begins])


def more_told(event: Event) -> str:
    """What a second phase holds, in words."""
    return f"{event['debates']} votes of independent answers that they pay for (at most {event['turns']} turns)"


def mix_told(event: Event) -> str:
    """Which completions were made elsewhere, in words."""
    made = {name: value for name, value in _flat(event["facts"]).items() if value not in (None, [], {})}
    return (
        f"{event['completions']} completions were made with {made}; floating-point results may differ between versions "
        "and machines"
    )


def _flat(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Facts in one mapping: those of the hardware and of speed among the others."""
    found: dict[str, Any] = {}
    for name, value in facts.items():
        found |= value if isinstance(value, Mapping) else {name: value}
    return found


_MADE_ROOM = (("slept", "put to sleep"), ("closed", "closed"))


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"


def _plain(text: Any) -> str:
    from rich.markup import escape

    return escape(str(text))
