"""What is wrong with the rows of a benchmark, as one table. Nothing is dropped or mended for it, and nothing hidden.

`plan` and `run` print the table as notes, run.json stores it. Knows no benchmark.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from debate_local.core.transcript import Item

_NAMED = 5
LOST = "(empty)"  # stands for the text of an option that a row lacks


@dataclass(frozen=True, slots=True)
class Oddity:
    """One line of the table. fault: what is odd. items: the ids, in the order of the source. meaning: what follows."""

    fault: str
    items: tuple[str, ...]
    meaning: str

    def told(self, task: str) -> str:
        """The line for a person; of many items it names a few."""
        if not self.items:
            return f"data of {task}: {self.fault} ({self.meaning})"
        more = f" and {len(self.items) - _NAMED} more" if len(self.items) > _NAMED else ""
        count = "1 item" if len(self.items) == 1 else f"{len(self.items)} items, each"
        return f"data of {task}: {count} {self.fault}: {', '.join(self.items[:_NAMED])}{more}; {self.meaning}"


def examine(items: Sequence[Item], stem: Callable[[Item], str], unread: Iterable[str]) -> list[Oddity]:
    """The table of a task's items. stem: a question without its options. unread: items whose gold cannot be read."""
    repeats, disputes = _repeats(items, stem)
    found = {
        "repeats an earlier item": (repeats, "kept as items of their own"),
        "asks what an earlier item asks, with another gold": (disputes, "at most one of the two golds is right"),
        "has no question": ([i.id for i in items if not stem(i).strip()], "kept; a model can only guess"),
        "has a gold that cannot be read": (list(unread), "kept; no answer to it is ever right"),
        "has options with the same text": (
            [i.id for i in items if len(set(i.choices)) < len(i.choices)],
            "their letters are one vote, and right when the gold has that text",
        ),
        "has an option without text": (
            [i.id for i in items if LOST in i.choices],
            f"shown as {LOST}; None and NA may have been lost when the file was made",
        ),
    }
    lines = [Oddity(fault, tuple(ids), meaning) for fault, (ids, meaning) in found.items() if ids]
    return lines + _suspects(items)


def _repeats(items: Sequence[Item], stem: Callable[[Item], str]) -> tuple[list[str], list[str]]:
    """Items that repeat an earlier one, and those that repeat its question and options with another gold."""
    seen: dict[tuple[str, tuple[str, ...]], set[str]] = {}
    repeats: list[str] = []
    disputes: list[str] = []
    for item in items:
        # Options may have been shuffled, and letters with them.
        gold = item.choices[ord(item.target) - ord("A")] if _is_letter(item) else item.target
        golds = seen.setdefault((stem(item).strip(), tuple(sorted(item.choices))), set())
        if golds and stem(item).strip():
            (repeats if gold in golds else disputes).append(item.id)
        golds.add(gold)
    return repeats, disputes


def _is_letter(item: Item) -> bool:
    return len(item.target) == 1 and 0 <= ord(item.target) - ord("A") < len(item.choices)


def _suspects(items: Sequence[Item]) -> list[Oddity]:
    """A line for each reason to doubt a gold."""
    reasons: dict[str, list[str]] = {}
    for item in items:
        if item.suspect:
            reasons.setdefault(item.suspect, []).append(item.id)
    return [
        Oddity(f"has a doubted gold: {reason}", tuple(ids), "scored against it; left out of the second score")
        for reason, ids in reasons.items()
    ]
