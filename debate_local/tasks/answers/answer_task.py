"""What all tasks share whose replies are read and graded by rule. Knows no benchmark and no kind of answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from debate_local.core.task import Grading, Metric, grade_answers
from debate_local.core.transcript import Answer, Item, Transcript
from debate_local.tasks.answers.readers import ExpressionReader, Reader
from debate_local.tasks.hygiene import Oddity


@dataclass(slots=True)
class AnswerTask:
    """A task (`core.task.Task`) of one reader.

    prompt: what `ask` says; `{question}` stands for the item's question, `{answer_format}`, at its end, for the
    sentence that asks for the format. source: where the items come from, for run.json. oddities: what is wrong with
    them. golds: by item id, golds that are texts, as the source writes them.
    """

    name: str
    all_items: Sequence[Item]
    reader: Reader
    prompt: str
    source: Mapping[str, Any]
    oddities: Sequence[Oddity] = ()
    metric: Metric = field(default_factory=lambda: Metric("accuracy"))
    votable: bool = True
    golds: Mapping[str, str] = field(default_factory=dict)
    answer_format: str = field(init=False)

    def __post_init__(self) -> None:
        self.answer_format = self.reader.format

    def items(self) -> Sequence[Item]:
        """All items, in the order of the source."""
        return self.all_items

    def ask(self, item: Item) -> str:
        """The question as it is put to a model. One pass: braces in a question stay as they are."""
        return self.prompt.format(question=item.question, answer_format=self.answer_format)

    def read(self, text: str, item: Item) -> Answer:
        """The answer that a reply gives."""
        return self.reader.read(text, item)

    def prefetch(self, text: str, item: Item) -> None:
        """Begin the slow part of reading a reply, where its reader has one, without waiting for it."""
        if isinstance(self.reader, ExpressionReader):
            self.reader.prefetch(text, item)

    def same(self, a: Answer, b: Answer) -> bool:
        """Are both one answer?"""
        return self.reader.same(a, b)

    def score(self, answer: Answer, item: Item) -> float:
        """1.0 when the answer is a gold; a missing answer is never right."""
        if answer.missing:
            return 0.0
        return float(any(self.reader.right(answer, gold, item) for gold in (item.target, *item.also)))

    def grade(self, transcript: Transcript, item: Item) -> Grading:
        """By rule, without a request."""
        return grade_answers(transcript, item, self.score)
