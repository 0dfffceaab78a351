"""Laws that hold for every protocol: whatever lies in debate_local/protocols is found and tested here.

Options are made from the signature. Run: pytest tests/protocols/test_protocols.py
"""

import importlib
import inspect
import pkgutil
import typing
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import debate_local.protocols
from debate_local.core.chat import ChatRequest, Completion, Engine, Sampling, request_key
from debate_local.core.protocol import facts_of
from debate_local.core.scheduler import Schedule, drive
from debate_local.core.setting import Agent, Setting
from debate_local.core.transcript import Debate, Item, Transcript
from debate_local.engines.cache import CachedEngine
from tests.fakes import LateEngine, Sums, marked, marker

# Protocols whose agents speak one after another within a round, and so read texts of their own round.
IN_TURN: set[str] = set()

NAMES = [
    module.name
    for module in pkgutil.iter_modules(debate_local.protocols.__path__)
    if hasattr(importlib.import_module(f"debate_local.protocols.{module.name}"), module.name)
]
EVERY_PROTOCOL = pytest.mark.parametrize("name", NAMES)


def function(name: str) -> Callable[..., Debate]:
    found: Callable[..., Debate] = getattr(importlib.import_module(f"debate_local.protocols.{name}"), name)
    return found


def values(hint: Any, default: Any) -> st.SearchStrategy[Any]:
    """Values for one option, from its type: small numbers, all the words of a Literal, else the default."""
    alternatives = typing.get_args(hint)
    if typing.get_origin(hint) is typing.Literal:
        return st.sampled_from(alternatives)
    if type(None) in alternatives:
        return st.none() | values(next(a for a in alternatives if a is not type(None)), default)
    if hint is bool:
        return st.booleans()
    if hint is int:
        return st.integers(1, 4)
    if hint is float:
        return st.floats(0, 1)
    return st.just(default)


@st.composite
def options(draw: st.DrawFn, name: str) -> dict[str, Any]:
    """Options of a protocol that its own check accepts."""
    hints = typing.get_type_hints(function(name))
    parameters = inspect.signature(function(name)).parameters.values()
    drawn = {
        p.name: draw(values(hints[p.name], p.default)) for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY
    }
    check = facts_of(function(name)).check
    try:
        if check:
            check(**drawn)
    except ValueError:
        assume(False)
    return drawn


def setting_of(name: str, seed: int = 0, cast: Sequence[Agent] = (Agent(),)) -> Setting:
    return Setting(Sums(), cast, seed, facts_of(function(name)).checked_templates({}))


CASTS = st.sampled_from(
    [
        (Agent(),),
        (Agent(persona="You doubt everything."), Agent(sampling=Sampling(temperature=0.3, max_tokens=50))),
        (Agent(sampling=Sampling(temperature=0.0)), Agent(prefill="Well, ")),
    ]
)


@dataclass(frozen=True)
class Run:
    """One way to run debates."""

    schedule: Schedule
    max_live: int
    seed: int
    slowest: int


RUNS = st.builds(
    Run, st.sampled_from(["rounds", "continuous"]), st.integers(1, 6), st.integers(0, 10**6), st.integers(1, 6)
)


def transcripts(debates: Sequence[Debate], engine: Engine, run: Run | None = None) -> list[Transcript]:
    """The transcripts in order; a debate that raised is a failure of the test."""
    run = run or Run("rounds", 1, 0, 1)
    found = []
    for outcome in drive(debates, engine, schedule=run.schedule, max_live=run.max_live):
        if outcome.error:
            raise outcome.error
        assert outcome.result is not None
        found.append(outcome.result)
    return found


@EVERY_PROTOCOL
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_transcripts_do_not_depend_on_schedule_batch_order_max_live_shard_or_sharing(
    name: str, data: st.DataObject
) -> None:
    chosen = data.draw(options(name))
    setting = setting_of(name, data.draw(st.integers(0, 99)), data.draw(CASTS))
    items = Sums(4).items()
    alone = {
        item.id: transcripts([function(name)(item, setting, **chosen)], LateEngine(marked, slowest=1))[0]
        for item in items
    }
    shard = data.draw(st.lists(st.sampled_from(items), min_size=1, unique_by=lambda item: item.id))
    run = data.draw(RUNS)
    engine: Engine = LateEngine(marked, run.seed, run.slowest)
    if data.draw(st.booleans()):
        engine = CachedEngine(engine, None, "off")
    together = transcripts([function(name)(item, setting, **chosen) for item in shard], engine, run)
    engine.close()
    assert together == [alone[item.id] for item in shard]


