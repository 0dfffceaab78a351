"""Slices of the items, balanced by expected tokens: a shard runs every cell on its slice, so that sharing is kept.

Sharing happens within an item (law 2), so an item and all of its debates stay in one shard.
"""

import heapq
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from debate_local.core.chat import digest
from debate_local.core.transcript import Item

from .options import OptionFault
from .plan import Plan, PlannedRun

# Characters of English a token, near enough to balance.
_CHARACTERS_A_TOKEN = 4

# Task name -> ids of its items, in the order of the task.
Slice = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Shard:
    """Slice `number` (from 0) of `count`. split: a hash of all slices; parts of one split make up a whole run."""

    number: int
    count: int
    split: str
    items: Slice

    @property
    def name(self) -> str:
        """What its files are called by, such as 1a2b3c4d-0003."""
        return f"{self.split}-{self.number:04d}"

    def of(self, run: PlannedRun) -> list[Item]:
        """The items of a run that are in this shard, in their order."""
        mine = set(self.items.get(run.cell.task.name, ()))
        return [item for item in run.task.items if item.id in mine]

    def touches(self, task: str, ids: Set[str]) -> bool:
        """Does it hold any of these items of a task?"""
        return not ids.isdisjoint(self.items.get(task, ()))


def split_items(plan: Plan, count: int) -> list[Slice]:
    """Deal the plan's items to `count` slices, heaviest first, each to the lightest slice so far.

    Raises OptionFault for a count that is below 1 or above the number of items.
    """
    weights = _weights(plan)
    if not 1 <= count <= len(weights):
        raise OptionFault(
            f"shards={count} cannot be: a sweep has at least 1 shard, and at most one for each of its "
            f"{len(weights)} items"
        )
    lightest = [(0.0, number) for number in range(count)]
    owner = {}
    for key in sorted(weights, key=lambda key: -weights[key]):
        weight, number = heapq.heappop(lightest)
        owner[key] = number
        heapq.heappush(lightest, (weight + weights[key], number))
    slices: list[dict[str, list[str]]] = [{} for _ in range(count)]
    for task, item in weights:
        slices[owner[task, item]].setdefault(task, []).append(item)
    return list(slices)


def shards_of(slices: Sequence[Slice]) -> list[Shard]:
    """The shards that slices make."""
    split = digest([dict(one) for one in slices])[:8]
    return [Shard(number, len(slices), split, one) for number, one in enumerate(slices)]


def _weights(plan: Plan) -> dict[tuple[str, str], float]:
    """Tokens that each (task, item) is expected to take over all runs; in the order of the plan, then of the items."""
    weights: dict[tuple[str, str], float] = {}
    asked: dict[tuple[str, str], tuple[Sequence[Item], float, int]] = {}
    for run in plan.runs:
        key = (run.cell.task.name, run.task.rows)
        _, replies, calls = asked.get(key, ((), 0.0, 0))
        reply = max(agent.sampling.max_tokens for agent in run.cell.cast) / 2
        asked[key] = (run.task.items, replies + run.calls * reply, calls + run.calls)
    for (task, _), (items, replies, calls) in asked.items():
        for item in items:
            tokens = replies + calls * len(item.question) / _CHARACTERS_A_TOKEN
            weights[task, item.id] = weights.get((task, item.id), 0.0) + tokens
    return weights
