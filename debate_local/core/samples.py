"""Samples: other questions with their right answers and a person's explanation, put before a question.

A convincing sample is one on which that explanation turned a model's wrong answer into the right one (Chen et al.
2024); a random one is any of the same training rows. `debate-local convince` finds them, and `convincing=FILE` names
them; here they are values.

Rule 1: an agent is shown samples of the other members of the cast, not its own: they show what convinces those it talks
to. In a cast of one the others are copies of that member. Members with one model have their samples in common.
Rule 2: which samples an agent is shown does not depend on how many agents or rounds there are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from .task import Task
from .transcript import Item

Kind = Literal["convincing", "random"]
Samples = Literal["none", "random", "convincing"]
HOW_TO_MAKE = "make such a file with `debate-local convince` and name it: convincing=FILE"


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample. model: the name, in the pool, of the model that it convinced, or for which it was drawn at random.

    item: its id in the training rows. question: with its options. answer: the gold.
    """

    kind: Kind
    model: str
    item: str
    question: str
    answer: str
    explanation: str


def shown_to(
    agent: int, models: Sequence[str], samples: Sequence[Sample], kind: Samples, shots: int | None
) -> list[Sample]:
    """The samples that an agent is shown: so many of each other member, None for all. models: the cast's, by place.

    A question that convinced several of them is shown once.
    """
    place = agent % len(models)
    others = [model for other, model in enumerate(models) if other != place] or list(models)
    shown: dict[str, Sample] = {}
    for model in dict.fromkeys(others):
        for sample in [one for one in samples if (one.kind, one.model) == (kind, model)][:shots]:
            shown.setdefault(sample.question, sample)
    return list(shown.values())


def usable(item: Item, task: Task) -> bool:
    """Has an item an explanation, and one from which the task's reader cannot read the gold answer?"""
    if not item.explanation.strip():
        return False
    answer = task.read(item.explanation, item)
    return answer.missing or task.score(answer, item) < 1.0


def check_samples(models: Sequence[str], samples: Sequence[Sample], kind: Samples, shots: int | None) -> None:
    """Raise ValueError where samples are to be shown and there are too few of a model."""
    if shots is not None and shots < 1:
        raise ValueError(f"protocol.shots must be at least 1, or null for all; got {shots}. For no samples choose none")
    if kind == "none":
        return
    if not samples:
        raise ValueError(f"{kind} samples are to be shown, and there are none: {HOW_TO_MAKE}")
    for model in dict.fromkeys(models):
        count = sum((one.kind, one.model) == (kind, model) for one in samples)
        if count < (shots or 1):
            raise ValueError(
                f"{shots or 'some'} {kind} samples of each model are to be shown, and of model {model!r} there are "
                f"{count}: lower protocol.shots, or {HOW_TO_MAKE}"
            )