@EVERY_PROTOCOL
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_a_rounds_prompts_hold_texts_of_earlier_rounds_only(name: str, data: st.DataObject) -> None:
    chosen = data.draw(options(name))
    debates = [function(name)(item, setting_of(name), **chosen) for item in Sums(3).items()]
    done = transcripts(debates, LateEngine(marked), Run("rounds", 9, 0, 4))
    # Texts of other items count too: one debate never reads another.
    said = {marker(turn.request): (debate, turn.round) for debate, one in enumerate(done) for turn in one.turns}
    for debate, one in enumerate(done):
        for turn in one.turns:
            prompt = "\n".join(message.content for message in turn.request.messages)
            for word, (of, round) in said.items():
                if word in prompt:
                    assert of == debate
                    assert round < turn.round or (name in IN_TURN and round == turn.round)


@EVERY_PROTOCOL
@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_heard_names_exactly_the_others_whose_text_is_in_the_prompt(name: str, data: st.DataObject) -> None:
    chosen = data.draw(options(name))
    (done,) = transcripts([function(name)(Sums().items()[0], setting_of(name), **chosen)], LateEngine(marked))
    said = {(turn.agent, turn.round): marker(turn.request) for turn in done.turns if not turn.step}
    for turn in done.turns:
        last = turn.request.messages[-1].content
        in_prompt = {who for who, word in said.items() if who[0] != turn.agent and word in last}
        assert set(turn.heard) == in_prompt


def counted(debate: Debate, sizes: list[int]) -> Debate:
    """The same debate, keeping how many requests each of its yields holds."""
    try:
        requests = next(debate)
        while True:
            sizes.append(len(requests))
            requests = debate.send((yield requests))
    except StopIteration as stop:
        result: Transcript = stop.value
        return result


@EVERY_PROTOCOL
@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_rounds_submits_once_a_round_over_all_live_debates_and_no_yield_is_empty(
    name: str, data: st.DataObject
) -> None:
    chosen = data.draw(options(name))
    items = Sums(4).items()
    sizes: list[list[int]] = [[] for _ in items]
    engine = LateEngine(marked, seed=1)
    debates = [
        counted(function(name)(item, setting_of(name), **chosen), sizes[place]) for place, item in enumerate(items)
    ]
    transcripts(debates, engine, Run("rounds", 99, 0, 4))
    assert all(size > 0 for one in sizes for size in one)
    yields = max(len(one) for one in sizes)
    expected = [sum(one[number] for one in sizes if number < len(one)) for number in range(yields)]
    assert [len(batch) for batch in engine.submitted] == expected


FAULTS: dict[str, Callable[[ChatRequest], Completion]] = {
    "empty": lambda request: Completion("", raw=""),
    "blank": lambda request: Completion(" \n", raw=" \n"),
    "truncated": lambda request: Completion("First I", raw="First I", finish_reason="length", generated_tokens=2),
    "clipped": lambda request: Completion("First", raw="First", finish_reason="length", clipped=True),
    "thinking": lambda request: Completion("", "and so", "<think>and so", finish_reason="length"),
    "failed": lambda request: Completion.failure("out of memory"),
    "too_long": lambda request: Completion.failure("prompt of 9000 tokens", "too_long"),
    "no answer": lambda request: Completion(f"{marker(request)} I cannot say."),
    "fine": marked,
}


def faulty(kinds: Sequence[str]) -> Callable[[ChatRequest], Completion]:
    """Each request meets one of these fates, chosen by its content."""
    return lambda request: FAULTS[kinds[int(request_key(request, "fate"), 16) % len(kinds)]](request)


@EVERY_PROTOCOL
@given(data=st.data(), kinds=st.lists(st.sampled_from(sorted(FAULTS)), min_size=1, max_size=4))
@settings(max_examples=60, deadline=None)
def test_it_ends_whatever_comes_back(name: str, data: st.DataObject, kinds: list[str]) -> None:
    chosen = data.draw(options(name))
    engine = LateEngine(faulty(kinds), seed=3)
    items = Sums(3).items()
    done = transcripts([function(name)(item, setting_of(name), **chosen) for item in items], engine)
    assert len(engine.requests) <= len(items) * facts_of(function(name)).calls(**chosen)
    for item, transcript in zip(items, done, strict=True):
        assert transcript.item_id == item.id
        if not {"fine"} & set(kinds):
            # Nobody gave an answer, so nobody is right by accident.
            assert all(answer.missing for answer in transcript.decision.answers)


