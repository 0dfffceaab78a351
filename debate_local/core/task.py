"""What a task is to the core: it asks, reads and grades. Its files live in `debate_local/tasks/`."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from .chat import ChatRequest, Completion
from .transcript import Answer, Item, Transcript


@dataclass(frozen=True, slots=True)
class Metric:
    """The facts of a task's measure, stored with a run so that analysis needs no task.

    level: `item` (a mean over items) or `corpus`. chance: the score of guessing, None when not defined.
    """

    name: str
    unit: str = ""
    range: tuple[float, float] = (0.0, 1.0)
    higher_is_better: bool = True
    level: Literal["item", "corpus"] = "item"
    chance: float | None = None


@dataclass(frozen=True, slots=True)
class Grade:
    """score: the item's share in the metric. by_answer: the score of each of the decision's answers."""

    score: float
    by_answer: tuple[float, ...] = ()
    detail: str = ""


Grading = Generator[list[ChatRequest], list[Completion], Grade]


class Task(Protocol):
    """One benchmark.

    answer_format is the sentence that asks for a format; `ask` ends with it and later rounds repeat it. `read` reads
    one reply, once; equal `key` = same vote; it never guesses. `grade` usually yields nothing. votable is False where
    answers cannot be compared. `score` grades one answer against the item's golds: 1.0 is right.

    A task may have more: `source`, what run.json says of where its rows come from; `oddities`, what is wrong with them
    (`tasks/hygiene.py`); and `prefetch(text, item)`, called as replies arrive, which begins the slow part of reading
    one without waiting for it; and `examples(item)`, the part of what it asks that stands before the question.
    """

    name: str
    metric: Metric
    votable: bool
    answer_format: str

    def items(self) -> Sequence[Item]: ...

    def ask(self, item: Item) -> str: ...

    def read(self, text: str, item: Item) -> Answer: ...

    def same(self, a: Answer, b: Answer) -> bool: ...

    def score(self, answer: Answer, item: Item) -> float: ...

    def grade(self, transcript: Transcript, item: Item) -> Grading: ...


def trapped(task: Task, answer: Answer, item: Item) -> bool | None:
    """Is the answer the item's tempting wrong one, by the rules that golds are held to? None where it has none."""
    if not item.trap:
        return None
    if answer.missing or task.score(answer, item) == 1.0:
        return False
    return task.score(answer, replace(item, target=item.trap[0], also=item.trap[1:])) == 1.0


def grade_answers(transcript: Transcript, item: Item, score: Callable[[Answer, Item], float]) -> Grading:
    """Grade a decision by rule, without a request. A missing answer scores 0; several answers give their mean."""
    by_answer = tuple(0.0 if answer.missing else score(answer, item) for answer in transcript.decision.answers)
    mean = sum(by_answer) / len(by_answer) if by_answer else 0.0
    return Grade(mean, by_answer)
    yield []  # a generator that asks nothing
