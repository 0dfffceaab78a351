"""What all workers of a sweep told, as sentences for the person who looks at it in the morning.

Times are local. What several workers said in the same words (each reads the same plan) stands there once.
"""

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from rich.text import Text

from debate_local.commands.progress import clock, mix_told, more_told, switch_told
from debate_local.sweep.events import Event

# Of cells that are stored together.
_NAMED = 3
_WORKER = re.compile(r"[0-9a-f]{8}-(?P<number>\d+)(?:\+(?P<more>\d+))?-\d{8}-\d{6}-.+")


def drawn_log(events: Sequence[Event], labels: Mapping[str, str]) -> Iterator[Text]:
    """One text an event, a line before each new day, and at the end those who never ended.

    events: in their order, each with its `worker`. labels: run id -> the cell's label.
    """
    names = {event["worker"]: worker_name(event["worker"]) for event in events}
    width = max(map(len, names.values()), default=0)
    echoes = _Echoes(events, names)
    day = ""
    for event in _stored_together(events):
        if (told := _sentence(event, labels)) is None or echoes.is_echo(event):
            continue
        moment = time.localtime(event["time"])
        if (today := time.strftime("%A %Y-%m-%d", moment)) != day:
            day = today
            yield Text(day, style="bold")
        line = Text(f"{time.strftime('%H:%M:%S', moment)}  {names[event['worker']]:{width}}  ")
        line.append(told + echoes.also(event), style=_style(event))
        if event.get("trace"):
            indented = "\n".join(f"    {row}" for row in str(event["trace"]).rstrip().splitlines())
            line.append(f"\n{indented}", style="dim")
        yield line
    yield from _without_end(events, names, width)


def worker_name(worker: str) -> str:
    """A worker's name in the file of its events, as a person says it: `shard 3`, `shards 3 +1`, or `sweep`."""
    match = _WORKER.fullmatch(worker)
    if match is None:
        return "sweep"
    return f"shards {int(match['number'])} +{match['more']}" if match["more"] else f"shard {int(match['number'])}"


def _stored_together(events: Sequence[Event]) -> list[Event]:
    """Runs that a worker stored one after the other as one event, `stored`, in the place of the last."""
    told: list[Event | None] = []
    open_now: dict[str, int] = {}
    for event in events:
        worker = event["worker"]
        if event["event"] != "run_end":
            open_now.pop(worker, None)
            told.append(event)
            continue
        ends: list[Event] = []
        if (place := open_now.get(worker)) is not None and (before := told[place]) is not None:
            ends, told[place] = before["ends"], None
        open_now[worker] = len(told)
        told.append(event | {"event": "stored", "ends": [*ends, event]})
    return [event for event in told if event is not None]


class _Echoes:
    """Warnings that several workers gave in the same words."""

    def __init__(self, events: Sequence[Event], names: Mapping[str, str]) -> None:
        self._names = names
        self._said: dict[str, list[Event]] = {}
        for event in events:
            if _is_plain_warning(event):
                self._said.setdefault(event["text"], []).append(event)

    def is_echo(self, event: Event) -> bool:
        """Did somebody say it before?"""
        return _is_plain_warning(event) and self._said[event["text"]][0] is not event

    def also(self, event: Event) -> str:
        """Who else said it."""
        said = self._said[event["text"]] if _is_plain_warning(event) else [event]
        others = dict.fromkeys(self._names[other["worker"]] for other in said)
        del others[self._names[event["worker"]]]
        if not others:
            return ""
        return f" (so {', '.join(others)})" if len(others) <= 3 else f" (so {len(others)} others)"


def _is_plain_warning(event: Event) -> bool:
    return event["event"] == "warning" and not event.get("trace")


def _without_end(events: Sequence[Event], names: Mapping[str, str], width: int) -> Iterator[Text]:
    ended = {event["worker"] for event in events if event["event"] == "end"}
    begun = {event["worker"]: event["time"] for event in reversed(events)}
    for worker in names:
        if worker not in ended:
            since = time.strftime("%H:%M:%S", time.localtime(begun[worker]))
            yield Text(f"--:--:--  {names[worker]:{width}}  ", style="yellow").append(
                f"the one that began at {since} has not ended: it runs, or it was killed; `debate-local status` tells"
            )


def _style(event: Event) -> str:
    if event["event"] == "end":
        return "red" if event["problems"] else "yellow" if event.get("stopped") else "green"
    failed = event["event"] == "stored" and any(end["errors"] for end in event["ends"])
    return "yellow" if failed or event["event"] in ("warning", "restart", "stopped", "mixed") else ""


def _sentence(event: Event, labels: Mapping[str, str]) -> str | None:
    """An event in words; None for one that tells a person nothing."""
    if event["event"] == "stored":
        return _stored(event["ends"], labels)
    say = _SENTENCES.get(event["event"])
    return None if say is None else say(event)


def _stored(ends: Sequence[Event], labels: Mapping[str, str]) -> str:
    errors = sum(end["errors"] for end in ends)
    failed = f" ({errors} failed)" if errors else ""
    cells = [labels.get(end["run"], end["run"]) for end in ends]
    more = f", and {len(cells) - _NAMED} more" if len(cells) > _NAMED else ""
    debates = _count(sum(end["debates"] for end in ends), "debate")
    return f"stored {debates} of {_count(len(cells), 'cell')}{failed}: {'; '.join(cells[:_NAMED])}{more}"


def _start(event: Event) -> str:
    if not event["todo"]:
        return f"begins: nothing is left to do of {_count(event['runs'], 'run')}"
    todo = f"{event['todo']} of {_count(event['runs'], 'run')} to do"
    return f"begins: {todo}, {_count(event['debates'], 'debate')}, at most {_count(event['turns'], 'turn')}"


def _loading(event: Event) -> str:
    models = f" ({', '.join(event['models'])})" if event.get("models") else ""
    return f"engine {event['engine']}{models} is loading"


def _engine(event: Event) -> str:
    shared = event["hits"] + event["shared"]
    failed = f", {_count(event['failed'], 'request')} failed" if event["failed"] else ""
    if event.get("sent_failed"):
        # Answers from before would dilute the rate.
        failed += f" ({event['sent_failed']:,} of the {event['sent']:,} sent now)"
    rate = event["generated_tokens"] / max(event["seconds"], 1e-9)
    return (
        f"engine {event['name']} is closed after {clock(event['seconds'])}: {_count(event['turns'], 'turn')} came "
        f"back, {event['sent']:,} were sent, {shared:,} shared or cached{failed}; {event['generated_tokens']:,} tokens "
        f"generated, {rate:,.0f} a second"
    )


def _end(event: Event) -> str:
    if event["problems"]:
        return "ends with problems: " + "; ".join(event["problems"])
    return f"ends before all is done: {event['stopped']}" if event.get("stopped") else "ends: done"


_SENTENCES: Mapping[str, Callable[[Event], str]] = {
    "start": _start,
    "loading": _loading,
    "warning": lambda event: f"warning: {event['text']}",
    "restart": lambda event: f"engine {event['engine']} died and is started again: {event['reason']}",
    "more": lambda event: f"the debates' tokens are known; goes on with {more_told(event)}",
    "switch": lambda event: f"engine {event['engine']}: {switch_told(event)}",
    "mixed": lambda event: f"a mix: {mix_told(event)}",
    "stopped": lambda event: f"engine {event['engine']} begins no more debates: {event['reason']}",
    "engine": _engine,
    "end": _end,
}


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
