"""Examples before each question: worked items of a training split, the same for every agent, protocol and round.

Rule 1: an item that is asked is never an example, nor one with the same question.
Rule 2: an example's reply is its explanation and its gold, stated as the task asks for it. One whose reply the task's
own reader reads otherwise is left out.
Rule 3: which ones, and in what order, is a matter of the seed alone. Where items have groups (MMLU's subjects), an
item is shown examples of its own group if there are enough.
"""

import random
from collections.abc import Mapping, Sequence
from typing import Any

from debate_local.core.task import Task
from debate_local.core.transcript import Item

EXAMPLE = """\
Question: {question}

Reply: {reply}"""

BEFORE = "Some questions with good replies:"
AFTER = "The next question is yours."


class FewShot:
    """A task whose questions come after examples; in all else the task that it wraps."""

    def __init__(self, task: Task, pool: Sequence[Item], shots: int, seed: int = 0) -> None:
        """pool: items of a training split. Raises ValueError when too few of them can be shown."""
        self._task, self._shots = task, shots
        self._examples = _shuffled(_usable(task, pool), seed)
        if len(self._examples) < shots:
            raise ValueError(
                f"task.shots={shots}, and only {len(self._examples)} of {len(pool)} rows can be shown: the others are "
                "asked themselves, or their own solution is not read as their gold. Give fewer shots, or other rows by "
                "task.shots_path or task.shots_split"
            )

        self._of_group: dict[str, list[Item]] = {}
        for one in self._examples:
            self._of_group.setdefault(one.group, []).append(one)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._task, name)

    def ask(self, item: Item) -> str:
        """The examples, then the question."""
        return f"{self.examples(item)}\n\n{self._task.ask(item)}"

    def examples(self, item: Item) -> str:
        """What stands before the item's question."""
        shown = [EXAMPLE.format(question=one.question, reply=_reply(self._task, one)) for one in self._for(item)]
        return "\n\n".join([BEFORE, *shown, AFTER])

    @property
    def source(self) -> Mapping[str, Any]:
        """Where the items come from, and which are shown as examples where no group has its own."""
        own: Mapping[str, Any] = getattr(self._task, "source", {})
        return {**own, "shots": [one.id for one in self._examples[: self._shots]]}

    def _for(self, item: Item) -> Sequence[Item]:
        of_group = self._of_group.get(item.group, [])
        return (of_group if len(of_group) >= self._shots else self._examples)[: self._shots]


def _usable(task: Task, pool: Sequence[Item]) -> list[Item]:
    asked = {_plain(item.question) for item in task.items()}
    return [
        one
        for one in pool
        if _plain(one.question) not in asked and task.score(task.read(_reply(task, one), one), one) == 1.0
    ]


def _plain(question: str) -> str:
    return " ".join(question.split()).casefold()


def _shuffled(items: Sequence[Item], seed: int) -> list[Item]:
    """In an order that depends on each item's id only: further rows in the split change no pair's order."""
    return sorted(items, key=lambda item: random.Random(f"shots {seed} {item.id}").random())


def _reply(task: Any, item: Item) -> str:
    return f"{item.explanation}\n\n{task.stated(item)}".strip()
