"""A run's score in parts: by subject, without the golds that are doubted, and who fell for the trap, by round."""

from collections.abc import Mapping, Sequence

import polars as pl

from debate_local.analysis.statistics import Estimate, mean
from debate_local.sweep.store import Run


def by_group(run: Run) -> dict[str, Estimate]:
    """Subject or subset -> score, in the order of the items; empty where the task has no groups."""
    scored = run.debates.filter(pl.col("error").is_null() & (pl.col("group") != ""))
    return {
        str(group): _mean(run, part["score"].to_list())
        for (group,), part in scored.group_by("group", maintain_order=True)
    }


def without_suspects(run: Run) -> Estimate | None:
    """The score over the items whose gold nobody doubts; None where no gold is doubted, or every one is."""
    scored = run.debates.filter(pl.col("error").is_null())
    sound = scored.filter(pl.col("suspect").is_null())
    return _mean(run, sound["score"].to_list()) if 0 < len(sound) < len(scored) else None


def trap_rate(run: Run) -> dict[int, Estimate]:
    """Round -> the share of debaters' turns that give the tempting wrong answer, of items that have one.

    Turns without an answer count as not trapped. Empty where no item has a trap.
    """
    turns = run.own_turns.filter(pl.col("trapped").is_not_null())
    rounds: Mapping[int, Sequence[bool]] = {
        int(round): part["trapped"].to_list() for (round,), part in turns.group_by("round", maintain_order=True)
    }
    return {round: mean([float(one) for one in rounds[round]]) for round in sorted(rounds)}


def _mean(run: Run, scores: Sequence[float]) -> Estimate:
    low, high = run.record["metric"]["range"]
    return mean(scores, low, high)
