"""Several models behind one engine. Run: pytest tests/engines/test_pool.py"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from debate_local.core.chat import ChatRequest, Completion, EngineDead, EngineFailed, Limits, Message
from debate_local.core.protocol import facts_of
from debate_local.core.scheduler import Schedule, drive
from debate_local.core.setting import Agent, Setting
from debate_local.engines.adapters import misfit
from debate_local.engines.cache import CachedEngine
from debate_local.engines.memory import GIB, Footprint, Memory, least
from debate_local.engines.pool import Pool, Share, Switch
from debate_local.engines.restart import RestartingEngine
from debate_local.protocols.debate import debate
from tests.fakes import LateEngine, Sums, marked, request


class World:
    """What the engines of a test share: a journal of what they did, and the memory of one device, in GiB.

    back_after: how often the memory must be looked at until that of a closed engine is back.
    """

    def __init__(self, memory: int = 0, back_after: int = 0) -> None:
        self.journal: list[str] = []
        self.made: list[Member] = []
        self._free, self._back_after = memory, back_after
        self._coming_back: list[list[int]] = []

    def maker(self, name: str, **options: Any) -> Callable[[], "Member"]:
        def make() -> Member:
            self.made.append(Member(self, name, **options))
            return self.made[-1]

        return make

    def makers(self, *names: str, **options: Any) -> dict[str, Callable[[], "Member"]]:
        return {name: self.maker(name, **options) for name in names}

    def took(self, size: int) -> None:
        self._free -= size

    def gave_back(self, size: int) -> None:
        self._coming_back.append([self._back_after, size])

    def free(self) -> int:
        for waiting in self._coming_back:
            waiting[0] -= 1
        self._free += sum(size for looks, size in self._coming_back if looks < 0)
        self._coming_back = [waiting for waiting in self._coming_back if waiting[0] >= 0]
        return self._free * GIB

    @property
    def loads(self) -> list[str]:
        return [line.removeprefix("load ") for line in self.journal if line.startswith("load ")]


class Member(LateEngine):
    """An engine that writes down when it is loaded and closed. It is loaded by its first submit.

    needs: GiB that it says it takes; touches: those of them that it takes at once. lives_for: completions.
    keeps: GiB that it holds in its sleep; None: it cannot sleep. dies_asleep: it does not survive falling asleep.
    """

    def __init__(
        self,
        world: World,
        name: str,
        *,
        models: tuple[str, ...] = ("default",),
        needs: int = 0,
        touches: int | None = None,
        lives_for: int | None = None,
        cannot_start: bool = False,
        context: int | None = None,
        prefill: bool = True,
        slowest: int = 1,
        seed: int = 0,
        speed: int = 0,
        keeps: int | None = None,
        dies_asleep: bool = False,
    ) -> None:
        super().__init__(said_by(name), seed, slowest)
        self._world, self.name = world, name
        self.identity = {model: {"kind": "member", "name": name, "model": model} for model in models}
        self.limits = Limits(context, models, prefill=prefill)
        self._speed = speed
        self.log_path: str | None = None
        self._needs, self._touches = needs, needs if touches is None else touches
        self._lives_for, self._cannot_start, self._loaded = lives_for, cannot_start, False
        self._keeps, self._dies_asleep, self._asleep = keeps, dies_asleep, False
        self.takes_turns = False

    @property
    def facts(self) -> dict[str, Any]:
        return {"engine": "member", "speed": {"rows": self._speed}, "asked": len(self.requests)}

    @property
    def footprint(self) -> Footprint | None:
        needs = self._needs - (self._keeps or 0) * self._asleep
        return Footprint("the device", needs * GIB, self._world.free(), "its size") if self._needs else None

    @property
    def can_sleep(self) -> bool:
        return self.takes_turns and self._keeps is not None and self._loaded

    def sleep(self) -> None:
        assert self._keeps is not None and not self._waiting
        if self._dies_asleep:
            raise EngineDead("worker gone")
        self._asleep = True
        self._world.journal.append(f"{self.name} sleeps")
        self._world.gave_back(self._touches - self._keeps)

    def submit(self, requests: Sequence[ChatRequest]) -> None:
        if self._cannot_start:
            raise EngineFailed("no such weights")
        if self.closed:
            raise EngineDead("this engine is closed; make a new one")
        if self._asleep:
            self._asleep = False
            self._world.journal.append(f"wake {self.name}")
            self._world.took(self._touches - (self._keeps or 0))
        if not self._loaded:
            self._loaded = True
            self._world.journal.append(f"load {self.name}")
            self._world.took(self._touches)
        self._world.journal.append(f"{self.name} gets {len(requests)}")
        super().submit(requests)

    def poll(self, timeout: float) -> list[tuple[str, Completion]]:
        if self._lives_for == 0:
            raise EngineDead("worker gone")
        finished = super().poll(timeout)
        if self._lives_for is not None:
            left = {id for id, _ in finished[self._lives_for :]}
            self._waiting += [(0, asked) for asked in self.requests if asked.id in left]
            finished = finished[: self._lives_for]
            self._lives_for -= len(finished)
        return finished

    def close(self) -> None:
        super().close()
        if self._loaded:
            self._loaded = False
            self._world.journal.append(f"close {self.name}, {len(self._waiting)} lost")
            self._world.gave_back(self._keeps or 0 if self._asleep else self._touches)


def said_by(name: str) -> Callable[[ChatRequest], Completion]:
    """A reply that is a function of the request's content and of who is asked."""

    def answer(asked: ChatRequest) -> Completion:
        own = "" if asked.model == "default" else f".{asked.model}"
        return Completion(f"{name}{own} says: {marked(asked).text}")

    return answer


