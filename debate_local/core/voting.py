"""The decisions that ask no model: pure functions of votes, so that they apply to stored runs as well.

    majority           the answer given most often; a tie goes to the earliest agent (Du et al. 2023)
    plurality:RULE     the same with another rule for ties: earliest, seeded, abstain
    unanimity          the answer that all gave, else none
    threshold:SHARE    the answer that at least this share of all gave (2/3, 0.6), else none
    weighted:BY        each vote weighs as much as its confidence: verbal (as stated), rescaled (stated, rescaled as in
                       Chen et al. 2024), logprob (of the turn's tokens), answer_logprob (of the answer's), agreement
    most_confident:BY  the answer of the most confident agent (Chen et al. 2024: a poor decision)
    trajectory:WHEN    the answers of all rounds count: alike (all), later ones more (later), earlier ones (earlier)
    none               no decision: every agent's answer is scored, for answers that cannot be compared

Rule 1: a missing answer is never a vote; it counts among those who could vote.
Rule 2: a tie is recorded, and broken by a stated rule: the earliest agent's unless the decision says otherwise.
Rule 3: a vote without the confidence that a decision goes by has no weight; nothing is put in its stead.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from .chat import derive_seed
from .confidence import answer_logprob, mean_logprob, rescaled, stated
from .transcript import Answer, Decision, Turn


@dataclass(frozen=True, slots=True)
class Vote:
    """What one debater answered in one round, and how sure it was; None where that is not known.

    verbal: as it said itself, from 0 to 1. logprob, answer_logprob: the mean natural log-probability of the turn's
    tokens, and of those of its answer.
    """

    agent: int
    round: int
    answer: Answer
    verbal: float | None = None
    logprob: float | None = None
    answer_logprob: float | None = None


def votes_of(turns: Iterable[Turn]) -> list[Vote]:
    """The votes in a debate's turns: those of debaters, helpers' turns left out, in the order of the turns."""
    return [
        Vote(
            turn.agent,
            turn.round,
            turn.answer,
            stated(turn.confidence),
            mean_logprob(turn.completion),
            answer_logprob(turn.completion, turn.answer),
        )
        for turn in turns
        if turn.votes
    ]


def last_votes(votes: Iterable[Vote]) -> list[Vote]:
    """Each agent's last vote, in agent order. A failed last turn stays a missing answer: nobody falls back."""
    last: dict[int, Vote] = {}
    for vote in votes:
        if vote.agent not in last or vote.round >= last[vote.agent].round:
            last[vote.agent] = vote
    return [last[agent] for agent in sorted(last)]


def decide(rule: str, votes: Sequence[Vote], seed: int = 0, item_id: str = "") -> Decision:
    """One decision of all votes of a debate, those of all rounds, in any order.

    seed, item_id: of the run and its item; they matter to `plurality:seeded` only. Raises ValueError for a rule that is
    none of the above.
    """
    check_rule(rule)
    word, _, argument = rule.partition(":")
    ordered = sorted(votes, key=lambda vote: (vote.round, vote.agent))
    last = last_votes(ordered)
    if word == "none":
        return replace(each([vote.answer for vote in last]), rule=rule)
    if word == "trajectory":
        rounds = 1 + max((vote.round for vote in ordered), default=0)
        weigh = _TRAJECTORIES[argument or "all"]
        return _weighed(rule, [(vote.answer, weigh(vote.round, rounds)) for vote in ordered], len(ordered))
    if word in ("weighted", "most_confident"):
        known = [(vote, weight) for vote in last if (weight := _WEIGHTS[argument](vote, ordered)) is not None]
        return (_weighed if word == "weighted" else _most)(rule, [(v.answer, w) for v, w in known], len(last))
    decision = _weighed(rule, [(vote.answer, 1.0) for vote in last], len(last))
    if word in ("unanimity", "threshold") and not _reaches(decision, Fraction(argument or 1).limit_denominator(100)):
        return replace(decision, answers=(Answer.none("too few agree"),))
    if decision.tied and argument == "abstain":
        return replace(decision, answers=(Answer.none("a tie"),))
    if decision.tied and argument == "seeded":
        key = min(decision.tied, key=lambda key: derive_seed(seed, item_id, -1, 0, f"tie {key}"))
        return replace(decision, answers=(next(vote.answer for vote in last if vote.answer.key == key),))
    return decision


def check_rule(rule: str) -> None:
    """Raise ValueError for a decision that is none, or that lacks its argument."""
    word, colon, argument = rule.partition(":")
    valid = RULES.get(word)
    if word == "threshold" and argument:
        if not _is_share(argument):
            raise ValueError(f"decision={rule}: the share must be above 0 and at most 1, such as threshold:2/3")
    elif valid is None or (argument not in valid) or (colon and not argument):
        raise ValueError(f"there is no decision {rule!r}; the decisions that ask no model: {', '.join(spelled())}")


def spelled() -> list[str]:
    """All decisions as they are written."""
    return [f"{word}:{one}" if one else word for word, arguments in RULES.items() for one in arguments]


