"""What all tasks with one number as the answer share: reading, comparing and grading. Knows no benchmark."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from debate_local.core.task import Grading, Metric, grade_answers
from debate_local.core.transcript import Answer, Item, Transcript
from debate_local.tasks.answers.number import FORMAT, read_number, same_number


@dataclass(slots=True)
class NumberTask:
    """A task (`core.task.Task`) whose every target is a canonical number.

    prompt: what `ask` says; `{question}` stands for the item's question, `{answer_format}`, at its end, for the
    sentence that asks for the format. source: where the items come from, for run.json.
    """

    name: str
    all_items: Sequence[Item]
    prompt: str
    source: Mapping[str, Any]
    metric: Metric = field(default_factory=lambda: Metric("accuracy"))
    votable: bool = True
    answer_format: str = FORMAT

    def items(self) -> Sequence[Item]:
        """All items, in the order of the source."""
        return self.all_items

    def ask(self, item: Item) -> str:
        """The question as it is put to a model. One pass: braces in a question stay as they are."""
        return self.prompt.format(question=item.question, answer_format=self.answer_format)

    def read(self, text: str, item: Item) -> Answer:
        """The number a reply gives, see `read_number`."""
        return read_number(text, item.question)

    def same(self, a: Answer, b: Answer) -> bool:
        """Are both the same number? 18 and 18.0 are."""
        return same_number(a, b)

    def score(self, answer: Answer, item: Item) -> float:
        """1.0 when the answer is the target, exactly; a missing answer is never right."""
        return float(answer.key is not None and answer.key == item.target)

    def grade(self, transcript: Transcript, item: Item) -> Grading:
        """By rule, without a request."""
        return grade_answers(transcript, item, self.score)
