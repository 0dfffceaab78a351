"""The baselines that look at their own answers. Run: pytest tests/protocols/test_baselines.py"""

from typing import Any

import pytest

from debate_local.core.chat import ChatRequest, Completion
from debate_local.core.transcript import Transcript
from debate_local.protocols.debate import debate
from debate_local.protocols.reflection import reflection
from debate_local.protocols.self_consistency import self_consistency
from debate_local.protocols.self_refine import self_refine
from debate_local.protocols.single import single
from tests.protocols.scene import hold, refusal


def reply(request: ChatRequest) -> Completion:
    agent, round, *step = request.id.split(".")
    return Completion("It lacks a step." if step else f"Answer: {int(agent) + int(round)}")


def shape(transcript: Transcript) -> list[tuple[int, int, str]]:
    return [(turn.agent, turn.round, turn.step) for turn in transcript.turns]


def test_reflection_criticises_and_revises_in_one_reply_and_debate_alone_verifies() -> None:
    own, verified = hold(reflection, reply, rounds=3), hold(debate, reply, agents=1, rounds=3)
    assert shape(own) == shape(verified) == [(0, 0, ""), (0, 1, ""), (0, 2, "")]
    assert own.turns[0].request == verified.turns[0].request
    critique, check = (done.turns[1].request.messages[-1].content for done in (own, verified))
    assert "strict examiner" in critique
    assert "Check your answer once more" in check


def test_reflection_keeps_its_whole_conversation_and_its_last_answer_counts() -> None:
    done = hold(reflection, reply, agents=2, rounds=3)
    assert [len(turn.request.messages) for turn in done.turns if turn.agent == 1] == [1, 3, 5]
    assert done.decision.counts == (("2", 1.0), ("3", 1.0))
    assert all(turn.heard == () for turn in done.turns)


def test_self_refine_asks_for_feedback_and_then_for_a_better_answer() -> None:
    done = hold(self_refine, reply, iterations=2)
    assert shape(done) == [(0, 0, ""), (0, 1, "feedback"), (0, 1, ""), (0, 2, "feedback"), (0, 2, "")]
    feedback, refined = done.turns[1], done.turns[2]
    assert (feedback.role, feedback.answer.missing) == ("critic", True)
    assert refined.request.messages[-2].content == "It lacks a step."
    assert done.decision.answer.value == "2"


def test_self_refine_with_samples_is_a_vote_among_refined_answers() -> None:
    def agreeing(request: ChatRequest) -> Completion:
        agent, round, *_ = request.id.split(".")
        return Completion(f"Answer: {agent if round == '0' or agent == '2' else 7}")

    done = hold(self_refine, agreeing, samples=3, iterations=1)
    assert done.decision.counts == (("7", 2.0), ("2", 1.0))
    # Feedback is no vote.
    assert done.decision.eligible == 3


def test_round_0_of_every_baseline_is_the_same_requests() -> None:
    first = [turn.request for turn in hold(self_consistency, reply, samples=2).turns]
    for done in (
        hold(single, reply, agents=2),
        hold(reflection, reply, agents=2),
        hold(self_refine, reply, samples=2),
        hold(debate, reply, agents=2),
    ):
        assert [turn.request for turn in done.turns if turn.round == 0] == first


def test_chain_of_thought_is_asked_for_once_and_only_where_it_is_wanted() -> None:
    for protocol in (single, self_consistency, reflection, self_refine, debate):
        with_cot, without = hold(protocol, reply, cot=True), hold(protocol, reply)
        for turn in with_cot.turns:
            assert sum("Think step by step" in message.content for message in turn.request.messages) == 1
        assert not any("step by step" in m.content for turn in without.turns for m in turn.request.messages)


@pytest.mark.parametrize(
    ("protocol", "options", "says"),
    [
        (single, {"agents": 0}, "protocol.agents must be at least 1, got 0"),
        (self_consistency, {"samples": 0}, "protocol.samples must be at least 1, got 0"),
        (reflection, {"agents": 0}, "protocol.agents must be at least 1, got 0"),
        (reflection, {"rounds": 0}, "protocol.rounds must be at least 1"),
        (self_refine, {"samples": 0}, "protocol.samples must be at least 1, got 0"),
        (self_refine, {"iterations": 0}, "without any it is protocol=self_consistency"),
        (single, {"evidence_parts": 2}, "protocol.evidence_parts=2 deals out evidence, but none is shown"),
        (self_refine, {"evidence": "all", "evidence_parts": 0}, "protocol.evidence_parts must be at least 1, or null"),
    ],
)
def test_options_that_cannot_be_are_refused(protocol: Any, options: dict[str, Any], says: str) -> None:
    assert says in refusal(protocol, **options)
