"""What a judge did in a run: when debates ended, by which of its steps, for which side, and what decided nothing."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from debate_local.analysis.statistics import Estimate, mean
from debate_local.sweep.store import Run


@dataclass(frozen=True, slots=True)
class Verdicts:
    """The judge's part in a run whose debates a judge rules on.

    broke: rounds spoken -> how many debates a verdict ended then. at_the_limit: how many went to the last round and
    were decided there. undecided: how many have no answer. sides: side -> how many debates were decided for it; ""
    for none that can be told. verdicts: all replies of the judge. undecided_verdicts: why -> how many of them decided
    nothing.
    """

    debates: int
    broke: Mapping[int, int]
    at_the_limit: int
    undecided: int
    sides: Mapping[str, int]
    verdicts: int
    undecided_verdicts: Mapping[str, int]

    @property
    def text(self) -> str:
        """One line."""
        broke = ", ".join(f"{count} after {rounds}" for rounds, count in self.broke.items()) or "none"
        sides = ", ".join(f"{side or 'no one side'} {count}" for side, count in self.sides.items()) or "nobody"
        why = ", ".join(f"{reason} {count}" for reason, count in self.undecided_verdicts.items())
        return (
            f"{self.debates} debates; ended by a verdict, after so many rounds: {broke}; decided at the end: "
            f"{self.at_the_limit}; undecided: {self.undecided}; won by: {sides}; of {self.verdicts} verdicts "
            f"{sum(self.undecided_verdicts.values())} decided nothing{f' ({why})' if why else ''}"
        )


def verdicts(run: Run) -> Verdicts | None:
    """What the judge of a run did; None where no judge ruled after rounds (a `decision=judge` chooses a reply)."""
    if "side" not in run.debates.columns:
        return None
    ruled = run.debates.filter(pl.col("rule").is_in(["discriminative", "extractive"]))
    if ruled.is_empty():
        return None
    broke = ruled.filter(pl.col("stopped") == "decided")
    decided = ruled.filter(pl.col("answer_key").is_not_null())
    said = run.turns.filter((pl.col("role") == "judge") & pl.col("step").str.contains("^(discriminative|extractive)"))
    lost = said.filter(pl.col("answer_key").is_null())["answer_rule"].to_list()
    return Verdicts(
        debates=len(ruled),
        broke=dict(sorted(Counter(broke["rounds"].to_list()).items())),
        at_the_limit=len(decided) - len(broke),
        undecided=len(ruled) - len(decided),
        sides=dict(Counter(side or "" for side in decided["side"].to_list()).most_common()),
        verdicts=len(said),
        undecided_verdicts=dict(Counter(map(_kind, lost)).most_common()),
    )


def _kind(rule: str) -> str:
    """Why a verdict decided nothing, without what differs from item to item."""
    return rule.removeprefix("undecided: ").partition(" (")[0]


def by_round(run: Run) -> dict[str, dict[int, Estimate]]:
    """Who -> round, from 0 -> the score of what was said then.

    Who is a debater's side (`agent 2` where there are none), or `judge`: the answer that it would have ended the debate
    with. Debates that had ended by then are not in a round's mean.
    """
    turns = run.turns.filter(pl.col("score").is_not_null())
    debaters = run.own_turns.filter(pl.col("score").is_not_null())
    judge = turns.filter((pl.col("role") == "judge") & pl.col("step").str.contains("^discriminative"))
    # Asked again, the last try counts.
    judge = judge.unique(["item_id", "round"], keep="last", maintain_order=True)
    side = pl.col("side") if "side" in turns.columns else pl.lit(None, pl.String)
    named = debaters.with_columns(who=pl.coalesce(side, pl.format("agent {}", pl.col("agent") + 1)))
    low, high = run.record["metric"]["range"]
    found: dict[str, dict[int, Estimate]] = {}
    for table in (named, judge.with_columns(who=pl.lit("judge"))):
        for (who, round), part in table.sort("agent", "round").group_by("who", "round", maintain_order=True):
            found.setdefault(str(who), {})[int(round)] = mean(part["score"].to_list(), low, high)
    return found


def consensus(run: Run) -> dict[int, float]:
    """Round, from 0 -> the share of debates held then in which all debaters who spoke gave one and the same answer."""
    debaters = run.own_turns
    agreed = (pl.col("answer_key").n_unique() == 1) & pl.col("answer_key").is_not_null().all() & (pl.len() > 1)
    rounds = debaters.group_by("item_id", "round").agg(agreed.alias("agreed")).group_by("round").agg(pl.mean("agreed"))
    return {int(round): float(share) for round, share in rounds.sort("round").iter_rows()}