def needs(rule: str) -> str:
    """What votes must hold for a decision: `verbal`, `logprobs`, or nothing."""
    argument = rule.partition(":")[2]
    return {"verbal": "verbal", "rescaled": "verbal", "logprob": "logprobs", "answer_logprob": "logprobs"}.get(
        argument, ""
    )


def majority(answers: Sequence[Answer]) -> Decision:
    """The answer given most often; a tie goes to the tied answer that the earliest agent gave.

    answers are in agent order, missing ones included. With no answer at all the decision is no answer.
    Source: Du et al. 2023, released code (`most_frequent`): 1-1-1 gives agent 0.
    """
    return _weighed("majority", [(answer, 1.0) for answer in answers], len(answers))


def each(answers: Sequence[Answer]) -> Decision:
    """No decision: every agent's answer is scored, and score and cost are means over the agents."""
    received = sum(not answer.missing for answer in answers)
    return Decision("each", tuple(answers), eligible=len(answers), received=received)


def agree(answers: Sequence[Answer], share: Fraction = Fraction(1)) -> bool:
    """Did at least this share of all give one answer? Who gave none counts among all, and so blocks unanimity."""
    return _reaches(majority(answers), share)


def _reaches(decision: Decision, share: Fraction) -> bool:
    return bool(decision.counts) and Fraction(decision.counts[0][1]) >= share * decision.eligible


def _weighed(rule: str, answers: Sequence[tuple[Answer, float]], eligible: int) -> Decision:
    """The answer of the greatest sum of weights; of a tie, the one that comes first in the list."""
    parts: dict[str, list[float]] = {}
    for answer, weight in answers:
        if answer.key is not None:
            parts.setdefault(answer.key, []).append(weight)
    # Rounded, so that 0.1 + 0.2 ties with 0.3.
    return _decided(rule, answers, {key: round(math.fsum(some), 9) for key, some in parts.items()}, eligible)


def _most(rule: str, answers: Sequence[tuple[Answer, float]], eligible: int) -> Decision:
    """The answer of the greatest single weight; of a tie, the one that comes first in the list."""
    best: dict[str, float] = {}
    for answer, weight in answers:
        if answer.key is not None:
            best[answer.key] = max(weight, best.get(answer.key, weight))
    return _decided(rule, answers, best, eligible)


def _decided(
    rule: str, answers: Sequence[tuple[Answer, float]], totals: Mapping[str, float], eligible: int
) -> Decision:
    """totals: by answer, in the order in which answers come first in the list, which is how ties are broken."""
    if not totals:
        why = "no answer has a weight" if rule.startswith(("weighted", "most_confident")) else "no agent answered"
        return Decision(rule, (Answer.none(why),), eligible=eligible)
    top = max(totals.values())
    tied = tuple(key for key, total in totals.items() if total == top)
    return Decision(
        rule,
        (next(answer for answer, _ in answers if answer.key == tied[0]),),
        # Sorting is stable: equal totals stay in the order of the list.
        counts=tuple(sorted(totals.items(), key=lambda pair: -pair[1])),
        tied=tied if len(tied) > 1 else (),
        eligible=eligible,
        received=sum(not answer.missing for answer, _ in answers),
    )


def _is_share(text: str) -> bool:
    try:
        return 0 < Fraction(text) <= 1
    except (ValueError, ZeroDivisionError):
        return False


def _rescaled(vote: Vote, _: Sequence[Vote]) -> float | None:
    return None if vote.verbal is None else rescaled(vote.verbal)


def _agreement(vote: Vote, votes: Sequence[Vote]) -> float | None:
    """The share of what the others said, over all rounds, that is this answer. Nobody's where there are no others."""
    others = [other for other in votes if other.agent != vote.agent]
    return sum(other.answer.key == vote.answer.key for other in others) / len(others) if others else None


_WEIGHTS: dict[str, Callable[[Vote, Sequence[Vote]], float | None]] = {
    "verbal": lambda vote, _: vote.verbal,
    "rescaled": _rescaled,
    "logprob": lambda vote, _: None if vote.logprob is None else math.exp(vote.logprob),
    "answer_logprob": lambda vote, _: None if vote.answer_logprob is None else math.exp(vote.answer_logprob),
    "agreement": _agreement,
}
# The weights are ours; papers name the idea only (Free-MAD, 2509.11035).
_TRAJECTORIES: dict[str, Callable[[int, int], float]] = {
    "all": lambda round, rounds: 1.0,
    "later": lambda round, rounds: (round + 1) / rounds,
    "earlier": lambda round, rounds: (rounds - round) / rounds,
}
# word -> its arguments; "" where it may stand alone.
RULES: Mapping[str, tuple[str, ...]] = {
    "majority": ("",),
    "plurality": ("earliest", "seeded", "abstain"),
    "unanimity": ("",),
    "threshold": ("SHARE",),
    "weighted": tuple(_WEIGHTS),
    "most_confident": tuple(name for name in _WEIGHTS if name != "rescaled"),
    "trajectory": ("", *_TRAJECTORIES),
    "none": ("",),
}
