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
from debate_local.core.decisions import ASKED, deciding
from debate_local.core.protocol import facts_of
from debate_local.core.scheduler import Schedule, drive
from debate_local.core.setting import Agent, Setting
from debate_local.core.transcript import Debate, Item, Transcript, Turn
from debate_local.core.voting import spelled
from debate_local.engines.cache import CachedEngine
from tests.fakes import LateEngine, marked, marker
from tests.protocols.scene import Known, defaults, function, setting_for

pytestmark = pytest.mark.slow

NAMES = [
    module.name
    for module in pkgutil.iter_modules(debate_local.protocols.__path__)
    if hasattr(importlib.import_module(f"debate_local.protocols.{module.name}"), module.name)
]
# Those whose agents always speak one after another, and who end a round with a judge of what was said in it.
IN_TURN = ("mad",)
EVERY_PROTOCOL = pytest.mark.parametrize("name", NAMES)


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


# Options whose type does not say what they may be.
WORDS: dict[str, st.SearchStrategy[Any]] = {
    "topology": st.sampled_from(["full", "none", "ring", "star", "nearest:1", "nearest:2", "random:0.5"]),
    "threshold": st.none() | st.sampled_from([0.5, 0.6667, 1.0]),
    "peer_tokens": st.none() | st.integers(32, 64),
    "shots": st.integers(1, 4),
    "summary_from": st.none() | st.integers(1, 4),
    "odd_one_out": st.none() | st.integers(1, 3),
    "evidence_parts": st.none() | st.integers(0, 3),
    "level": st.integers(0, 3),
    "reasks": st.integers(0, 2),
    "roles": st.sampled_from(
        [
            ({"name": "a", "instructions": "Be a."}, {"name": "b", "instructions": "Be b.", "sees": ["a"]}),
            ({"name": "a", "instructions": "Be a.", "speaks": "first"}, {"name": "b", "instructions": "Be b."}),
            (
                {"name": "a", "instructions": "Be a."},
                {"name": "b", "instructions": "Be b.", "sees": []},
                {"name": "c", "instructions": "Be c.", "speaks": "later"},
            ),
        ]
    ),
}


@st.composite
def options(draw: st.DrawFn, name: str) -> dict[str, Any]:
    """Options of a protocol that its own check accepts: its sizes drawn, and some others changed from the default."""
    hints = typing.get_type_hints(function(name))
    given = defaults(function(name))
    sizes = [key for key in given if hints[key] is int and key in ("agents", "rounds", "samples", "iterations")]
    others = draw(st.lists(st.sampled_from(sorted(given)), max_size=4, unique=True))
    for key in (*sizes, *others):
        given[key] = draw(WORDS[key] if key in WORDS else values(hints[key], given[key]))
    # What belongs together.
    if given.get("grouped") is False:
        given["groups"] = None
    if given.get("stop") == "threshold":
        given["threshold"] = given["threshold"] or 0.6
    elif "threshold" in given:
        given["threshold"] = None
    if given.get("show_confidence"):
        given["confidence"] = "verbal"
    if given.get("evidence") == "none":
        given["evidence_parts"] = None
    check = facts_of(function(name)).check
    try:
        if check:
            check(**given)
    except ValueError:
        assume(False)
    return given


def setting_of(name: str, seed: int = 0, cast: Sequence[Agent] = (Agent(),)) -> Setting:
    return setting_for(function(name), cast, seed, Known(4))


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
@pytest.mark.hazard("D16")
def test_transcripts_do_not_depend_on_schedule_batch_order_max_live_shard_or_sharing(
    name: str, data: st.DataObject
) -> None:
    chosen = data.draw(options(name))
    setting = setting_of(name, data.draw(st.integers(0, 99)), data.draw(CASTS))
    items = Known(4).items()
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


def may_read(name: str, chosen: dict[str, Any], reader: Turn, read: Turn) -> bool:
    """May the text of one turn be in another's prompt? Of its own round only a summary, or in turn an earlier one's.

    What a judge says is read by nobody but itself, when it is asked again.
    """
    if read.role == "judge":
        return (reader.role, reader.round) == (read.role, read.round) and read.step < reader.step
    if read.round < reader.round:
        return True
    in_turn = chosen.get("order") == "sequential" and read.agent < reader.agent
    in_turn |= name in IN_TURN and (reader.role == "judge" or read.agent < reader.agent)
    helped = read.agent == reader.agent and bool(read.step) and not reader.step
    return read.round == reader.round and (in_turn or helped)


