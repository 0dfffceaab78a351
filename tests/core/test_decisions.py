"""Decisions after a protocol, and above all those that ask. Run: pytest tests/core/test_decisions.py"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from debate_local.core.chat import ChatRequest, Completion
from debate_local.core.decisions import ASKED, check_decision, deciding
from debate_local.core.protocol import facts_of, protocol
from debate_local.core.scheduler import ask_in_turn
from debate_local.core.setting import Agent, Setting
from debate_local.core.transcript import Debate, Item, Transcript
from debate_local.protocols.debate import debate
from debate_local.protocols.self_consistency import self_consistency
from debate_local.protocols.single import single
from tests.protocols.scene import Known, defaults, hold, refusal, setting_for


def replies(answers: str, *helped: str) -> Callable[[ChatRequest], Completion]:
    """Agents answer a letter of `answers` each (`-`: none, `x`: it fails), helpers one text each, or the last one."""

    def reply(request: ChatRequest) -> Completion:
        agent, _, *step = request.id.split(".")
        if step:
            return Completion(helped[min(max(int(agent), 0), len(helped) - 1)])
        letter = answers[int(agent)]
        if letter == "x":
            return Completion.failure("out of memory")
        return Completion(f"Agent {agent} thinks. " + ("" if letter == "-" else f"Answer: {letter}"))

    return reply


def decided(rule: str, answers: str, *helped: str, **options: Any) -> Transcript:
    return hold(self_consistency, replies(answers, *helped), decision=rule, samples=len(answers), **options)


def test_without_a_word_the_protocol_decides_as_it_does() -> None:
    assert deciding(debate, None) is debate
    assert hold(debate, replies("112"), decision=None).decision.rule == "majority"


def test_a_decision_that_asks_nobody_changes_nothing_but_the_decision() -> None:
    plain = hold(self_consistency, replies("112"), samples=3)
    other = hold(self_consistency, replies("112"), decision="unanimity", samples=3)
    assert other.turns == plain.turns
    assert (other.decision.rule, other.decision.answer.missing) == ("unanimity", True)


@pytest.mark.parametrize(
    ("answers", "verdict", "answer", "received"),
    [
        ("112", "The third is right.\nChoice: C", "2", 1),
        ("112", "Choice: A", "1", 1),
        ("1-2", "Choice: B", None, 1),
        ("112", "I cannot tell.", None, 0),
        ("112", "Choice: D", None, 0),
        ("112", "Choice: A, B", None, 0),
        ("112", "", None, 0),
    ],
)
def test_a_judge_chooses_a_reply_or_none(answers: str, verdict: str, answer: str | None, received: int) -> None:
    done = decided("judge", answers, verdict)
    assert (done.decision.answer.value, done.decision.eligible, done.decision.received) == (answer, 1, received)
    judge = done.turns[-1]
    assert (judge.agent, judge.round, judge.role, judge.step) == (-1, 0, "judge", "judge")
    assert judge.answer.value == answer
    assert judge.heard == tuple((agent, 0) for agent in range(3))


def test_a_mediator_writes_the_answer_itself() -> None:
    done = decided("mediator", "112", "Neither holds. Answer: 5")
    assert (done.decision.answer.value, done.turns[-1].role) == ("5", "mediator")
    assert "End with `Answer: <number>`." in done.turns[-1].request.messages[0].content
    undecided = decided("mediator", "112", "Hm.")
    assert (undecided.decision.answer.missing, undecided.decision.received) == (True, 0)


@pytest.mark.hazard("D26", "D27")
@pytest.mark.parametrize(
    ("rule", "ballots", "answer", "counts", "tied", "received"),
    [
        ("approval", ("Approve: A, B", "Approve: B", "Approve: none"), "2", (("2", 2.0), ("1", 1.0)), (), 3),
        ("approval", ("Approve: A", "Approve: B", "no idea"), "1", (("1", 1.0), ("2", 1.0)), ("1", "2"), 2),
        ("approval", ("Approve: none",), None, (("1", 0.0), ("2", 0.0)), (), 3),
        ("ranked", ("Ranking: B > A", "Ranking: A > B", "Ranking: B > A"), "2", (("2", 2.0), ("1", 1.0)), (), 3),
        # An invalid ballot is counted among those who could vote, and nothing is made of it.
        ("ranked", ("Ranking: B > A", "Ranking: 2 > 1", "Ranking: none"), "2", (("2", 1.0), ("1", 0.0)), (), 1),
        ("ranked", ("I rank them all the same.",), None, (("1", 0.0), ("2", 0.0)), (), 0),
    ],
)
def test_debaters_vote_on_the_distinct_answers(
    rule: str,
    ballots: tuple[str, ...],
    answer: str | None,
    counts: tuple[tuple[str, float], ...],
    tied: tuple[str, ...],
    received: int,
) -> None:
    done = decided(rule, "112", *ballots)
    decision = done.decision
    assert (decision.answer.value, decision.counts, decision.tied) == (answer, counts, tied)
    assert (decision.eligible, decision.received) == (3, received)
    voters = [turn for turn in done.turns if turn.role == "voter"]
    assert [turn.agent for turn in voters] == [0, 1, 2]
    assert all(turn.answer.missing for turn in voters)


@pytest.mark.parametrize("rule", ASKED)
@pytest.mark.parametrize(("answers", "answer"), [("111", "1"), ("1xx", "1"), ("xxx", None)])
def test_nobody_is_asked_where_there_is_nothing_to_choose(rule: str, answers: str, answer: str | None) -> None:
    done = decided(rule, answers, "Answer: 9")
    asked = [turn for turn in done.turns if turn.step]
    if rule == "mediator" and answer is not None:
        assert len(asked) == 1
    else:
        assert not asked
        assert done.decision.answer.value == answer
        assert done.decision.rule == rule


@pytest.mark.parametrize("rule", ASKED)
def test_a_failed_helper_decides_nothing(rule: str) -> None:
    def failing(request: ChatRequest) -> Completion:
        return Completion.failure("out of memory") if rule in request.id else replies("112")(request)

    done = hold(self_consistency, failing, decision=rule, samples=3)
    assert done.decision.answer.missing
    assert done.decision.received == 0


def test_a_judge_may_be_another_model_and_else_is_the_first_member_without_its_persona() -> None:
    cast = (Agent(model="a", persona="You are a hawk."), Agent(model="b"))
    whole = deciding(self_consistency, "judge")

    def held(setting: Setting) -> ChatRequest:
        asked = whole(setting.task.items()[0], setting, samples=3)
        done = ask_in_turn(asked, lambda requests: [replies("112", "Choice: A")(request) for request in requests])
        return done.turns[-1].request

    setting = setting_for(whole, cast)
    assert (held(setting).model, len(held(setting).messages)) == ("a", 1)
    other = held(replace(setting, judge=Agent(model="c", persona="You are a judge.")))
    assert (other.model, other.messages[0].content) == ("c", "You are a judge.")


def test_voters_vote_as_themselves() -> None:
    done = decided("ranked", "112", "Ranking: A > B", cast=(Agent(persona="You are a hawk."), Agent(), Agent()))
    voters = [turn.request for turn in done.turns if turn.role == "voter"]
    assert voters[0].messages[0].content == "You are a hawk."
    assert len({request.sampling.seed for request in voters}) == 3


@pytest.mark.parametrize("rule", ASKED)
def test_what_helpers_are_shown_holds_no_names_no_confidences_and_each_reply_once(rule: str) -> None:
    def reply(request: ChatRequest) -> Completion:
        done = replies("123", "Choice: A")(request)
        return done if "." in request.id[2:] else Completion(f"{done.text}\nConfidence: 0.9{request.id[0]}")

    done = hold(self_consistency, reply, decision=rule, samples=3, confidence="verbal")
    prompt = next(turn for turn in done.turns if turn.step).request.messages[-1].content
    assert "0.9" not in prompt
    for agent in range(3):
        assert prompt.count(f"Agent {agent} thinks.") == 1


def test_after_single_none_is_what_single_does_and_after_a_debate_it_keeps_the_cost_whole() -> None:
    assert hold(single, replies("12"), decision="none", agents=2).decision.rule == "each"
    assert hold(debate, replies("123"), decision="none").decision.rule == "none"


class Essays(Known):
    name = "essays"
    votable = False


@pytest.mark.parametrize("rule", ["majority", "unanimity", "weighted:agreement", "trajectory"])
def test_answers_that_cannot_be_compared_are_not_voted_on(rule: str) -> None:
    whole = deciding(debate, rule)
    said = refusal(whole, setting_for(whole, task=Essays()), **defaults(debate))
    assert "the answers of task 'essays' cannot be compared" in said


@pytest.mark.parametrize("rule", ["none", *ASKED])
def test_answers_that_cannot_be_compared_may_be_chosen_among(rule: str) -> None:
    whole = deciding(debate, rule)
    assert refusal(whole, setting_for(whole, task=Essays()), **defaults(debate)) == ""


def test_a_decision_needs_the_confidences_that_it_goes_by() -> None:
    said = refusal(deciding(debate, "weighted:rescaled"), **defaults(debate))
    assert "goes by stated confidences: add protocol.confidence=verbal" in said
    assert refusal(deciding(debate, "weighted:rescaled"), **defaults(debate, confidence="verbal")) == ""
    likely = deciding(debate, "most_confident:answer_logprob")
    assert "each member needs them: cast=[{logprobs: true}]" in refusal(likely, **defaults(debate))
    assert refusal(likely, setting_for(likely, (Agent(logprobs=True),)), **defaults(debate)) == ""


def test_a_wrong_word_is_answered_with_all_decisions() -> None:
    with pytest.raises(ValueError, match=r"there is no decision 'jury'.*majority.*those that ask: judge, mediator"):
        check_decision("jury")


@pytest.mark.parametrize(("rule", "more"), [("judge", 1), ("mediator", 1), ("approval", 3), ("ranked", 3), ("none", 0)])
def test_the_calls_of_a_decision_are_in_the_protocols_calls(rule: str, more: int) -> None:
    whole = deciding(debate, rule)
    assert facts_of(whole).calls(**defaults(debate)) == 6 + more
    done = hold(debate, replies("123", "no ballot"), decision=rule)
    assert len(done.turns) == 6 + more


def test_a_protocol_of_ones_own_can_end_with_any_decision() -> None:
    @protocol(calls=lambda: 2, agents=lambda: 2)
    def duet(item: Item, setting: Setting) -> Debate:
        return (yield from self_consistency(item, setting, samples=2))

    done = hold(duet, replies("12", "Choice: B"), decision="judge")
    assert done.decision.answer.value == "2"

    @protocol(calls=lambda: 2, agents=None)
    def secretive(item: Item, setting: Setting) -> Debate:
        return (yield from self_consistency(item, setting, samples=2))

    with pytest.raises(ValueError, match="does not say how many debaters there are to vote"):
        facts_of(deciding(secretive, "ranked")).calls()
    assert facts_of(deciding(secretive, "judge")).calls() == 3


def test_templates_of_a_decision_can_be_worded_otherwise_where_it_is_used() -> None:
    assert (
        facts_of(deciding(debate, "judge")).checked_templates({"judge": "{{ question }}"})["judge"] == "{{ question }}"
    )
    with pytest.raises(ValueError, match="no template is called judge"):
        facts_of(debate).checked_templates({"judge": "{{ question }}"})
