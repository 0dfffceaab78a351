"""The scheduler: order, memory, faults and endings. Run: pytest tests/core/test_scheduler.py"""

import itertools
from collections.abc import Generator, Iterator

import pytest

from debate_local.core.chat import ChatRequest, Completion, EngineDead
from debate_local.core.scheduler import Batch, Outcome, ask_one_by_one, drive
from tests.fakes import LateEngine, request

Talk = Generator[list[ChatRequest], list[Completion], list[str]]
SCHEDULES = pytest.mark.parametrize("schedule", ["rounds", "continuous"])


def echo(request: ChatRequest) -> Completion:
    return Completion(f"re: {request.messages[-1].content}")


def talk(name: str, rounds: int = 2, width: int = 2) -> Talk:
    """A debate that asks `width` requests a round and returns all it was told."""
    told: list[str] = []
    for round in range(rounds):
        completions = yield [request(f"{name}.{round}.{place}", id=str(place)) for place in range(width)]
        told += [completion.text for completion in completions]
    return told


def expected(name: str, rounds: int = 2, width: int = 2) -> list[str]:
    return [f"re: {name}.{round}.{place}" for round in range(rounds) for place in range(width)]


@pytest.mark.hazard("B06")
@SCHEDULES
@pytest.mark.parametrize("max_live", [1, 3, 100])
def test_outcomes_come_in_input_order_and_replies_in_asking_order(schedule: str, max_live: int) -> None:
    engine = LateEngine(echo, seed=max_live)
    debates = [talk(f"d{n}", rounds=1 + n % 4, width=1 + n % 3) for n in range(20)]
    outcomes = list(drive(debates, engine, schedule=schedule, max_live=max_live))
    assert [outcome.index for outcome in outcomes] == list(range(20))
    assert [outcome.result for outcome in outcomes] == [expected(f"d{n}", 1 + n % 4, 1 + n % 3) for n in range(20)]


@SCHEDULES
def test_a_debate_that_asks_nothing_is_an_outcome_too(schedule: str) -> None:
    outcomes = list(drive([talk("a", rounds=0), talk("b"), talk("c", rounds=0)], LateEngine(echo), schedule=schedule))
    assert [outcome.result for outcome in outcomes] == [[], expected("b"), []]


def test_no_debates_are_no_outcomes() -> None:
    assert list(drive([], LateEngine(echo))) == []


def test_rounds_submits_once_a_round_over_all_live_debates() -> None:
    engine = LateEngine(echo)
    batches: list[Batch] = []
    list(drive([talk(f"d{n}", rounds=3) for n in range(10)], engine, schedule="rounds", on_batch=batches.append))
    assert [len(batch) for batch in engine.submitted] == [20, 20, 20]
    assert batches == [Batch(20, 10)] * 3


def test_continuous_does_not_wait_for_the_slowest_of_a_round() -> None:
    class OneIsStuck(LateEngine):
        """Answers debate 0 only when nothing else is left to answer."""

        def poll(self, timeout: float) -> list[tuple[str, Completion]]:
            others = [pair for pair in self._waiting if not pair[1].id.startswith("0/")]
            taken = others or self._waiting
            self._waiting = [pair for pair in self._waiting if pair not in taken]
            return [(asked.id, echo(asked)) for _, asked in taken]

    engine = OneIsStuck(echo)
    list(drive([talk(f"d{n}", rounds=3) for n in range(3)], engine, schedule="continuous"))
    order = [asked.messages[0].content for asked in engine.requests]
    assert order.index("d1.2.0") < order.index("d0.1.0")


@SCHEDULES
def test_at_most_four_times_max_live_debates_are_held(schedule: str) -> None:
    begun = 0
    handed_out = 0
    most_held = 0

    class FirstIsSlow(LateEngine):
        """Debate 0 is answered after 500 polls, so that all the others must wait for it to be handed out."""

        polls = 0

        def poll(self, timeout: float) -> list[tuple[str, Completion]]:
            self.polls += 1
            taken = [pair for pair in self._waiting if self.polls > 500 or not pair[1].id.startswith("0/")]
            self._waiting = [pair for pair in self._waiting if pair not in taken]
            return [(asked.id, echo(asked)) for _, asked in taken]

    def debates() -> Iterator[Talk]:
        nonlocal begun, most_held
        for n in range(200):
            begun += 1
            most_held = max(most_held, begun - handed_out)
            yield talk(f"d{n}", rounds=1)

    for _ in drive(debates(), FirstIsSlow(echo), schedule=schedule, max_live=5):
        handed_out += 1
    assert handed_out == 200
    assert most_held <= 4 * 5


@SCHEDULES
def test_live_debates_never_exceed_max_live(schedule: str) -> None:
    batches: list[Batch] = []
    debates = [talk(f"d{n}", rounds=1 + n % 3) for n in range(50)]
    list(drive(debates, LateEngine(echo), schedule=schedule, max_live=7, on_batch=batches.append))
    assert max(batch.live for batch in batches) == 7


