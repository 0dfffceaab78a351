"""Drives all live debates against one engine; the only place where debates meet an engine.

Rule 1: the order in which completions arrive never reaches a debate: it is sent a list, in the order it asked.
Rule 2: results come out in the order of the debates that went in, so what is stored is sorted by construction.
Rule 3: both schedules are one loop. `rounds` asks again when everything outstanding has come back (one submit a round);
`continuous` asks as soon as any debate can go on.
"""

from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Generic, Literal, TypeVar, cast

from .chat import ChatRequest, Completion, Engine, split_reasoning

Schedule = Literal["rounds", "continuous"]
R = TypeVar("R")
Asking = Generator[list[ChatRequest], list[Completion], R]


@dataclass(frozen=True, slots=True)
class Outcome(Generic[R]):
    """The end of one debate: its result, or the exception that its own code raised (a bug, not a model's doing)."""

    index: int
    result: R | None
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """What was submitted together: for logs and progress only."""

    requests: int
    live: int


class _Live(Generic[R]):
    """A debate that has begun: its generator and the completions it waits for."""

    __slots__ = ("asking", "completions", "index", "waiting")

    def __init__(self, index: int, asking: Asking[R]) -> None:
        self.index = index
        self.asking = asking
        self.completions: list[Completion | None] = []
        self.waiting = 0


def drive(
    debates: Iterable[Asking[R]],
    engine: Engine,
    *,
    schedule: Schedule = "rounds",
    max_live: int = 4096,
    poll_seconds: float = 0.5,
    on_batch: Callable[[Batch], None] | None = None,
    stopping: Callable[[], bool] | None = None,
) -> Generator[Outcome[R], None, None]:
    """Run debates to their ends and yield their outcomes in the order given.

    At most `max_live` debates are alive at once and at most 4 times as many are held in all (alive, or ended and
    waiting for an earlier one), so memory does not grow with the number of debates. When `stopping` answers
    True no new debate begins; those that have begun are finished. Raises EngineDead when the engine does.
    """
    if schedule not in ("rounds", "continuous"):
        raise ValueError(f"unknown schedule {schedule!r}; the schedules are: rounds, continuous")
    if max_live < 1:
        raise ValueError(f"max_live must be at least 1, got {max_live}")
    return _drive(iter(debates), engine, schedule, max_live, poll_seconds, on_batch, stopping or (lambda: False))


def _drive(
    source: Iterator[Asking[R]],
    engine: Engine,
    schedule: Schedule,
    max_live: int,
    poll_seconds: float,
    on_batch: Callable[[Batch], None] | None,
    stopping: Callable[[], bool],
) -> Generator[Outcome[R], None, None]:
    live: dict[int, _Live[R]] = {}
    places: dict[str, tuple[_Live[R], int]] = {}
    ended: dict[int, Outcome[R]] = {}
    asked: list[ChatRequest] = []
    begun = handed_out = 0
    exhausted = False

    def advance(debate: _Live[R], send: list[Completion] | None) -> None:
        try:
            requests = next(debate.asking) if send is None else debate.asking.send(send)
            _require_new_requests(requests)
        except StopIteration as stop:
            ended[debate.index] = Outcome(debate.index, stop.value)
        except Exception as error:
            debate.asking.close()
            ended[debate.index] = Outcome(debate.index, None, error)
        else:
            debate.completions = [None] * len(requests)
            debate.waiting = len(requests)
            for place, request in enumerate(requests):
                unique = f"{debate.index}/{request.id}"
                places[unique] = (debate, place)
                asked.append(replace(request, id=unique))
            return
        live.pop(debate.index, None)

    try:
        while True:
            while not exhausted and len(live) < max_live and len(live) + len(ended) < 4 * max_live:
                asking = None if stopping() else next(source, None)
                if asking is None:
                    exhausted = True
                    break
                debate = _Live(begun, asking)
                live[begun] = debate
                begun += 1
                advance(debate, None)
            if asked and (schedule == "continuous" or len(asked) == len(places)):
                if on_batch:
                    on_batch(Batch(len(asked), len(live)))
                engine.submit(asked)
                asked = []
            while handed_out in ended:
                yield ended.pop(handed_out)
                handed_out += 1
            if not live:
                if exhausted and handed_out == begun:
                    return
                continue
            ready: list[_Live[R]] = []
            for unique, completion in engine.poll(poll_seconds):
                # A completion nobody waits for (cancelled, or sent twice) is not an answer to anything.
                if (found := places.pop(unique, None)) is None:
                    continue
                debate, place = found
                debate.completions[place] = completion
                debate.waiting -= 1
                if not debate.waiting:
                    ready.append(debate)
            if schedule == "rounds":
                # The whole round must be in before anybody speaks again.
                if places:
                    continue
                ready = list(live.values())
            for debate in ready:
                advance(debate, [c for c in debate.completions if c is not None])
    finally:
        for debate in live.values():
            debate.asking.close()
        if places:
            engine.cancel(list(places))


def _require_new_requests(requests: list[ChatRequest]) -> None:
    """A debate's own bugs, named: an empty yield would wait for ever, a repeated id would lose a reply."""
    if not requests:
        raise ValueError("a debate yielded no requests; it must yield at least one, or return its transcript")
    ids = [request.id for request in requests]
    if len(set(ids)) < len(ids):
        raise ValueError(f"a debate yielded one id twice: {sorted({i for i in ids if ids.count(i) > 1})}")


def ask_in_turn(debate: Asking[R], answer: Callable[[list[ChatRequest]], list[Completion]]) -> R:
    """Drive one debate with a function from a round's requests to their completions, in their order."""
    try:
        requests = next(debate)
        while True:
            requests = debate.send(answer(requests))
    except StopIteration as stop:
        return cast(R, stop.value)


def ask_one_by_one(debate: Asking[R], chat: Callable[[list[dict[str, str]]], str]) -> R:
    """Drive one debate with a plain function from chat messages (`{"role", "content"}`) to the reply's text."""

    def complete(request: ChatRequest) -> Completion:
        raw = chat([{"role": m.role, "content": m.content} for m in request.messages])
        split = split_reasoning(raw)
        return Completion(text=split.text, reasoning=split.reasoning, raw=raw)

    return ask_in_turn(debate, lambda requests: [complete(request) for request in requests])
