"""A stored run, decided by another rule: from its turns alone, without a task, an engine or a cache."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from debate_local.analysis.statistics import Estimate, mean, paired_difference
from debate_local.core.confidence import mean_of
from debate_local.core.transcript import Answer, Decision
from debate_local.core.voting import Vote, decide, needs
from debate_local.sweep.store import Run, StoreFault

if TYPE_CHECKING:
    import polars as pl

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Redecided:
    """A run by another decision.

    debates: its debates table with that decision in it, the failed debates left out. score: None without a debate.
    difference: against its own decision, in pairs. changed: items whose answer is another. ties: items with one.
    """

    rule: str
    debates: "pl.DataFrame"
    score: Estimate | None
    difference: Estimate | None
    no_answer: float
    changed: int
    ties: int


def redecide(run: Run, rule: str) -> Redecided:
    """Apply a decision that asks no model to a stored run. Nothing is written.

    A decided answer has the score that its turn has. Raises StoreFault for a run that lacks what the decision goes by,
    ValueError for a decision that is none.
    """
    import polars as pl

    _refuse_quirks(run)
    turns = run.own_turns
    _require(run, rule, turns)
    by_item = turns.partition_by("item_id", as_dict=True, maintain_order=True)
    rows = [
        _decided(row, by_item[row["item_id"],].to_dicts(), rule, int(run.record["seed"]))
        for row in run.debates.iter_rows(named=True)
        if row["error"] is None and (row["item_id"],) in by_item
    ]
    before = {row["item_id"]: row for row in run.debates.iter_rows(named=True)}
    low, high = run.record["metric"]["range"]
    scores, own = [row["score"] for row in rows], [before[row["item_id"]]["score"] for row in rows]
    return Redecided(
        rule=rule,
        debates=pl.DataFrame(rows, schema=run.debates.schema),
        score=mean(scores, low, high) if rows else None,
        difference=paired_difference(scores, own, high - low) if rows else None,
        no_answer=sum(row["no_answer"] for row in rows) / max(1, len(rows)),
        changed=sum(row["answer_key"] != before[row["item_id"]]["answer_key"] for row in rows),
        ties=sum(bool(row["tied"]) for row in rows),
    )


def votes_in(turns: Sequence[Row]) -> list[Vote]:
    """The votes in the rows of one debate's turns."""
    return [
        Vote(
            turn["agent"],
            turn["round"],
            Answer(turn["answer"], turn["answer_key"], turn["answer_rule"] or ""),
            turn.get("confidence"),
            mean_of(turn["logprobs"] or ()),
            turn.get("answer_logprob"),
        )
        for turn in turns
        if turn["role"] == "debater" and not turn["step"]
    ]


def _refuse_quirks(run: Run) -> None:
    """A turn's score knows nothing of the faults that are re-enacted on whole debates."""
    if quirks := run.record.get("quirks"):
        raise StoreFault(
            f"{run.folder} was run with quirks={','.join(quirks)}, which may score whole debates: run the same with "
            "decision=... and these quirks (nothing is asked anew), or decide a run without quirks"
        )


def _require(run: Run, rule: str, turns: "pl.DataFrame") -> None:
    """Raise StoreFault where no turn holds the confidence that a decision goes by, or answers cannot be compared."""
    column = {"verbal": "confidence", "logprobs": "logprobs"}.get(needs(rule))
    if column is not None and (column not in turns.columns or turns[column].null_count() == len(turns)):
        asked = "protocol.confidence=verbal" if column == "confidence" else "cast=[{logprobs: true}]"
        raise StoreFault(f"decision={rule}: no turn of {run.folder} has what it goes by; it was run without {asked}")
    if not run.record.get("votable", True) and rule != "none":
        raise StoreFault(f"decision={rule}: the answers of task {run.record['task']['name']!r} cannot be compared")


def _decided(row: Row, turns: Sequence[Row], rule: str, seed: int) -> dict[str, Any]:
    """A row of debates.parquet with another decision in it."""
    decision = decide(rule, votes_in(turns), seed, row["item_id"])
    said = {turn["answer_key"]: turn for turn in turns if turn["answer_key"] is not None}
    chosen = [said.get(answer.key) for answer in decision.answers]
    traps = [turn["trapped"] for turn in turns if turn["trapped"] is not None]
    count = max(1, len(chosen))
    return {
        **row,
        **_columns(decision),
        "score": sum(0.0 if turn is None else turn["score"] for turn in chosen) / count,
        "no_answer": sum(turn is None for turn in chosen) / count,
        "trapped": sum(turn is not None and turn["trapped"] is True for turn in chosen) / count if traps else None,
    }


def _columns(decision: Decision) -> dict[str, Any]:
    return {
        "answer": decision.answer.value,
        "answer_key": decision.answer.key,
        "rule": decision.rule,
        "counts": json.dumps(dict(decision.counts), ensure_ascii=False),
        "tied": list(decision.tied),
        "eligible": decision.eligible,
        "received": decision.received,
        "side": decision.side or None,
    }