@EVERY_PROTOCOL
@given(data=st.data())
@settings(max_examples=60, deadline=None)
@pytest.mark.hazard("D17")
def test_a_rounds_prompts_hold_texts_of_earlier_rounds_only(name: str, data: st.DataObject) -> None:
    chosen = data.draw(options(name))
    assume(not chosen.get("noise"))
    debates = [function(name)(item, setting_of(name), **chosen) for item in Known(3).items()]
    done = transcripts(debates, LateEngine(marked), Run("rounds", 9, 0, 4))
    # Texts of other items count too: one debate never reads another.
    said = {marker(turn.request): (debate, turn) for debate, one in enumerate(done) for turn in one.turns}
    for debate, one in enumerate(done):
        for turn in one.turns:
            prompt = "\n".join(message.content for message in turn.request.messages)
            for word, (of, other) in said.items():
                if word in prompt:
                    assert of == debate
                    assert may_read(name, chosen, turn, other)


@EVERY_PROTOCOL
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_heard_names_exactly_the_others_whose_text_is_in_the_prompt(name: str, data: st.DataObject) -> None:
    chosen = data.draw(options(name))
    (done,) = transcripts([function(name)(Known().items()[0], setting_of(name), **chosen)], LateEngine(marked))
    said = {(turn.agent, turn.round): marker(turn.request) for turn in done.turns if not turn.step}
    # An answer or a summary stands for the text; the odd one out has no turn.
    whole = chosen.get("peers", "full") == "full" and chosen.get("summary_from") is None
    for turn in done.turns:
        # Who is asked again has been told before.
        told = [message.content for message in turn.request.messages]
        last = "\n".join(told) if "again" in turn.step else told[-1]
        in_prompt = {who for who, word in said.items() if who[0] != turn.agent and word in last}
        heard = {who for who in turn.heard if who[0] + 1 != chosen.get("odd_one_out")}
        assert heard == in_prompt if whole or turn.role == "summariser" else heard >= in_prompt


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
    items = Known(4).items()
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
    items = Known(3).items()
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
    transcripts([function(name)(Known().items()[0], setting_of(name), **chosen)], engine)
    for request in engine.requests:
        roles = [message.role for message in request.messages if message.role != "system"]
        assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"]
        assert all(message.content.strip() for message in request.messages)


@EVERY_PROTOCOL
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_the_number_of_requests_is_what_its_facts_say(name: str, data: st.DataObject) -> None:
    chosen = data.draw(options(name))
    # Half of two is one, who agrees with itself.
    assume((chosen.get("threshold") or 1) > 0.5)
    # So many answers that nobody ever agrees: no debate ends early.
    engine = LateEngine(lambda request: marked(request, answers=10**12))
    transcripts([function(name)(Known().items()[0], setting_of(name), **chosen)], engine)
    calls = facts_of(function(name)).calls(**chosen)
    # In a graph drawn at random somebody may hear nobody, and needs no summary.
    drawn = str(chosen.get("topology")).startswith("random")
    assert len(engine.requests) <= calls if drawn else len(engine.requests) == calls


DECISIONS = [*ASKED, *(rule for rule in spelled() if "SHARE" not in rule), "threshold:0.5"]


@EVERY_PROTOCOL
@given(
    data=st.data(),
    rule=st.sampled_from(DECISIONS),
    kinds=st.lists(st.sampled_from(sorted(FAULTS)), min_size=1, max_size=4),
)
@settings(max_examples=60, deadline=None)
def test_every_decision_ends_after_every_protocol_whatever_comes_back(
    name: str, data: st.DataObject, rule: str, kinds: list[str]
) -> None:
    chosen = data.draw(options(name))
    whole = deciding(function(name), rule)
    setting = setting_for(whole, data.draw(CASTS), 0, Known(4))
    item = Known().items()[0]
    engine = LateEngine(faulty(kinds), seed=3)
    (plain,) = transcripts([function(name)(item, setting, **chosen)], LateEngine(faulty(kinds), seed=3))
    (done,) = transcripts([whole(item, setting, **chosen)], engine)
    # Only what a decision asks is new, and stands last.
    assert done.turns[: len(plain.turns)] == plain.turns
    assert len(engine.requests) == len(done.turns) <= facts_of(whole).calls(**chosen)
    assert all(turn.role != "debater" for turn in done.turns[len(plain.turns) :])
    assert done.stopped == plain.stopped
    said = {turn.answer.key for turn in plain.turns if turn.role == "debater"}
    assert rule == "mediator" or all(answer.missing or answer.key in said for answer in done.decision.answers)
    assert done.decision.received <= done.decision.eligible


