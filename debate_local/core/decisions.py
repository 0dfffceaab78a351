"""How answers become one, after any protocol: `deciding` makes of a protocol one that ends with another decision.

Decisions that ask no model are pure functions of votes (`voting.py`). These ask:

    judge      a judge reads the last replies, unnamed, and chooses one
    mediator   a mediator reads them and writes the answer itself, also where answers cannot be compared
    approval   each debater approves of any number of the distinct answers; the most approvals win
    ranked     each debater ranks the distinct answers; the most points win (m - 1 for the first of m, and so on)

Their calls are turns of the debate, and so in its cost; where there is nothing to choose between, nobody is asked. A
ballot that cannot be read, or names what was not there, is invalid, and its voter counts among those who could vote.
Ties go to the answer of the earliest agent. The wording is ours; no paper's judge is re-enacted here.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any

from .ballots import Candidate, approvals, borda, candidates, read_ballot
from .peers import Voice
from .protocol import ProtocolFacts, attach, facts_of, parted
from .scheduler import Asking
from .setting import Setting
from .transcript import Answer, Debate, Decision, Item, Transcript, Turn
from .voting import check_rule, decide, needs, votes_of

ASKED = ("judge", "mediator", "approval", "ranked")
Decided = tuple[Decision, list[Turn]]


def check_decision(rule: str) -> None:
    """Raise ValueError for a decision that is none, naming those that are."""
    try:
        if rule not in ASKED:
            check_rule(rule)
    except ValueError as error:
        raise ValueError(f"{error}; those that ask: {', '.join(ASKED)}") from error


def deciding(protocol: Callable[..., Debate], rule: str | None) -> Callable[..., Debate]:
    """The protocol, ending with this decision instead of its own; None: the protocol as it is.

    Its facts are the protocol's, with the decision's calls, templates and needs.
    """
    if rule is None:
        return protocol
    check_decision(rule)

    @wraps(protocol)
    def decided(item: Item, setting: Setting, **options: Any) -> Debate:
        transcript = yield from protocol(item, setting, **options)
        return (yield from decide_after(transcript, item, setting, rule))

    return attach(decided, _with_decision(facts_of(protocol), rule))


def decide_after(transcript: Transcript, item: Item, setting: Setting, rule: str) -> Debate:
    """A debate that has ended, decided by this rule."""
    if rule not in ASKED:
        if rule == "none" and transcript.decision.rule == "each":
            return transcript
        return replace(transcript, decision=decide(rule, votes_of(transcript.turns), setting.seed, item.id))
    ask = {"judge": _judge, "mediator": _mediate}.get(rule, _poll)
    decision, asked = yield from ask(rule, transcript, item, setting)
    return replace(transcript, turns=(*transcript.turns, *asked), decision=decision)


def _with_decision(facts: ProtocolFacts, rule: str) -> ProtocolFacts:
    texts, names = parted({name: one for name, one in DECISION_TEMPLATES.items() if name == rule})

    def calls(**options: Any) -> int:
        return facts.calls(**options) + _asked(facts, rule, options)

    def check(**options: Any) -> None:
        if facts.check is not None:
            facts.check(**options)
        _asked(facts, rule, options)
        if needs(rule) == "verbal" and options.get("confidence") in ("none", "off", False):
            raise ValueError(f"decision={rule} goes by stated confidences: add protocol.confidence=verbal")

    def suits(setting: Setting, **options: Any) -> None:
        if facts.suits is not None:
            facts.suits(setting, **options)
        if needs(rule) == "logprobs" and not all(agent.logprobs for agent in setting.cast):
            raise ValueError(
                f"decision={rule} goes by log-probabilities: each member needs them: cast=[{{logprobs: true}}]"
            )
        if not setting.task.votable and rule not in ("none", *ASKED):
            raise ValueError(
                f"decision={rule}: the answers of task {setting.task.name!r} cannot be compared; the decisions that "
                f"need not compare: none, {', '.join(ASKED)}"
            )

    return replace(
        facts,
        calls=calls,
        check=check,
        suits=suits,
        templates={**facts.templates, **texts},
        names={**facts.names, **names},
        judged=facts.judged or rule in ("judge", "mediator"),
    )


def _asked(facts: ProtocolFacts, rule: str, options: Mapping[str, Any]) -> int:
    """How many calls a decision makes at most."""
    if rule not in ("approval", "ranked"):
        return int(rule in ASKED)
    if facts.voters is None:
        raise ValueError(f"decision={rule}: this protocol does not say how many debaters there are to vote")
    return facts.voters(**options)


def _last_turns(transcript: Transcript) -> list[Turn]:
    """Each debater's last turn, in agent order."""
    last = {turn.agent: turn for turn in sorted(transcript.turns, key=lambda turn: turn.round) if turn.votes}
    return [last[agent] for agent in sorted(last)]


def _settled(rule: str, turns: Sequence[Turn], choices: Sequence[Candidate]) -> Decision | None:
    """The decision where there is nothing to choose between; None where somebody must be asked."""
    if not choices:
        return Decision(rule, (Answer.none("no agent answered"),), eligible=len(turns))
    keys = {choice.turn.answer.key for choice in choices}
    if len(choices) == 1 or (len(keys) == 1 and None not in keys):
        received = sum(not turn.answer.missing for turn in turns)
        return Decision(rule, (choices[0].turn.answer,), eligible=len(turns), received=received)
    return None