@EVERY_PROTOCOL
@given(data=st.data(), kinds=st.lists(st.sampled_from(sorted(FAULTS)), min_size=1, max_size=4))
@settings(max_examples=40, deadline=None)
def test_roles_alternate_and_no_message_is_empty_whatever_came_back(
    name: str, data: st.DataObject, kinds: list[str]
) -> None:
    # Hazard B20: chat templates refuse two turns of one role in a row.
    chosen = data.draw(options(name))
    engine = LateEngine(faulty(kinds), seed=3)
    transcripts([function(name)(Sums().items()[0], setting_of(name), **chosen)], engine)
    for request in engine.requests:
        roles = [message.role for message in request.messages if message.role != "system"]
        assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"]
        assert all(message.content.strip() for message in request.messages)


@EVERY_PROTOCOL
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_the_number_of_requests_is_what_its_facts_say(name: str, data: st.DataObject) -> None:
    chosen = data.draw(options(name))
    # So many answers that nobody ever agrees: no debate ends early.
    engine = LateEngine(lambda request: marked(request, answers=10**12))
    transcripts([function(name)(Sums().items()[0], setting_of(name), **chosen)], engine)
    assert len(engine.requests) == facts_of(function(name)).calls(**chosen)


@pytest.mark.parametrize(
    ("name", "chosen", "calls"),
    [
        ("debate", {"agents": 3, "rounds": 2}, 6),
        ("debate", {"agents": 1, "rounds": 3}, 3),
        ("debate", {"agents": 3, "rounds": 2, "topology": "none"}, 6),
        ("self_consistency", {"samples": 5}, 5),
        ("single", {"agents": 3}, 3),
    ],
)
def test_calls_of_the_well_known_settings(name: str, chosen: dict[str, Any], calls: int) -> None:
    assert facts_of(function(name)).calls(**chosen) == calls


@EVERY_PROTOCOL
def test_its_docstring_gives_the_number_of_calls(name: str) -> None:
    assert "Calls: " in (importlib.import_module(f"debate_local.protocols.{name}").__doc__ or "")


@EVERY_PROTOCOL
@given(data=st.data())
@settings(max_examples=20, deadline=None)
def test_turns_are_in_order_and_each_request_is_one_turn(name: str, data: st.DataObject) -> None:
    chosen = data.draw(options(name))
    engine = LateEngine(marked, seed=5)
    (done,) = transcripts([function(name)(Sums().items()[0], setting_of(name), **chosen)], engine)
    assert len(done.turns) == len(engine.requests)
    order = [(turn.round, turn.agent) for turn in done.turns]
    assert name in IN_TURN or order == sorted(order)


def cells(agents: Sequence[int], rounds: Sequence[int], item: Item, setting: Setting) -> Iterator[Debate]:
    for some in agents:
        for many in rounds:
            yield function("debate")(item, setting, agents=some, rounds=many)


def test_agents_1_to_5_by_rounds_1_to_4_send_50_of_150_requests_an_item() -> None:
    items = Sums(2).items()
    inner = LateEngine(lambda request: marked(request, answers=10**12), seed=2)
    engine = CachedEngine(inner, None, "off")
    setting = setting_of("debate")
    debates = [debate for item in items for debate in cells(range(1, 6), range(1, 5), item, setting)]
    done = transcripts(debates, engine, Run("continuous", 99, 0, 4))
    assert sum(len(one.turns) for one in done) == 150 * len(items)
    assert engine.sent == len(inner.requests) == 50 * len(items)


def test_round_0_of_debate_is_self_consistency_and_single() -> None:
    item, setting = Sums().items()[0], setting_of("debate", seed=4)
    debate, votes, alone = transcripts(
        [
            function("debate")(item, setting, agents=3, rounds=2),
            function("self_consistency")(item, setting, samples=3),
            function("single")(item, setting, agents=3),
        ],
        LateEngine(marked),
    )
    first = [turn.completion for turn in debate.turns if turn.round == 0]
    assert first == [turn.completion for turn in votes.turns] == [turn.completion for turn in alone.turns]


def test_greedy_agents_with_equal_prompts_are_asked_once() -> None:
    item = Sums().items()[0]
    setting = setting_of("debate", cast=(Agent(sampling=Sampling(temperature=0.0)),))
    inner = LateEngine(marked)
    engine = CachedEngine(inner, None, "off")
    (done,) = transcripts([function("debate")(item, setting, agents=3, rounds=1)], engine)
    assert len(done.turns) == 3
    assert len(inner.requests) == 1


def generators_only(name: str) -> Generator[Any, Any, Any]:
    return function(name)(Sums().items()[0], setting_of(name))


@EVERY_PROTOCOL
def test_calling_it_does_nothing_until_it_is_driven(name: str) -> None:
    assert inspect.getgeneratorstate(generators_only(name)) == inspect.GEN_CREATED
