"""A run round by round: what the team would have answered then, by several decisions, and how many debates agreed.

A debate that has ended keeps its last votes: every round is over the same debates.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from debate_local.analysis.decisions import votes_in
from debate_local.core.voting import agree, decide, last_votes, needs
from debate_local.sweep.store import Run

if TYPE_CHECKING:
    import polars as pl

Row = Mapping[str, Any]
SIDE_BY_SIDE = ("weighted:rescaled", "majority", "most_confident:verbal")


@dataclass(frozen=True, slots=True)
class RoundSummary:
    """One round. spoke: the share of debates that were still going on. agreed: that of debates in which all agree.

    scores: decision -> mean score. by_agent: the mean score of each agent's standing answer, in agent order.
    """

    round: int
    spoke: float
    agreed: float
    scores: Mapping[str, float]
    by_agent: tuple[float, ...]


def decisions_for(run: Run) -> list[str]:
    """The decisions that are told side by side: those by confidence only where confidences were stated."""
    stated = "confidence" in run.turns.columns and run.turns["confidence"].null_count() < len(run.turns)
    return [rule for rule in SIDE_BY_SIDE if stated or needs(rule) != "verbal"]


def round_by_round(run: Run, rules: Sequence[str]) -> list[RoundSummary]:
    """Each round that any debate reached. Decisions as in voting.py; a decided answer has the score of its turn."""
    debates = [turns.to_dicts() for turns in _debates(run)]
    rounds = 1 + max((turn["round"] for turns in debates for turn in turns), default=-1)
    return [_round(run, debates, rules, round) for round in range(rounds)]


def _debates(run: Run) -> list["pl.DataFrame"]:
    return run.own_turns.partition_by("item_id", maintain_order=True)


def _round(run: Run, debates: Sequence[Sequence[Row]], rules: Sequence[str], round: int) -> RoundSummary:
    totals: dict[str, float] = dict.fromkeys(rules, 0.0)
    agents = 1 + max(turn["agent"] for turns in debates for turn in turns)
    by_agent = [0.0] * agents
    spoke = agreed = 0
    for turns in debates:
        so_far = [turn for turn in turns if turn["round"] <= round]
        spoke += any(turn["round"] == round for turn in so_far)
        votes = last_votes(votes_in(so_far))
        agreed += len(votes) > 1 and agree([vote.answer for vote in votes])
        for turn in {turn["agent"]: turn for turn in so_far}.values():
            by_agent[turn["agent"]] += turn["score"]
        for rule, score in decided_scores(so_far, rules, int(run.record["seed"])).items():
            totals[rule] += score
    count = max(1, len(debates))
    return RoundSummary(
        round,
        spoke / count,
        agreed / count,
        {rule: total / count for rule, total in totals.items()},
        tuple(score / count for score in by_agent),
    )


def decided_scores(turns: Sequence[Row], rules: Sequence[str], seed: int) -> dict[str, float]:
    """The score of one debate's answer by each decision."""
    score = {turn["answer_key"]: turn["score"] for turn in turns if turn["answer_key"] is not None}
    votes, item = votes_in(turns), turns[0]["item_id"]
    answers = {rule: decide(rule, votes, seed, item).answers for rule in rules}
    return {rule: sum(score.get(one.key, 0.0) for one in found) / len(found) for rule, found in answers.items()}


def team_answers(turns: Sequence[Row], rules: Sequence[str], seed: int) -> dict[str, str | None]:
    """What one debate's team answers by each decision, None for no answer. turns: up to and with a round."""
    votes, item = votes_in(turns), turns[0]["item_id"]
    return {rule: decide(rule, votes, seed, item).answer.value for rule in rules}