@pytest.mark.parametrize(
    ("name", "chosen", "calls"),
    [
        ("debate", {"agents": 3, "rounds": 2}, 6),
        ("debate", {"agents": 1, "rounds": 3}, 3),
        ("debate", {"agents": 3, "rounds": 2, "topology": "none"}, 6),
        ("debate", {"agents": 5, "rounds": 3, "summary_from": 5}, 25),
        ("debate", {"agents": 4, "rounds": 3, "summary_from": 5}, 12),
        ("debate", {"agents": 3, "rounds": 2, "noise": True}, 9),
        ("debate", {"agents": 3, "rounds": 2, "odd_one_out": 3}, 4),
        ("debate", {"agents": 4, "rounds": 2, "peers": "summary", "topology": "graph", "graph": {"1": [2]}}, 9),
        ("self_consistency", {"samples": 5}, 5),
        ("single", {"agents": 3}, 3),
        ("reflection", {"agents": 1, "rounds": 3}, 3),
        ("self_refine", {"samples": 1, "iterations": 3}, 7),
        ("self_refine", {"samples": 5, "iterations": 2}, 25),
        ("roles", {}, 6),
        ("reconcile", {}, 12),
        ("reconcile", {"agents": 5, "rounds": 2, "samples": "convincing"}, 10),
        ("explained", {"agents": 3}, 6),
        ("mad", {}, 10),
        ("mad", {"agents": 4, "rounds": 1}, 6),
        ("mad", {"rounds": 5, "adaptive_break": False}, 16),
        ("mad", {"base_answer": "given", "reasks": 1}, 15),
    ],
)
def test_calls_of_the_well_known_settings(name: str, chosen: dict[str, Any], calls: int) -> None:
    assert facts_of(function(name)).calls(**defaults(function(name), **chosen)) == calls
    engine = LateEngine(lambda request: marked(request, answers=10**12))
    transcripts([function(name)(Known().items()[0], setting_of(name), **chosen)], engine)
    assert len(engine.requests) == calls


@EVERY_PROTOCOL
def test_its_docstring_gives_the_number_of_calls(name: str) -> None:
    assert "Calls: " in (importlib.import_module(f"debate_local.protocols.{name}").__doc__ or "")


@EVERY_PROTOCOL
@given(data=st.data())
@settings(max_examples=20, deadline=None)
def test_turns_are_in_order_and_each_request_is_one_turn(name: str, data: st.DataObject) -> None:
    chosen = data.draw(options(name))
    engine = LateEngine(marked, seed=5)
    (done,) = transcripts([function(name)(Known().items()[0], setting_of(name), **chosen)], engine)
    assert len(done.turns) == len(engine.requests)
    # Who is nobody of the cast speaks at the end of a round.
    order = [(turn.round, turn.agent < 0, turn.agent) for turn in done.turns]
    assert order == sorted(order)


def cells(agents: Sequence[int], rounds: Sequence[int], item: Item, setting: Setting) -> Iterator[Debate]:
    for some in agents:
        for many in rounds:
            yield function("debate")(item, setting, agents=some, rounds=many)


def test_agents_1_to_5_by_rounds_1_to_4_send_50_of_150_requests_an_item() -> None:
    items = Known(2).items()
    inner = LateEngine(lambda request: marked(request, answers=10**12), seed=2)
    engine = CachedEngine(inner, None, "off")
    setting = setting_of("debate")
    debates = [debate for item in items for debate in cells(range(1, 6), range(1, 5), item, setting)]
    done = transcripts(debates, engine, Run("continuous", 99, 0, 4))
    assert sum(len(one.turns) for one in done) == 150 * len(items)
    assert engine.sent == len(inner.requests) == 50 * len(items)


def test_round_0_of_debate_is_self_consistency_and_single() -> None:
    item, setting = Known().items()[0], setting_of("debate", seed=4)
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
    item = Known().items()[0]
    setting = setting_of("debate", cast=(Agent(sampling=Sampling(temperature=0.0)),))
    inner = LateEngine(marked)
    engine = CachedEngine(inner, None, "off")
    (done,) = transcripts([function("debate")(item, setting, agents=3, rounds=1)], engine)
    assert len(done.turns) == 3
    assert len(inner.requests) == 1


def generators_only(name: str) -> Generator[Any, Any, Any]:
    return function(name)(Known().items()[0], setting_of(name))


@EVERY_PROTOCOL
def test_calling_it_does_nothing_until_it_is_driven(name: str) -> None:
    assert inspect.getgeneratorstate(generators_only(name)) == inspect.GEN_CREATED
