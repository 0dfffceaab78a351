"""Ballots: what may be voted on, under labels that nobody can count wrongly, and the reading of what was voted.

Rule 1: labels are letters, or where answers are letters themselves numbers from 1. Nobody counts from 0.
Rule 2: a ballot that names anything else than the labels it may, or one twice, is invalid as a whole. It is never
repaired.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_uppercase

from .transcript import Item, Turn


@dataclass(frozen=True, slots=True)
class Candidate:
    """A turn that may be chosen. label: what a ballot calls it."""

    label: str
    turn: Turn


def candidates(item: Item, turns: Sequence[Turn], distinct: bool) -> list[Candidate]:
    """The turns that brought text, in the order given. distinct: only the first of each answer, and none without."""
    kept: list[Turn] = []
    for turn in turns:
        known = any(turn.answer.key == other.answer.key for other in kept)
        if turn.completion.text.strip() and not (distinct and (turn.answer.missing or known)):
            kept.append(turn)
    by_letter = not item.choices and len(kept) <= len(ascii_uppercase)
    labels = ascii_uppercase if by_letter else [str(n + 1) for n in range(len(kept))]
    return [Candidate(label, turn) for label, turn in zip(labels, kept, strict=False)]


def read_ballot(text: str, cue: str, labels: Sequence[str]) -> tuple[str, ...] | None:
    """The labels on the last line that begins with the cue, in their order; () for `none`; None: no valid ballot.

    `Choice: B`, `**Ranking:** C > A > B (best to worst)` and `Approve: replies A and C` are ballots.
    """
    found = re.findall(rf"^[\W_]*{cue}[\W_]*[:=](.*)$", text, re.IGNORECASE | re.MULTILINE)
    if not found:
        return None
    named = re.split(r"\(|\.(?!\d)| because ", found[-1])[0]
    words = [word for word in re.split(r"[\W_]+", named) if word.lower() not in _FILLERS]
    chosen = tuple(word.upper() for word in words)
    if chosen == ("NONE",):
        return ()
    valid = chosen and len(set(chosen)) == len(chosen) and set(chosen) <= set(labels)
    return chosen if valid else None


_FILLERS = ("", "reply", "replies", "and", "is", "the")


def borda(ballots: Sequence[Sequence[str]], labels: Sequence[str]) -> dict[str, float]:
    """Points by label: of m candidates the first of a ballot gets m - 1, the next one less; who is left out gets 0."""
    points = dict.fromkeys(labels, 0.0)
    for ballot in ballots:
        for place, label in enumerate(ballot):
            points[label] += len(labels) - 1 - place
    return points


def approvals(ballots: Sequence[Sequence[str]], labels: Sequence[str]) -> dict[str, float]:
    """How many ballots name each label."""
    return {label: float(sum(label in ballot for ballot in ballots)) for label in labels}
