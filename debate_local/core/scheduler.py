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

# Debates alive or waiting for an earlier one's end, in multiples of max_live.
HELD = 4
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


def drive(
    debates: Iterable[Asking[R]],
    engine: Engine,
    *,
    schedule: Schedule = "rounds",
    max_live: int = 4096,
    poll_seconds: float = 0.5,
    on_batch: Callable[[Batch], None] | None = None,
) -> Generator[Outcome[R], None, None]:
    """Run debates to their ends and yield their outcomes in the order given.

    At most `max_live` debates are alive at once and at most HELD times as many are held in all (alive, or ended and
    waiting for an earlier one), so what is held here does not grow with the number of debates. Raises EngineDead when
    the engine does.
    """
    if schedule not in ("rounds", "continuous"):
        raise ValueError(f"unknown schedule {schedule!r}; the schedules are: rounds, continuous")
    if max_live < 1:
        raise ValueError(f"max_live must be at least 1, got {max_live}")
    driver = _Driver(iter(debates), engine)
    return driver.run(schedule, max_live, poll_seconds, on_batch)


class _Live(Generic[R]):
    """A debate that has begun: its generator and the completions it waits for."""

    __slots__ = ("asking", "completions", "index", "waiting")

    def __init__(self, index: int, asking: Asking[R]) -> None:
        self.index = index
        self.asking = asking
        self.completions: list[Completion | None] = []
        self.waiting = 0


class _Driver(Generic[R]):
    """The state of one `drive`: which debates live, what they wait for, and what has ended out of turn."""

    def __init__(self, source: Iterator[Asking[R]], engine: Engine) -> None:
        self._source, self._engine = source, engine
        self._live: dict[int, _Live[R]] = {}
        self._places: dict[str, tuple[_Live[R], int]] = {}
        self._ended: dict[int, Outcome[R]] = {}
        self._asked: list[ChatRequest] = []
        self._begun = self._handed_out = 0
        self._exhausted = False

    def run(
        self, schedule: Schedule, max_live: int, poll_seconds: float, on_batch: Callable[[Batch], None] | None
    ) -> Generator[Outcome[R], None, None]:
        """The loop of both schedules."""
        try:
            while True:
                self._begin(max_live)
                if self._asked and (schedule == "continuous" or len(self._asked) == len(self._places)):
                    if on_batch:
                        on_batch(Batch(len(self._asked), len(self._live)))
                    self._engine.submit(self._asked)
                    self._asked = []
                yield from self._in_order()
                if not self._live:
                    if self._exhausted and self._handed_out == self._begun:
                        return
                    continue
                ready = self._take(self._engine.poll(poll_seconds))
                if schedule == "rounds":
                    # The whole round must be in before anybody speaks again.
                    ready = [] if self._places else list(self._live.values())
                for debate in ready:
                    self._advance(debate, [c for c in debate.completions if c is not None])
        finally:
            for debate in self._live.values():
                debate.asking.close()
            if self._places:
                self._engine.cancel(list(self._places))

    def _begin(self, max_live: int) -> None:
        """Let new debates in, as long as there is room among the living and the held."""
        while (
            not self._exhausted and len(self._live) < max_live and len(self._live) + len(self._ended) < HELD * max_live
        ):
            asking = next(self._source, None)
            if asking is None:
                self._exhausted = True
                return
            debate = self._live[self._begun] = _Live(self._begun, asking)
            self._begun += 1
            self._advance(debate, None)

    def _advance(self, debate: _Live[R], send: list[Completion] | None) -> None:
        """Let a debate speak: it asks on, or it ends. What its own code raises is its end, not that of the others."""
        try:
            requests = _checked(next(debate.asking) if send is None else debate.asking.send(send))
        except StopIteration as stop:
            self._ended[debate.index] = Outcome(debate.index, stop.value)
        except Exception as error:
            debate.asking.close()
            self._ended[debate.index] = Outcome(debate.index, None, error)
        else:
            debate.completions = [None] * len(requests)
            debate.waiting = len(requests)
            for place, request in enumerate(requests):
                unique = f"{debate.index}/{request.id}"
                self._places[unique] = (debate, place)
                self._asked.append(replace(request, id=unique))
            return
        self._live.pop(debate.index, None)

    def _take(self, finished: list[tuple[str, Completion]]) -> list[_Live[R]]:
        """Put completions where they are waited for; the debates that wait for nothing more."""
        ready: list[_Live[R]] = []
        for unique, completion in finished:
            # A completion nobody waits for (cancelled, or sent twice) is not an answer to anything.
            if (found := self._places.pop(unique, None)) is None:
                continue
            debate, place = found
            debate.completions[place] = completion
            debate.waiting -= 1
            if not debate.waiting:
                ready.append(debate)
        return ready

    def _in_order(self) -> Iterator[Outcome[R]]:
        """The outcomes whose turn it is."""
        while self._handed_out in self._ended:
            yield self._ended.pop(self._handed_out)
            self._handed_out += 1


def _checked(requests: Iterable[ChatRequest]) -> list[ChatRequest]:
    """A debate's own bugs, named: an empty yield would wait for ever, a repeated id would lose a reply."""
    asked = list(requests)
    if not asked:
        raise ValueError("a debate yielded no requests; it must yield at least one, or return its transcript")
    if wrong := next((request for request in asked if not isinstance(request, ChatRequest)), None):
        raise TypeError(f"a debate yielded {wrong!r}; it must yield a list of ChatRequest")
    ids = [request.id for request in asked]
    if len(set(ids)) < len(ids):
        raise ValueError(f"a debate yielded one id twice: {sorted({i for i in ids if ids.count(i) > 1})}")
    return asked


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