def questions(model: str, count: int, first: int = 0) -> list[ChatRequest]:
    return [request(f"{model} {n}", f"{model}{n}", model=model) for n in range(first, first + count)]


def finish(pool: Pool | RestartingEngine, count: int) -> dict[str, Completion]:
    """So many completions, by id; each comes once."""
    found: dict[str, Completion] = {}
    while len(found) < count:
        for id, completion in pool.poll(0.01):
            assert id not in found
            found[id] = completion
    assert pool.poll(0) == []
    return found


# What is known without a model


def test_construction_loads_nothing_and_makes_each_engine_once() -> None:
    world = World()
    pool = Pool(world.makers("a", "b"))
    assert pool.identity and pool.limits and pool.facts
    assert world.journal == [] and len(world.made) == 2


def test_a_models_identity_is_its_own_as_if_there_were_no_pool() -> None:
    world = World()
    pool = Pool({"x": world.maker("a"), "y": world.maker("b")})
    assert pool.identity == {
        "x": world.maker("a")().identity["default"],
        "y": world.maker("b")().identity["default"],
    }


def test_limits_are_the_smallest_context_and_the_abilities_of_all() -> None:
    world = World()
    a, b, c = world.maker("a", context=4096), world.maker("b", context=512, prefill=False), world.maker("c")
    limits = Pool({"a": a, "b": b, "c": c}).limits
    assert (limits.context_length, limits.models, limits.prefill) == (512, ("a", "b", "c"), False)
    assert Pool({"a": a, "c": c}).limits.prefill
    assert Pool({"c": c}).limits.context_length is None


def test_a_prompt_counts_as_long_as_the_model_that_needs_most_tokens_makes_it() -> None:
    class Terse(Member):
        def count_tokens(self, messages: Sequence[Message]) -> int:
            return 1

    world = World()
    pool = Pool({"a": lambda: Terse(world, "a"), "b": world.maker("b")})
    assert pool.count_tokens([Message("user", "seven c")]) == 7