def broken(round: int) -> Talk:
    told = yield from talk("broken", rounds=round)
    raise ZeroDivisionError(f"after {len(told)} replies")


@SCHEDULES
@pytest.mark.parametrize("round", [0, 1, 2])
def test_a_debate_that_raises_is_an_outcome_and_the_others_go_on(schedule: str, round: int) -> None:
    outcomes = list(drive([talk("a"), broken(round), talk("b")], LateEngine(echo), schedule=schedule, max_live=2))
    assert [outcome.result for outcome in outcomes] == [expected("a"), None, expected("b")]
    assert str(outcomes[1].error) == f"after {2 * round} replies"


def silent() -> Talk:
    yield []
    return []


def repeating() -> Talk:
    yield [request("one", id="same"), request("two", id="same")]
    return []


@pytest.mark.parametrize(("debate", "says"), [(silent(), "no requests"), (repeating(), "one id twice: \\['same'\\]")])
def test_an_empty_yield_and_a_repeated_id_are_named(debate: Talk, says: str) -> None:
    (outcome,) = drive([debate], LateEngine(echo))
    with pytest.raises(ValueError, match=says):
        raise outcome.error or AssertionError("no error")


@SCHEDULES
def test_debates_that_end_early_in_coming_are_finished(schedule: str) -> None:
    engine = LateEngine(echo)
    outcomes: list[Outcome[list[str]]] = []
    coming = itertools.takewhile(lambda _: not outcomes, (talk(f"d{n}") for n in range(100)))
    for outcome in drive(coming, engine, schedule=schedule, max_live=10):
        outcomes.append(outcome)
    begun = {asked.id.split("/")[0] for asked in engine.requests}
    assert [outcome.result for outcome in outcomes] == [expected(f"d{n}") for n in range(len(outcomes))]
    assert len(outcomes) == len(begun) < 100


class MortalEngine(LateEngine):
    """Dies at a given poll."""

    def __init__(self, dies_at: int) -> None:
        super().__init__(echo, slowest=1)
        self._polls_left = dies_at

    def poll(self, timeout: float) -> list[tuple[str, Completion]]:
        self._polls_left -= 1
        if self._polls_left < 0:
            raise EngineDead("out of memory")
        return super().poll(timeout)


@SCHEDULES
def test_a_dead_engine_ends_the_drive_with_its_own_error(schedule: str) -> None:
    engine = MortalEngine(dies_at=1)
    with pytest.raises(EngineDead, match="out of memory"):
        list(drive([talk("a"), talk("b")], engine, schedule=schedule))
    assert sorted(engine.cancelled) == ["0/0", "0/1", "1/0", "1/1"]


@SCHEDULES
def test_abandoning_the_outcomes_cancels_what_is_outstanding(schedule: str) -> None:
    closed: list[str] = []

    def closing(name: str) -> Talk:
        try:
            return (yield from talk(name, rounds=5))
        finally:
            closed.append(name)

    engine = LateEngine(echo, slowest=1)
    outcomes = drive([talk("a", rounds=1), closing("b"), closing("c")], engine, schedule=schedule)
    next(iter(outcomes))
    outcomes.close()  # type: ignore[attr-defined]
    outstanding = {asked.id for asked in engine.submitted[-1]} - {"0/0", "0/1"}
    assert closed == ["b", "c"]
    assert outstanding <= set(engine.cancelled)
    assert engine.poll(0) == []


@pytest.mark.hazard("C30")
def test_replies_nobody_waits_for_are_dropped() -> None:
    class Chatty(LateEngine):
        """Sends everything twice and something nobody asked."""

        def poll(self, timeout: float) -> list[tuple[str, Completion]]:
            finished = super().poll(timeout)
            return [("99/0", Completion("spam")), *finished, *finished]

    (outcome,) = drive([talk("a")], Chatty(echo))
    assert outcome.result == expected("a")


def test_an_unknown_schedule_and_max_live_0_are_refused_before_anything_runs() -> None:
    with pytest.raises(ValueError, match="the schedules are: rounds, continuous"):
        drive([], LateEngine(echo), schedule="lockstep")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="max_live must be at least 1, got 0"):
        drive([], LateEngine(echo), max_live=0)


def test_ask_one_by_one_drives_a_debate_with_a_plain_function() -> None:
    asked: list[list[dict[str, str]]] = []

    def chat(messages: list[dict[str, str]]) -> str:
        asked.append(messages)
        return f"<think>hm</think>re: {messages[-1]['content']}"

    assert ask_one_by_one(talk("a"), chat) == expected("a")
    assert asked[0] == [{"role": "user", "content": "a.0.0"}]