def _judge(rule: str, transcript: Transcript, item: Item, setting: Setting) -> Asking[Decided]:
    turns = _last_turns(transcript)
    choices = candidates(item, turns, distinct=False)
    if settled := _settled(rule, turns, choices):
        return settled, []
    request = setting.helper_request(item, -1, _end(turns), _put(rule, item, setting, choices), rule, setting.judge)
    (completion,) = yield [request]
    chosen = read_ballot(completion.text, "choice", [choice.label for choice in choices]) or ()
    answer = Answer.none("the judge chose no reply")
    if len(chosen) == 1:
        answer = next(choice.turn.answer for choice in choices if choice.label == chosen[0])
    decision = Decision(rule, (answer,), eligible=1, received=int(len(chosen) == 1))
    told = replace(answer, rule=f"chose {chosen[0]}", span=None) if len(chosen) == 1 else answer
    return decision, [Turn(-1, _end(turns), request, completion, told, _pairs(choices), "judge", rule)]


def _mediate(rule: str, transcript: Transcript, item: Item, setting: Setting) -> Asking[Decided]:
    turns = _last_turns(transcript)
    choices = candidates(item, turns, distinct=False)
    if not choices:
        return Decision(rule, (Answer.none("no agent answered"),), eligible=1), []
    request = setting.helper_request(item, -1, _end(turns), _put(rule, item, setting, choices), rule, setting.judge)
    (completion,) = yield [request]
    turn = setting.turn(item, -1, _end(turns), request, completion, _pairs(choices))
    decision = Decision(rule, (turn.answer,), eligible=1, received=int(not turn.answer.missing))
    return decision, [replace(turn, role="mediator", step=rule)]


def _poll(rule: str, transcript: Transcript, item: Item, setting: Setting) -> Asking[Decided]:
    """Ask every debater for a ballot."""
    turns = _last_turns(transcript)
    choices = candidates(item, turns, distinct=setting.task.votable)
    if settled := _settled(rule, turns, choices):
        return settled, []
    text, end, labels = _put(rule, item, setting, choices), _end(turns), [choice.label for choice in choices]
    requests = [setting.helper_request(item, turn.agent, end, text, rule, setting.agent(turn.agent)) for turn in turns]
    completions = yield requests
    cue, count = ("approve", approvals) if rule == "approval" else ("ranking", borda)
    asked, valid = [], []
    for turn, request, completion in zip(turns, requests, completions, strict=True):
        ballot = read_ballot(completion.text, cue, labels)
        if ballot is not None and (ballot or rule == "approval"):
            valid.append(ballot)
            told = f"ballot: {' '.join(ballot) or 'none'}"
        else:
            told = "no valid ballot"
        asked.append(Turn(turn.agent, end, request, completion, Answer.none(told), _pairs(choices), "voter", rule))
    return _elected(rule, choices, count(valid, labels), len(turns), len(valid)), asked


def _elected(
    rule: str, choices: Sequence[Candidate], points: Mapping[str, float], eligible: int, received: int
) -> Decision:
    """The candidate of most points, the first of equals; none where nobody got any."""
    named = {choice.label: choice.turn.answer.key or f"reply {choice.label}" for choice in choices}
    counts = tuple(sorted(((named[label], number) for label, number in points.items()), key=lambda pair: -pair[1]))
    top = max(points.values())
    if not top:
        return Decision(rule, (Answer.none("nobody voted for any"),), counts, (), eligible, received)
    tied = tuple(named[label] for label, number in points.items() if number == top)
    winner = next(choice for choice in choices if points[choice.label] == top)
    return Decision(rule, (winner.turn.answer,), counts, tied if len(tied) > 1 else (), eligible, received)


def _put(rule: str, item: Item, setting: Setting, choices: Sequence[Candidate]) -> str:
    replies = [{"label": choice.label, "text": Voice.of(choice.turn).text} for choice in choices]
    return setting.render(rule, question=item.question, replies=replies)


def _end(turns: Sequence[Turn]) -> int:
    """The last round: helpers speak at its end."""
    return max(turn.round for turn in turns)


def _pairs(choices: Sequence[Candidate]) -> tuple[tuple[int, int], ...]:
    return tuple((choice.turn.agent, choice.turn.round) for choice in choices)


_REPLIES = """\
Several agents have answered this question:

{{ question }}
{% for reply in replies %}

Reply {{ reply.label }}:
{{ reply.text }}
{% endfor %}

"""

JUDGE = f"""{_REPLIES}\
You are the judge. Compare the reasoning of these replies, not how many say the same, and choose the one whose answer \
is right. End with one line: `Choice: ` and its label."""

MEDIATOR = f"""{_REPLIES}\
You are the mediator. Settle where these replies differ, keep what holds, and give the answer that they support best. \
{{{{ answer_format }}}}"""

APPROVAL = f"""{_REPLIES}\
Vote on these replies: approve of every one whose answer you hold to be right. End with one line: `Approve: ` and \
their labels, parted by commas, or `Approve: none`."""

RANKED = f"""{_REPLIES}\
Rank these replies by how likely their answers are right. End with one line: `Ranking: ` and all labels, the best \
first, parted by `>`."""

DECISION_TEMPLATES = {
    "judge": (JUDGE, "question replies"),
    "mediator": (MEDIATOR, "question replies"),
    "approval": (APPROVAL, "question replies"),
    "ranked": (RANKED, "question replies"),
}
