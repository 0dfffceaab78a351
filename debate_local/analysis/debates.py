"""What happened in debates: flips from round to round, read from stored turns."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

Flip = Literal["", "right -> wrong", "wrong -> right", "wrong -> wrong", "lost", "found"]


def flip(before: Mapping[str, Any] | None, now: Mapping[str, Any]) -> Flip:
    """How an agent's answer changed from its last turn to this one, "" when it did not.

    before and now are rows of turns.parquet. `lost`: from an answer to none; `found`: from none to one.
    """
    if before is None or before["answer_key"] == now["answer_key"]:
        return ""
    if now["answer_key"] is None:
        return "lost"
    if before["answer_key"] is None:
        return "found"
    if before["score"] > now["score"]:
        return "right -> wrong"
    return "wrong -> right" if now["score"] > before["score"] else "wrong -> wrong"


def flips(turns: Sequence[Mapping[str, Any]]) -> list[Flip]:
    """The flip of each turn against the same agent's turn before it, in the order given."""
    last: dict[tuple[int, str], Mapping[str, Any]] = {}
    found = []
    for turn in turns:
        who = (turn["agent"], turn["role"])
        found.append(flip(last.get(who), turn))
        last[who] = turn
    return found
