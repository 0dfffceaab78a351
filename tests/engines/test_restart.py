"""A dead engine is started again, a bounded number of times. Run: pytest tests/engines/test_restart.py"""

from collections.abc import Callable, Sequence

import pytest

from debate_local.core.chat import ChatRequest, Completion, EngineDead
from debate_local.core.scheduler import drive
from debate_local.core.setting import Setting
from debate_local.core.transcript import Transcript
from debate_local.engines.cache import CachedEngine
from debate_local.engines.restart import RestartingEngine
from debate_local.engines.scripted import ScriptedEngine
from debate_local.protocols.self_consistency import self_consistency
from tests.fakes import LateEngine, Sums, marked, request


class Mortal(LateEngine):
    """Answers all at once and dies before a given answer; or dies when it is given work."""

    def __init__(self, lives_for: int, dies_at_submit: bool = False) -> None:
        super().__init__(marked, slowest=1)
        self._left, self._dies_at_submit = lives_for, dies_at_submit

    def submit(self, requests: Sequence[ChatRequest]) -> None:
        if self._dies_at_submit:
            raise EngineDead("no worker")
        super().submit(requests)

    def poll(self, timeout: float) -> list[tuple[str, Completion]]:
        if self._left == 0:
            raise EngineDead(f"worker {id(self) % 7} gone")
        finished = super().poll(timeout)
        rest = {id for id, _ in finished[self._left :]}
        self._waiting += [(0, asked) for asked in self.requests if asked.id in rest]
        finished = finished[: self._left]
        self._left -= len(finished)
        return finished

    def cancel(self, ids: Sequence[str]) -> None:
        if self._left == 0:
            raise EngineDead("gone")
        super().cancel(ids)


class Factory:
    """Makes engines from a list, in order, and keeps them."""

    def __init__(self, *engines: LateEngine) -> None:
        self._coming = list(engines)
        self.made: list[LateEngine] = []

    def __call__(self) -> LateEngine:
        self.made.append(self._coming.pop(0))
        return self.made[-1]


def ask(engine: RestartingEngine, count: int) -> dict[str, Completion]:
    asked = [request(f"q{n}", id=str(n)) for n in range(count)]
    engine.submit(asked)
    answers: dict[str, Completion] = {}
    while len(answers) < count:
        answers.update(engine.poll(0))
    return answers


def right(count: int) -> dict[str, Completion]:
    return {str(n): marked(request(f"q{n}", id=str(n))) for n in range(count)}


def test_a_healthy_engine_is_left_alone() -> None:
    factory = Factory(Mortal(99))
    engine = RestartingEngine(factory)
    assert ask(engine, 5) == right(5)
    engine.close()
    assert len(factory.made) == 1
    assert factory.made[0].closed


def test_what_was_outstanding_is_asked_again_and_nothing_else() -> None:
    factory, reasons = Factory(Mortal(3), Mortal(99)), list[str]()
    engine = RestartingEngine(factory, on_restart=reasons.append)
    answers = ask(engine, 5)
    assert answers == right(5)
    assert len(factory.made[1].requests) == 2
    assert factory.made[0].closed and not factory.made[1].closed
    assert len(reasons) == 1 and "gone" in reasons[0]


def test_a_death_at_submit_is_survived_too() -> None:
    factory = Factory(Mortal(1, dies_at_submit=True), Mortal(99))
    assert ask(RestartingEngine(factory), 3) == right(3)


def test_the_bound_is_on_restarts_without_a_completion_in_between() -> None:
    # Five deaths, but each engine answers something before it dies.
    factory = Factory(*[Mortal(1) for _ in range(5)], Mortal(99))
    assert ask(RestartingEngine(factory, max_restarts=1), 6) == right(6)
    assert len(factory.made) == 6


@pytest.mark.parametrize("max_restarts", [0, 1, 2])
def test_an_engine_that_only_dies_is_given_up_with_its_last_words(max_restarts: int) -> None:
    factory = Factory(*[Mortal(0) for _ in range(max_restarts + 1)])
    engine = RestartingEngine(factory, max_restarts)
    with pytest.raises(EngineDead, match=rf"given up after {max_restarts} restarts .*: worker \d gone") as caught:
        ask(engine, 2)
    assert isinstance(caught.value.__cause__, EngineDead)
    assert len(factory.made) == max_restarts + 1
    engine.close()
    assert all(made.closed for made in factory.made)


def test_an_engine_that_dies_while_it_is_made_or_given_its_work_counts_as_a_restart() -> None:
    def make() -> Callable[[], LateEngine]:
        left = iter([Mortal(0), None, Mortal(9, dies_at_submit=True), Mortal(99)])

        def next_engine() -> LateEngine:
            engine = next(left)
            if engine is None:
                raise EngineDead("no memory to load it")
            return engine

        return next_engine

    assert ask(RestartingEngine(make(), max_restarts=3), 2) == right(2)
    with pytest.raises(EngineDead, match="no worker"):
        ask(RestartingEngine(make(), max_restarts=2), 2)


def test_cancelled_requests_are_not_asked_again() -> None:
    factory = Factory(Mortal(0), Mortal(99))
    engine = RestartingEngine(factory)
    engine.submit([request("a", id="a"), request("b", id="b")])
    # The engine is dead already: cancelling is no error.
    engine.cancel(["a", "unknown"])
    assert engine.poll(0) == []
    assert [asked.id for asked in factory.made[1].requests] == ["b"]


def test_closing_works_before_during_and_after_a_death_and_twice() -> None:
    class DiesAtClose(Mortal):
        def close(self) -> None:
            super().close()
            raise EngineDead("already gone")

    engine = RestartingEngine(Factory(DiesAtClose(0)), max_restarts=0)
    engine.submit([request("a")])
    engine.close()
    with pytest.raises(EngineDead):
        engine.poll(0)
    engine.close()


def test_another_error_is_not_taken_for_a_death() -> None:
    class Broken(LateEngine):
        def poll(self, timeout: float) -> list[tuple[str, Completion]]:
            raise ZeroDivisionError

    factory = Factory(Broken(marked))
    with pytest.raises(ZeroDivisionError):
        ask(RestartingEngine(factory), 1)
    assert len(factory.made) == 1


def test_a_run_through_cache_and_deaths_ends_as_an_undisturbed_one() -> None:
    def answer(asked: ChatRequest) -> Completion:
        return marked(asked)

    def run(dead_after: int | None) -> list[Transcript | None]:
        engine = CachedEngine(RestartingEngine(lambda: ScriptedEngine(answer, dead_after=dead_after)), None, "off")
        debates = [self_consistency(item, Setting(Sums()), samples=5) for item in Sums(10).items()]
        return [outcome.result for outcome in drive(debates, engine, max_live=3)]

    assert run(dead_after=7) == run(dead_after=None)
