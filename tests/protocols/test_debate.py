"""The protocol of Du et al. word for word: whole conversations of one item, kept in golden/ to be read by people.

A golden file that is missing is written, and the test fails until somebody has read it and runs again.
Run: pytest tests/protocols/test_debate.py
"""

from pathlib import Path
from typing import Any

import pytest

from debate_local.core.chat import ChatRequest, Completion
from debate_local.core.protocol import facts_of
from debate_local.core.scheduler import drive
from debate_local.core.setting import Agent, Setting
from debate_local.core.transcript import Transcript, Turn
from debate_local.protocols.debate import debate
from tests.fakes import LateEngine, Sums

GOLDEN = Path(__file__).parent / "golden"
NAMES = ("one", "two", "three")


def said(agent: int, round: int) -> str:
    """What an agent says: its number in round 0; from then on 3, but for the second agent, who never gives in."""
    return f"I am agent {NAMES[agent]} in round {round}. Answer: {agent + 1 if round == 0 or agent == 1 else 3}"


def scripted(request: ChatRequest) -> Completion:
    # The scheduler's id is <debate>/<agent>.<round>.
    agent, round = request.id.split("/")[1].split(".")
    return Completion(said(int(agent), int(round)))


def debated(answer: Any = scripted, cast: tuple[Agent, ...] = (Agent(),), **options: Any) -> Transcript:
    setting = Setting(Sums(), cast, templates=facts_of(debate).checked_templates({}))
    (outcome,) = drive([debate(Sums().items()[0], setting, **options)], LateEngine(answer))
    assert outcome.result is not None, outcome.error
    return outcome.result


def conversation(turns: list[Turn]) -> str:
    """One agent's whole conversation: the prompt of its last turn holds all that went before."""
    last = turns[-1]
    parts = [f"### {message.role}\n\n{message.content}\n" for message in last.request.messages]
    return "\n".join([*parts, f"### assistant (reply)\n\n{last.completion.text}\n"])


def rendered(title: str, transcript: Transcript) -> str:
    """All conversations of a debate, and its decision."""
    agents = sorted({turn.agent for turn in transcript.turns})
    parts = [f"# {title}\n"]
    for agent in agents:
        parts.append(f"## Agent {agent + 1}\n")
        parts.append(conversation([turn for turn in transcript.turns if turn.agent == agent]))
    decision = transcript.decision
    votes = ", ".join(f"{key}: {number:g}" for key, number in decision.counts)
    parts.append(f"## Decision\n\n{decision.rule}: {decision.answer.value} (votes {votes})\n")
    return "\n".join(parts)


@pytest.mark.parametrize(
    ("name", "title", "options"),
    [
        ("debate_3x3", "debate, 3 agents, 3 rounds, topology full", {"agents": 3, "rounds": 3}),
        (
            "debate_3x3_none",
            "debate, 3 agents, 3 rounds, topology none",
            {"agents": 3, "rounds": 3, "topology": "none"},
        ),
        ("debate_1x3", "debate, 1 agent, 3 rounds", {"agents": 1, "rounds": 3}),
    ],
)
def test_conversations_are_word_for_word_those_in_golden(name: str, title: str, options: dict[str, Any]) -> None:
    text = rendered(title, debated(**options))
    path = GOLDEN / f"{name}.md"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        pytest.fail(f"{path} was written: read it against the paper, then run again")
    assert text == path.read_text(encoding="utf-8")


def test_each_prompt_is_the_last_one_with_the_reply_and_one_more_message() -> None:
    turns = debated(agents=3, rounds=3).turns
    for turn in turns:
        if turn.round:
            before = next(t for t in turns if (t.agent, t.round) == (turn.agent, turn.round - 1))
            own = turn.request.messages
            assert own[:-2] == before.request.messages
            assert (own[-2].role, own[-2].content) == ("assistant", before.completion.text)
            assert own[-1].role == "user"


def test_peers_are_the_others_last_replies_in_agent_order() -> None:
    turns = debated(agents=3, rounds=3).turns
    for turn in turns:
        expected = [(agent, turn.round - 1) for agent in range(3) if agent != turn.agent] if turn.round else []
        assert list(turn.heard) == expected
        last = turn.request.messages[-1].content
        places = [last.index(said(agent, round)) for agent, round in expected]
        assert places == sorted(places)
        assert said(turn.agent, turn.round - 1) not in last


def test_all_agents_begin_with_the_same_prompt_and_no_system_message() -> None:
    first = [turn.request for turn in debated(agents=3, rounds=1).turns]
    assert len({request.messages for request in first}) == 1
    assert [message.role for message in first[0].messages] == ["user"]
    assert len({request.sampling.seed for request in first}) == 3


def test_a_persona_is_a_system_message_that_peers_never_see() -> None:
    # Hazard D19: only the reply is passed on, not the speaker's set-up.
    turns = debated(agents=2, rounds=2, cast=(Agent(persona="You are a hawk."), Agent(persona="You are a dove."))).turns
    systems = [[m.content for m in turn.request.messages if m.role == "system"] for turn in turns]
    assert systems == [["You are a hawk."], ["You are a dove."]] * 2
    assert not any("hawk" in m.content for m in turns[3].request.messages[1:])


def test_topology_none_is_as_many_agents_alone() -> None:
    together = debated(agents=3, rounds=3, topology="none").turns
    alone = debated(agents=1, rounds=3).turns
    assert [t.request for t in together if t.agent == 0] == [t.request for t in alone]


def test_an_agent_whose_peers_all_said_nothing_checks_itself() -> None:
    def only_one_speaks(request: ChatRequest) -> Completion:
        return scripted(request) if "/0." in request.id else Completion("")

    turns = debated(only_one_speaks, agents=3, rounds=2).turns
    spoke, silent = turns[3], turns[4]
    alone = debated(agents=1, rounds=2).turns[1]
    assert spoke.request.messages == alone.request.messages
    assert spoke.heard == ()
    # A silent one hears the one who spoke, in one message with the question: roles must alternate.
    assert silent.heard == ((0, 0),)
    assert [message.role for message in silent.request.messages] == ["user"]
    assert said(0, 0) in silent.request.messages[0].content


def test_reasoning_is_not_passed_on() -> None:
    def thinking(request: ChatRequest) -> Completion:
        return Completion("Answer: 3", reasoning="SECRET", raw="<think>SECRET</think>Answer: 3")

    for turn in debated(thinking, agents=3, rounds=3).turns:
        assert not any("SECRET" in message.content for message in turn.request.messages)


def test_the_decision_is_the_majority_of_the_last_round_only() -> None:
    decision = debated(agents=3, rounds=2).decision
    assert (decision.rule, decision.answer.value, decision.counts) == ("majority", "3", (("3", 2.0), ("2", 1.0)))


def test_a_failed_last_turn_is_no_vote_and_its_earlier_answer_is_not_taken_instead() -> None:
    # Hazard D15: nobody falls back to an earlier round unasked.
    def fails_at_the_end(request: ChatRequest) -> Completion:
        return Completion.failure("out of memory") if request.id.endswith(".1") else scripted(request)

    decision = debated(fails_at_the_end, agents=3, rounds=2).decision
    assert decision.answer.missing
    assert (decision.eligible, decision.received) == (3, 0)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"agents": 0, "rounds": 2}, "protocol.agents must be at least 1, got 0"),
        ({"agents": 3, "rounds": 0}, "protocol.rounds must be at least 1 .*, got 0"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, int], says: str) -> None:
    check = facts_of(debate).check
    assert check is not None
    with pytest.raises(ValueError, match=says):
        check(**options)
