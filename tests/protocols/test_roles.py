"""A debate among roles. Run: pytest tests/protocols/test_roles.py"""

from typing import Any

import pytest

from debate_local.core.chat import ChatRequest, Completion
from debate_local.core.protocol import facts_of
from debate_local.core.setting import Agent
from debate_local.core.transcript import Transcript
from debate_local.protocols.roles import ROLES, roles
from tests.protocols.scene import defaults, hold, refusal, setting_for

ADA = {"name": "Ada", "instructions": "Add."}
BEN = {"name": "Ben", "instructions": "Build.", "sees": ["Ada"]}
CEM = {"name": "Cem", "instructions": "Count.", "sees": [], "speaks": "later"}


def reply(request: ChatRequest) -> Completion:
    agent, round = request.id.split(".")[:2]
    return Completion(f"Role {agent} in round {round}. Answer: {agent}")


def spoken(transcript: Transcript) -> list[tuple[int, int, tuple[tuple[int, int], ...]]]:
    return [(turn.round, turn.agent, turn.heard) for turn in transcript.turns]


def test_by_default_two_critics_and_a_synthesizer_who_reads_both_speak_in_turn() -> None:
    done = hold(roles, reply)
    assert [role["name"] for role in ROLES] == ["the positive critic", "the negative critic", "the synthesizer"]
    assert spoken(done)[3:] == [(1, 0, ((1, 0), (2, 0))), (1, 1, ((0, 1), (2, 0))), (1, 2, ((0, 1), (1, 1)))]
    assert [turn.request.messages[0].role for turn in done.turns] == ["system"] * 6
    assert "Reply of the negative critic:\nRole 1 in round 0." in done.turns[3].request.messages[-1].content


def test_a_role_sees_whom_it_is_to_see_and_speaks_when_it_is_to() -> None:
    done = hold(roles, reply, roles=[ADA, BEN, CEM], rounds=3)
    assert spoken(done) == [
        (0, 0, ()),
        (0, 1, ()),
        (1, 0, ((1, 0),)),
        (1, 1, ((0, 1),)),
        (1, 2, ()),
        (2, 0, ((1, 1), (2, 1))),
        (2, 1, ((0, 2),)),
        (2, 2, ()),
    ]
    # Who speaks for the first time and hears nobody is asked the question only.
    first = done.turns[4].request.messages
    assert [message.content for message in first] == ["Count.", "What is 1 + 2? End with `Answer: <number>`."]


@pytest.mark.parametrize(
    ("speaks", "rounds"),
    [("every", [0, 1, 2]), ("first", [0]), ("later", [1, 2]), ("last", [2]), ([0, 2], [0, 2]), ([1, 7], [1])],
)
def test_when_a_role_speaks(speaks: Any, rounds: list[int]) -> None:
    done = hold(roles, reply, roles=[ADA, {**BEN, "speaks": speaks}], rounds=3)
    assert [turn.round for turn in done.turns if turn.agent == 1] == rounds
    assert facts_of(roles).calls(**defaults(roles, roles=[ADA, {**BEN, "speaks": speaks}], rounds=3)) == len(done.turns)


def test_the_cast_gives_models_and_personas_and_roles_their_instructions() -> None:
    cast = (Agent(model="a", persona="You are terse."), Agent(model="b"))
    done = hold(roles, reply, cast=cast, roles=[ADA, BEN])
    assert [turn.request.model for turn in done.turns] == ["a", "b", "a", "b"]
    assert [turn.request.messages[0].content for turn in done.turns[:2]] == ["You are terse.\n\nAdd.", "Build."]
    # Nobody is told another's instructions.
    assert not any("Build." in message.content for message in done.turns[2].request.messages)


def test_all_at_once_everybody_reads_the_round_before() -> None:
    done = hold(roles, reply, order="simultaneous", rounds=3)
    assert all(round == turn.round - 1 for turn in done.turns for _, round in turn.heard)


def test_who_has_not_spoken_yet_blocks_consensus() -> None:
    alike = lambda request: Completion("Answer: 3")  # noqa: E731
    late = {**BEN, "speaks": "later"}
    assert hold(roles, alike, roles=[ADA, late], rounds=4, stop="consensus").rounds == 2
    assert hold(roles, alike, roles=[ADA, BEN], rounds=4, stop="consensus").rounds == 1


def test_the_reflect_control_is_the_same_roles_alone() -> None:
    reflect = facts_of(roles).reflect
    assert reflect is not None
    options = reflect(**defaults(roles, rounds=3))
    assert options is not None
    done = hold(roles, reply, **options)
    assert all(turn.heard == () for turn in done.turns)
    assert len(done.turns) == 9
    assert reflect(**options) is None
    assert reflect(**defaults(roles, rounds=1)) is None


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"rounds": 0}, "protocol.rounds must be at least 1"),
        ({"roles": []}, "protocol.roles is empty"),
        ({"roles": [{"name": "Ada"}]}, "protocol.roles[0].instructions must be a text that is not empty, got None"),
        ({"roles": [{**ADA, "instructions": " "}]}, "protocol.roles[0].instructions must be a text that is not empty"),
        ({"roles": [{**ADA, "name": ""}]}, "protocol.roles[0].name must be a text that is not empty, got ''"),
        ({"roles": [{**ADA, "hears": []}]}, "has no field hears; its fields: name, instructions, sees, speaks"),
        ({"roles": [ADA, ADA]}, "'Ada' is given to several roles"),
        ({"roles": [ADA, {**BEN, "sees": ["Eve"]}]}, "sees must be `all` or a list of other roles (Ada), got ['Eve']"),
        ({"roles": [ADA, {**BEN, "sees": ["Ben"]}]}, "sees must be `all` or a list of other roles (Ada), got ['Ben']"),
        ({"roles": [ADA, {**BEN, "sees": "Ada"}]}, "sees must be `all` or a list of other roles (Ada), got 'Ada'"),
        ({"roles": [ADA, {**BEN, "speaks": "never"}]}, "speaks must be one of every, first, later, last, or a list"),
        ({"roles": [ADA, {**BEN, "speaks": []}]}, "speaks must be one of every, first, later, last, or a list"),
        ({"roles": [{**ADA, "speaks": "first"}]}, "nobody speaks in round 1 of 2"),
        ({"roles": [{**ADA, "speaks": "later"}]}, "nobody speaks in round 0 of 2"),
        ({"stop": "threshold"}, "stop=threshold needs the share"),
    ],
)
def test_a_cast_that_cannot_be_is_refused(options: dict[str, Any], says: str) -> None:
    assert says in refusal(roles, **options)


def test_a_cast_longer_than_the_roles_is_refused() -> None:
    assert "the cast has 4 members and there are 3 roles" in refusal(roles, setting_for(roles, (Agent(),) * 4))
    assert refusal(roles, setting_for(roles, (Agent(),) * 3)) == ""
