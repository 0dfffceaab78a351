"""How many replies could be read, by who spoke, its model, the round and the length of the prompt."""

import polars as pl

from debate_local.core.fields import RULES
from debate_local.sweep.store import Run

# Prompts are put together by length in powers of two, from here on.
_SHORTEST = 256


def readable(run: Run) -> pl.DataFrame:
    """One row for each role, step, model, round and length of prompt, in that order.

    prompt: tokens, at most. replies: how many. answers, confidences, json: the shares of replies that hold a readable
    one; stances: the share of all stances that were asked for, several a reply. Null where none was asked for. A
    judge's answer is its decision.
    """
    turns = run.turns
    json_rule, stances = (
        pl.col(name) if name in turns.columns else pl.lit(None, pl.String) for name in ("json_rule", "stances")
    )
    tokens = pl.col("prompt_tokens").fill_null(0).clip(1)
    asked_confidence = _asks_confidence(run)
    return (
        turns.with_columns(
            prompt=(2 ** tokens.log(2).ceil().cast(pl.Int64)).cast(pl.Int64).clip(_SHORTEST),
            json_rule=json_rule,
            stances=stances.str.json_decode(pl.List(pl.List(pl.String))),
        )
        .group_by("role", "step", "model", "round", "prompt")
        .agg(
            replies=pl.len(),
            answers=pl.col("answer_key").is_not_null().mean(),
            confidences=pl.when(asked_confidence).then(pl.col("confidence").is_not_null().mean()),
            stances=pl.col("stances").explode().list.get(1).ne("").mean(),
            # Null for a reply without any JSON asked for, and so no part of the mean.
            json=pl.col("json_rule").is_in(RULES).mean(),
        )
        .sort("role", "step", "model", "round", "prompt")
    )


def unread_confidences(run: Run) -> float | None:
    """The share of debaters' replies in which no confidence could be read; None where none was asked for."""
    said = run.own_turns.filter(pl.col("text") != "")
    return said["confidence"].null_count() / len(said) if _asks_confidence(run) and len(said) else None


def _asks_confidence(run: Run) -> bool:
    return run.record["protocol"].get("confidence", "none") in ("verbal", "on", True)