@pytest.mark.parametrize(
    ("names", "share", "says"),
    [
        ((), "auto", "at least one model"),
        (("a",), "maybe", "unknown share 'maybe'; it is one of: auto, yes, no"),
        (("a.b",), "auto", "no dot, got 'a.b'"),
        (("",), "auto", "may not be empty"),
    ],
)
def test_what_cannot_be_a_pool_is_refused(names: tuple[str, ...], share: Share, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Pool(World().makers(*names), share)


# Requests


@pytest.mark.parametrize("share", ["auto", "yes", "no"])
def test_each_request_is_answered_by_the_model_it_names(share: Share) -> None:
    world = World()
    pool = Pool(world.makers("a", "b", slowest=3), share)
    asked = [*questions("a", 4), *questions("b", 3)]
    pool.submit(asked)
    found = finish(pool, 7)
    assert found.keys() == {one.id for one in asked}
    for one in asked:
        assert found[one.id].text == f"{one.model} says: {marked(one).text}"


def test_an_unknown_model_is_one_failed_completion_that_lists_the_models_and_loads_nothing() -> None:
    world = World()
    pool = Pool(world.makers("a", "b"))
    pool.submit([*questions("default", 1), *questions("a", 1)])
    ((id, completion),) = pool.poll(0)
    assert id == "default0" and completion.failed
    assert completion.error == "this pool has no model 'default'; its models: a, b"
    assert world.journal == []


def test_a_models_adapters_are_models_behind_its_name() -> None:
    world = World()
    adapted = world.maker("a", models=("default", "tuned"))
    pool = Pool({"a": adapted, "b": world.maker("b")})
    assert pool.limits.models == ("a", "a.tuned", "b")
    assert pool.identity["a.tuned"] == adapted().identity["tuned"]
    pool.submit([*questions("a", 1), *questions("a.tuned", 1)])
    found = finish(pool, 2)
    assert found["a0"].text.startswith("a says") and found["a.tuned0"].text.startswith("a.tuned says")
    assert world.loads == ["a"]


def test_names_of_one_maker_are_one_engine_loaded_once() -> None:
    world = World()
    make = world.maker("a", models=("default", "tuned"))
    pool = Pool({"first": make, "b": world.maker("b"), "second": make}, "no")
    assert pool.limits.models == ("first", "first.tuned", "b", "second", "second.tuned")
    pool.submit([*questions("first", 2), *questions("second", 2)])
    finish(pool, 4)
    assert world.loads == ["a"] and "a gets 4" in world.journal
    assert [member.name for member in world.made] == ["a", "b"]


def test_a_run_in_a_pool_and_a_run_alone_share_the_cache(tmp_path: Path) -> None:
    def asked_through(engine: Any, model: str) -> CachedEngine:
        cached = CachedEngine(engine, tmp_path)
        cached.submit([request(f"q{n}", str(n), model=model) for n in range(5)])
        while cached.sent - cached.stored > 0:
            cached.poll(0)
        cached.close()
        return cached

    world = World()
    assert asked_through(world.maker("a")(), "default").sent == 5
    pooled = asked_through(Pool(world.makers("a", "b")), "a")
    assert (pooled.sent, pooled.hits) == (0, 5)
    assert asked_through(Pool(world.makers("a", "b")), "b").sent == 5
    assert asked_through(world.maker("b")(), "default").sent == 0


def test_cancelled_requests_are_forgotten_wherever_they_are() -> None:
    world = World()
    pool = Pool(world.makers("a", "b", slowest=9, seed=3), "no")
    pool.submit([*questions("a", 3), *questions("b", 2), *questions("c", 1)])
    pool.cancel(["c0", "unknown"])
    assert pool.poll(0) == []
    # a is at work by now, b waits.
    pool.cancel(["a0", "b1"])
    assert world.made[0].cancelled == ["a0"]
    assert finish(pool, 3).keys() == {"a1", "a2", "b0"}
    assert "b gets 1" in world.journal


def test_a_completion_that_comes_after_its_request_was_cancelled_is_dropped() -> None:
    class Deaf(Member):
        def cancel(self, ids: Sequence[str]) -> None:
            """Too late."""

    world = World()
    pool = Pool({"a": lambda: Deaf(world, "a", slowest=5)})
    pool.submit(questions("a", 4))
    early = [id for id, _ in pool.poll(0)]
    left = [id for id in ("a0", "a1", "a2", "a3") if id not in early]
    pool.cancel(left[:1])
    assert finish(pool, len(left) - 1).keys() == set(left[1:])


# Which engine is open


def test_one_at_a_time_is_drained_and_closed_before_the_next_is_loaded() -> None:
    world = World()
    pool = Pool(world.makers("a", "b", slowest=4), "no")
    pool.submit([*questions("a", 3), *questions("b", 2)])
    finish(pool, 5)
    assert world.journal == ["load a", "a gets 3", "close a, 0 lost", "load b", "b gets 2"]
    assert pool.switches == 1


def test_the_model_that_most_requests_wait_for_is_opened_first() -> None:
    world = World()
    pool = Pool(world.makers("a", "b", "c"), "no")
    pool.submit([*questions("a", 2), *questions("b", 1), *questions("c", 5)])
    finish(pool, 8)
    assert world.loads == ["c", "a", "b"]


def test_an_open_engine_is_kept_while_it_has_work_however_many_wait_for_others() -> None:
    world = World()
    pool = Pool(world.makers("a", "b"), "no")
    pool.submit(questions("a", 1))
    assert len(pool.poll(0)) == 1
    for n in range(1, 6):
        pool.submit([*questions("b", 9, first=9 * n), *questions("a", 1, first=n)])
        assert [id for id, _ in pool.poll(0)] == [f"a{n}"]
    assert world.loads == ["a"]
    finish(pool, 45)
    assert world.loads == ["a", "b"]
    # It stays open when it has nothing to do, as long as nobody waits for another.
    pool.submit(questions("b", 1, first=99))
    finish(pool, 1)
    assert world.loads == ["a", "b"]


def test_all_are_open_together_when_sharing_is_asked_for_or_they_take_no_memory() -> None:
    shares: tuple[Share, ...] = ("yes", "auto")
    for share in shares:
        world = World()
        pool = Pool(world.makers("a", "b", "c", slowest=3), share)
        for wave in range(3):
            pool.submit([one for name in "abc" for one in questions(name, 4, first=4 * wave)])
            finish(pool, 12)
        assert sorted(world.loads) == ["a", "b", "c"]
        assert pool.switches == 0 and not [line for line in world.journal if line.startswith("close")]


def test_engines_share_a_device_as_far_as_they_fit() -> None:
    world = World(memory=10)
    pool = Pool({"a": world.maker("a", needs=4), "b": world.maker("b", needs=5), "big": world.maker("big", needs=8)})
    pool.submit([*questions("a", 3), *questions("b", 2), *questions("big", 1)])
    assert len(pool.poll(0)) == 5
    # The large one has to itself what the two had, and they are open together again when it is done.
    pool.poll(0)
    pool.submit([*questions("big", 1, first=1), *questions("a", 1, first=3)])
    assert [id for id, _ in pool.poll(0)] == ["big1"]
    pool.submit(questions("b", 2, first=2))
    finish(pool, 3)
    assert [line for line in world.journal if "gets" not in line] == [
        *("load a", "load b", "close a, 0 lost", "close b, 0 lost"),
        *("load big", "close big, 0 lost", "load b", "load a"),
    ]
    assert pool.switches == 2


def test_memory_that_an_open_engine_has_not_touched_yet_counts_as_taken() -> None:
    world = World(memory=10)
    pool = Pool({"a": world.maker("a", needs=6, touches=1), "b": world.maker("b", needs=6, touches=1)})
    pool.submit([*questions("a", 2), *questions("b", 1)])
    finish(pool, 3)
    assert world.journal.index("close a, 0 lost") < world.journal.index("load b")


def test_memory_that_cannot_be_measured_is_not_shared() -> None:
    class Blind(Member):
        @property
        def footprint(self) -> Footprint:
            return Footprint("gpu", GIB, None)

    world = World()
    pool = Pool({"a": lambda: Blind(world, "a"), "b": lambda: Blind(world, "b")})
    pool.submit([*questions("a", 2), *questions("b", 1)])
    finish(pool, 3)
    assert pool.switches == 1


@pytest.mark.hazard("B14")
def test_the_next_engine_loads_when_the_memory_of_the_closed_one_is_back() -> None:
    world = World(memory=10, back_after=3)
    pool = Pool(world.makers("a", "b", needs=7), "no")
    told: list[Switch] = []
    pool.on_switch = told.append
    pool.submit([*questions("a", 2), *questions("b", 1)])
    finish(pool, 3)
    assert told == [
        Switch((), ("a",), None, 10 * GIB),
        Switch(("a",), ("b",), 3 * GIB, 10 * GIB),
    ]
    assert pool.switches == 1


def happened(world: World) -> list[str]:
    return [line for line in world.journal if "gets" not in line]


def test_an_engine_that_can_sleep_makes_room_by_sleeping_and_is_loaded_once() -> None:
    world = World(memory=10)
    pool = Pool(world.makers("a", "b", needs=7, keeps=1))
    told: list[Switch] = []
    pool.on_switch = told.append
    for wave in range(2):
        pool.submit([*questions("a", 3, first=9 * wave), *questions("b", 2, first=9 * wave)])
        found = finish(pool, 5)
        assert found[f"a{9 * wave}"].text.startswith("a says") and found[f"b{9 * wave}"].text.startswith("b says")
    # b, which is awake, is asked first by the second wave's turn.
    assert happened(world) == ["load a", "a sleeps", "load b", "b sleeps", "wake a"]
    assert told == [
        Switch((), ("a",), None, 10 * GIB),
        Switch((), ("b",), 3 * GIB, 9 * GIB, slept=("a",)),
        Switch((), ("a",), 2 * GIB, 8 * GIB, slept=("b",), woken=True),
    ]
    assert [switch.plain for switch in told] == [True, False, False]
    assert pool.switches == 2
    pool.close()
    assert set(happened(world)[5:]) == {"close a, 0 lost", "close b, 0 lost"}
    assert world.free() == 10 * GIB


def test_what_sleepers_keep_is_taken_from_them_when_it_is_too_much_and_they_are_not_asked_again() -> None:
    world = World(memory=10)
    pool = Pool({"a": world.maker("a", needs=6, keeps=2), "big": world.maker("big", needs=9)})
    told: list[Switch] = []
    pool.on_switch = told.append
    for wave in range(2):
        pool.submit(questions("a", 1, first=wave))
        finish(pool, 1)
        pool.submit(questions("big", 1, first=wave))
        finish(pool, 1)
    first, second = ["load a", "a sleeps", "close a, 0 lost", "load big"], ["close big, 0 lost", "load a"]
    assert happened(world) == [*first, *second, "close a, 0 lost", "load big"]
    assert told[1] == told[3] == Switch(("a",), ("big",), 4 * GIB, 10 * GIB)


def test_who_falls_asleep_and_who_is_closed_is_each_engines_own_ability() -> None:
    world = World(memory=10)
    sleeper, other = world.maker("a", needs=3, keeps=0), world.maker("b", needs=3)
    pool = Pool({"a": sleeper, "b": other, "big": world.maker("big", needs=8)})
    told: list[Switch] = []
    pool.on_switch = told.append
    pool.submit([*questions("a", 2), *questions("b", 1)])
    finish(pool, 3)
    pool.submit(questions("big", 1))
    finish(pool, 1)
    assert happened(world) == ["load a", "load b", "a sleeps", "close b, 0 lost", "load big"]
    assert told[-1] == Switch(("b",), ("big",), 4 * GIB, 10 * GIB, slept=("a",))


def test_an_engine_that_wakes_beside_others_is_told_of() -> None:
    world = World(memory=10)
    pool = Pool(
        {"a": world.maker("a", needs=3, keeps=0), "big": world.maker("big", needs=8), "b": world.maker("b", needs=3)}
    )
    told: list[Switch] = []
    pool.on_switch = told.append
    for turn, model in enumerate(["a", "big", "b", "a"]):
        pool.submit(questions(model, 1, first=turn))
        finish(pool, 1)
    assert happened(world) == ["load a", "a sleeps", "load big", "close big, 0 lost", "load b", "wake a"]
    assert told[-1] == Switch((), ("a",), None, 7 * GIB, woken=True)
    assert not told[-1].plain


def test_an_engine_that_dies_falling_asleep_is_closed_and_nothing_is_lost() -> None:
    world = World(memory=10)
    pool = Pool(world.makers("a", "b", needs=7, keeps=1, dies_asleep=True))
    pool.submit([*questions("a", 3), *questions("b", 2)])
    assert len(finish(pool, 5)) == 5
    assert happened(world) == ["load a", "close a, 0 lost", "load b"]


@pytest.mark.parametrize(
    ("names", "share", "turns"), [("ab", "auto", True), ("ab", "no", True), ("ab", "yes", False), ("a", "auto", False)]
)
def test_engines_are_told_beforehand_whether_others_want_their_memory_in_between(
    names: str, share: Share, turns: bool
) -> None:
    world = World()
    Pool(world.makers(*names), share)
    assert {member.takes_turns for member in world.made} == {turns}


def test_facts_of_a_sleeping_engine_are_its_last(tmp_path: Path) -> None:
    world = World(memory=10)
    pool = Pool(world.makers("a", "b", needs=7, keeps=1))
    pool.submit([*questions("a", 3), *questions("b", 2)])
    finish(pool, 5)
    assert {name: facts["asked"] for name, facts in pool.facts["models"].items()} == {"a": 3, "b": 2}


def test_memory_that_does_not_come_back_is_not_waited_for_without_end() -> None:
    world = World(memory=10, back_after=10**9)
    pool = Pool(world.makers("a", "b", needs=7), "no", memory_wait=0.3)
    pool.submit([*questions("a", 2), *questions("b", 1)])
    assert finish(pool, 3)["b0"].text.startswith("b says")


def test_sharing_that_is_asked_for_and_does_not_fit_is_refused_before_anything_loads() -> None:
    world = World(memory=10)
    pool = Pool({"a": world.maker("a", needs=4), "b": world.maker("b", needs=7), "c": world.maker("c")}, "yes")
    pool.submit(questions("a", 1))
    says = (
        r"do not fit together on the device, as engine\.share=yes asks: a 4\.0 GiB, b 7\.0 GiB are needed, 10\.0 GiB "
        r"are free; engine\.share=auto or no opens one at a time, or lower its size"
    )
    with pytest.raises(EngineFailed, match=says):
        pool.poll(0)
    assert world.journal == []


def test_facts_and_logs_are_kept_by_model(tmp_path: Path) -> None:
    world = World()
    pool = Pool({"a": world.maker("a", speed=1), "b": world.maker("b", speed=2)}, "no")
    pool.log_path = str(tmp_path / "engine.log")
    pool.submit([*questions("a", 2), *questions("b", 1)])
    finish(pool, 3)
    # Those of a are the last that it told before it was closed.
    assert {name: facts["asked"] for name, facts in pool.facts["models"].items()} == {"a": 2, "b": 1}
    assert pool.facts["switches"] == 1
    assert pool.facts["speed"] == {"a": {"rows": 1}, "b": {"rows": 2}}
    loaded = [member for member in world.made if member.requests]
    assert [Path(member.log_path or "").name for member in loaded] == ["engine-a.log", "engine-b.log"]
    # Settings that are equal look like those of a model that runs alone.
    assert Pool(world.makers("a", "b", speed=3)).facts["speed"] == {"rows": 3}


# Debates


def debates(engine: Any, items: int, schedule: Schedule = "rounds", max_live: int = 99, **options: Any) -> Any:
    cast = (Agent(model="a"), Agent(model="b"))
    setting = Setting(Sums(items), cast, templates=facts_of(debate).checked_templates({}))
    asked = [debate(item, setting, **options) for item in Sums(items).items()]
    outcomes = list(drive(asked, engine, schedule=schedule, max_live=max_live, poll_seconds=0.001))
    assert not any(outcome.error for outcome in outcomes)
    return [outcome.result for outcome in outcomes]


def test_a_debate_between_two_models_costs_one_switch_a_wave_and_not_one_a_debate() -> None:
    world = World()
    pool = Pool(world.makers("a", "b", slowest=5), "no")
    found = debates(pool, items=16, agents=2, rounds=3)
    assert len(found) == 16
    assert world.loads == ["a", "b", "a", "b"]
    assert pool.switches == 3
    assert world.journal.count("a gets 16") == world.journal.count("b gets 16") == 3


@given(
    share=st.sampled_from(["auto", "yes", "no"]),
    needs=st.integers(1, 9),
    keeps=st.none() | st.integers(0, 2),
    schedule=st.sampled_from(["rounds", "continuous"]),
    max_live=st.integers(1, 7),
    slowest=st.integers(1, 5),
    seed=st.integers(0, 99),
    agents=st.integers(1, 4),
    rounds=st.integers(1, 3),
)
def test_transcripts_do_not_depend_on_which_engines_are_open(
    share: Share,
    needs: int,
    keeps: int | None,
    schedule: Schedule,
    max_live: int,
    slowest: int,
    seed: int,
    agents: int,
    rounds: int,
) -> None:
    world = World(memory=10)
    needs = min(needs, 5) if share == "yes" else needs
    keeps = None if keeps is None else min(keeps, needs)
    pool = Pool(world.makers("a", "b", needs=needs, keeps=keeps, slowest=slowest, seed=seed), share)
    found = debates(pool, 4, schedule, max_live, agents=agents, rounds=rounds)
    assert found == debates(Pool(World().makers("a", "b")), 4, agents=agents, rounds=rounds)
    # None was ever closed, or put to sleep, while it had work.
    assert all(line.endswith(", 0 lost") for line in world.journal if line.startswith("close"))
    together = share != "no" and needs <= 5
    opened = [line for line in world.journal if line.startswith(("load ", "wake "))]
    assert pool.switches == max(0, len(opened) - (2 if together else 1))


# Ends


def test_a_death_is_told_with_the_models_name_and_what_others_said_is_not_lost() -> None:
    world = World()
    pool = Pool({"a": world.maker("a"), "b": world.maker("b", lives_for=0)}, "yes")
    pool.submit([*questions("a", 2), *questions("b", 2)])
    assert [id for id, _ in sorted(pool.poll(0))] == ["a0", "a1"]
    with pytest.raises(EngineDead, match="model b: worker gone"):
        pool.poll(0)
    with pytest.raises(EngineDead, match="model b: worker gone"):
        pool.submit(questions("a", 1))


def test_a_pool_whose_member_died_is_made_again_and_only_what_was_lost_is_asked_again() -> None:
    world = World()
    lives = iter([None, 2, None, None])

    def make() -> Pool:
        return Pool({name: world.maker(name, lives_for=next(lives)) for name in ("a", "b")}, "no")

    reasons: list[str] = []
    engine = RestartingEngine(make, on_restart=reasons.append)
    asked = [*questions("a", 6), *questions("b", 5)]
    engine.submit(asked)
    found = finish(engine, 11)
    assert {id: completion.text.partition(" ")[0] for id, completion in found.items()} == {
        one.id: one.model for one in asked
    }
    assert reasons == ["model b: worker gone"]
    # The second pool loads b alone, for what the first one left.
    assert world.loads == ["a", "b", "b"] and world.journal[-1] == "b gets 3"


def test_an_engine_that_cannot_start_is_named_and_not_tried_again() -> None:
    world = World()
    pool = Pool({"a": world.maker("a"), "b": world.maker("b", cannot_start=True)}, "no")
    pool.submit([*questions("a", 2), *questions("b", 1)])
    assert len(pool.poll(0)) == 2
    with pytest.raises(EngineFailed, match="model b: no such weights") as caught:
        pool.poll(0)
    assert not isinstance(caught.value, EngineDead)


def test_closing_closes_every_engine_even_when_one_cannot_be_and_twice_is_fine() -> None:
    class Sticky(Member):
        def close(self) -> None:
            super().close()
            raise EngineDead("already gone")

    world = World()
    pool = Pool({"a": world.maker("a"), "b": lambda: Sticky(world, "b"), "c": world.maker("c")}, "yes")
    pool.submit([one for name in "abc" for one in questions(name, 1)])
    pool.poll(0)
    pool_members = list(world.made)
    with pytest.raises(EngineDead, match="already gone"):
        pool.close()
    assert all(member.closed for member in pool_members)
    with pytest.raises(EngineDead, match="closed"):
        pool.submit(questions("a", 1))


def test_a_drained_engine_that_dies_of_being_closed_does_no_harm() -> None:
    class Sticky(Member):
        def close(self) -> None:
            super().close()
            raise EngineDead("already gone")

    world = World()
    pool = Pool({"a": lambda: Sticky(world, "a"), "b": world.maker("b")}, "no")
    pool.submit([*questions("a", 2), *questions("b", 1)])
    assert finish(pool, 3).keys() == {"a0", "a1", "b0"}


# Memory of GPUs, by what nvidia-smi says

TWO_GPUS = "0, GPU-8932f937-d72c, 81920, 80000\n1, GPU-11112222-3333, 40960, 1000\n"
FIRST, SECOND = Memory(81920 << 20, 80000 << 20), Memory(40960 << 20, 1000 << 20)


@pytest.mark.parametrize(
    ("visible", "count", "found"),
    [
        (None, 1, FIRST),
        (None, 2, SECOND),
        ("1", 1, SECOND),
        ("1,0", 1, SECOND),
        ("GPU-8932f937", 1, FIRST),
        ("GPU-11112222-3333, 0", 2, SECOND),
        (None, 3, None),
        ("", 1, None),
        ("0", 2, None),
        ("MIG-GPU-89/1/0", 1, None),
        ("2", 1, None),
    ],
)
def test_the_least_of_the_visible_gpus_counts(visible: str | None, count: int, found: Memory | None) -> None:
    assert least(TWO_GPUS, visible, count) == found


@pytest.mark.parametrize("said", ["", "0, GPU-1, [N/A], [N/A]", "No devices were found"])
def test_gpus_that_tell_nothing_are_unknown(said: str) -> None:
    assert least(said, None, 1) is None


# Adapters of another model


def write_tensors(file: Path, **shapes: list[int]) -> None:
    """A safetensors file by its header alone; the tensors behind it are missing."""
    header = json.dumps(
        {name: {"dtype": "BF16", "shape": shape, "data_offsets": [0, 0]} for name, shape in shapes.items()}
    )
    file.write_bytes(len(header).to_bytes(8, "little") + header.encode())


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    write_tensors(folder / "model.safetensors", **{"model.layers.0.q_proj.weight": [48, 64]})
    return folder


def adapter(folder: Path, layer: str, reads: int, writes: int) -> Path:
    folder.mkdir()
    prefix = f"base_model.model.{layer}"
    shapes = {f"{prefix}.lora_A.weight": [8, reads], f"{prefix}.lora_B.weight": [writes, 8]}
    write_tensors(folder / "adapter_model.safetensors", **shapes)
    return folder


@pytest.mark.parametrize(
    ("layer", "reads", "writes", "says"),
    [
        ("model.layers.0.q_proj", 64, 48, None),
        ("model.layers.0.q_proj", 128, 48, "made for model.layers.0.q_proj of width 128, the model's is 48 x 64"),
        ("model.layers.0.q_proj", 64, 96, "made for model.layers.0.q_proj of width 96, the model's is 48 x 64"),
        ("transformer.h.0.attn", 64, 48, "it changes transformer.h.0.attn, which the model does not have"),
    ],
)
def test_an_adapter_of_another_model_is_told_by_its_shapes(
    model: Path, tmp_path: Path, layer: str, reads: int, writes: int, says: str | None
) -> None:
    found = misfit(adapter(tmp_path / "adapter", layer, reads, writes), model)
    assert found == says if says is None else found is not None and says in found


def test_what_the_files_do_not_tell_is_let_through(model: Path, tmp_path: Path) -> None:
    other = adapter(tmp_path / "adapter", "model.layers.0.q_proj", 128, 48)
    (model / "config.json").write_text('{"quantization_config": {}}')
    assert misfit(other, model) is None
    (tmp_path / "empty").mkdir()
    assert misfit(tmp_path / "empty", model) is None


def test_a_damaged_adapter_is_named(model: Path, tmp_path: Path) -> None:
    other = adapter(tmp_path / "adapter", "model.layers.0.q_proj", 64, 48)
    file = other / "adapter_model.safetensors"
    for damaged in (file.read_bytes()[:40], b"<html>not found</html>", b""):
        file.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"adapter_model\.safetensors is no safetensors file, or damaged"):
            misfit(other, model)


# The engine of vLLM, not loaded


@pytest.mark.vllm
def test_vllm_says_what_it_will_hold_and_refuses_the_adapter_of_another_model(tmp_path: Path) -> None:
    from debate_local.engines.vllm import vllm
    from debate_local.engines.vllm_settings import cpu_build

    small, large = (vllm(kv_cache_gib=size).footprint for size in (0.5, 4.5))  # type: ignore[attr-defined]
    if cpu_build():
        assert large.needed - small.needed == 4 * GIB and small.needed > GIB
        assert small.free and small.lower == "engine.kv_cache_gib"
    other = adapter(tmp_path / "adapter", "model.layers.0.self_attn.q_proj", 4096, 4096)
    (other / "adapter_config.json").write_text('{"r": 8}')
    with pytest.raises(ValueError, match=r"engine\.adapters\.tuned=.* is no adapter of smollm2-135m-instruct: .* 4096"):
        vllm(adapters={"tuned": str(other)})
