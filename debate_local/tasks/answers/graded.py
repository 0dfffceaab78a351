"""Graded cases: replies with a gold, read and graded one by one outside a run, anybody's included.

A case (of our own making; fields beyond these are left alone):
  {"id": "c1", "task": "aqua", "text": "So it is 21.5.", "choices": ["21", "21.5"], "gold": "B",
   "finish_reason": "stop", "question": "..."}

choices: the options' texts in the order A, B, ..., where a task has any. gold: a text, or a list of texts that are all
right. finish_reason (default stop) and question (default none) may be left out. Knows no files.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from debate_local.core.transcript import Answer, Item
from debate_local.tasks.answers import confidence, judgement, move
from debate_local.tasks.answers.numerals import canonical, exact_number
from debate_local.tasks.answers.readers import ChoiceReader, ExpressionReader, NumberReader, YesNoReader


class CaseReader(Protocol):
    """What a case needs of a `readers.Reader`."""

    def read(self, text: str, item: Item) -> Answer: ...

    def gold(self, text: str, item: Item) -> str | None: ...

    def right(self, answer: Answer, gold: str, item: Item) -> bool: ...


class MoveCases:
    """A chess move: the square it goes to."""

    def read(self, text: str, item: Item) -> Answer:
        """See `move.read_move`."""
        return move.read_move(text, item.question)

    def gold(self, text: str, item: Item) -> str | None:
        """A square, in lower case."""
        return text.strip().lower() or None

    def right(self, answer: Answer, gold: str, item: Item) -> bool:
        """By square."""
        return answer.key == gold


class ConfidenceCases:
    """A stated confidence, from 0 to 1."""

    def read(self, text: str, item: Item) -> Answer:
        """See `confidence.read_confidence`."""
        return confidence.read_confidence(text)

    def gold(self, text: str, item: Item) -> str | None:
        """A canonical decimal."""
        value = exact_number(text)
        return None if value is None else canonical(value)

    def right(self, answer: Answer, gold: str, item: Item) -> bool:
        """Exactly."""
        return answer.key == gold


class JudgementCases:
    """What a judge decides on, in JSON."""

    def read(self, text: str, item: Item) -> Answer:
        """See `judgement.read_judgement`."""
        return judgement.read_judgement(text)

    def gold(self, text: str, item: Item) -> str | None:
        """As it is written."""
        return text.strip() or None

    def right(self, answer: Answer, gold: str, item: Item) -> bool:
        """As numbers or as words."""
        return judgement.same_judgement(answer, gold)


# A case's task -> how its replies are read. The kinds of answers can be named as well as benchmarks.
CASE_READERS: Mapping[str, Callable[[], CaseReader]] = {
    "number": NumberReader,
    "gsm8k": NumberReader,
    "svamp": NumberReader,
    "addsub": NumberReader,
    "arithmetic": NumberReader,
    "choice": ChoiceReader,
    "mmlu": ChoiceReader,
    "mmlu_redux": ChoiceReader,
    "aqua": ChoiceReader,
    "ecqa": ChoiceReader,
    "commonsenseqa": ChoiceReader,
    "arc": ChoiceReader,
    "truthfulqa_mc": ChoiceReader,
    "date_understanding": ChoiceReader,
    "yes_no": YesNoReader,
    "strategyqa": YesNoReader,
    "yesno": YesNoReader,
    "expression": ExpressionReader,
    "math": ExpressionReader,
    "math500": ExpressionReader,
    "move": MoveCases,
    "chess_move": MoveCases,
    "confidence": ConfidenceCases,
    "judge_json": JudgementCases,
}


class CaseError(ValueError):
    """A case lacks a field or has one that cannot be used."""


@dataclass(frozen=True, slots=True)
class CaseVerdict:
    """What became of a case.

    answer: canonical; None for no answer, which is never correct. rule: what matched, or why there is no answer.
    """

    id: str
    answer: str | None
    rule: str
    correct: bool


def read_case(case: Mapping[str, Any]) -> Answer:
    """The answer of a case's reply, read as its task reads it. Raises CaseError."""
    return _read(case, _reader(case), _item(case))


def grade_case(case: Mapping[str, Any]) -> CaseVerdict:
    """Read a case's reply and hold the answer against its gold. A gold that cannot be read is no answer's.

    Raises CaseError.
    """
    reader, item = _reader(case), _item(case)
    answer = _read(case, reader, item)
    golds = [reader.gold(text, item) for text in (item.target, *item.also)]
    correct = not answer.missing and any(gold is not None and reader.right(answer, gold, item) for gold in golds)
    return CaseVerdict(item.id, answer.value, answer.rule, correct)


def means(case: Mapping[str, Any], verdict: CaseVerdict, text: str | None) -> bool:
    """Is what was read what somebody else says the answer is, by the rules that golds are held to? None: no answer."""
    if text is None or verdict.answer is None:
        return text is None and verdict.answer is None
    reader, item = _reader(case), _item(case)
    gold = reader.gold(str(text), item)
    read = Answer(verdict.answer, verdict.answer, verdict.rule)
    return verdict.answer == text or (gold is not None and reader.right(read, gold, item))


def _read(case: Mapping[str, Any], reader: CaseReader, item: Item) -> Answer:
    text = str(case["text"] or "")
    return reader.read(text, item).unless_cut(text, str(case.get("finish_reason")))


def _reader(case: Mapping[str, Any]) -> CaseReader:
    task = case.get("task")
    if not isinstance(task, str) or task not in CASE_READERS:
        wrong = f"unknown task {task!r}" if "task" in case else f"it lacks task (found {', '.join(sorted(case))})"
        raise CaseError(f"case {case.get('id')!r}: {wrong}; the tasks are {', '.join(sorted(CASE_READERS))}")
    return CASE_READERS[task]()


def _item(case: Mapping[str, Any]) -> Item:
    missing = [name for name in ("id", "text", "gold") if name not in case]
    choices = case.get("choices") or []
    if missing or not isinstance(choices, list):
        raise CaseError(
            f"case {case.get('id')!r}: {'choices is no list' if not missing else 'it lacks ' + ', '.join(missing)}; "
            f"found {', '.join(sorted(case))}"
        )
    if CASE_READERS[case["task"]] is ChoiceReader and not choices:
        raise CaseError(f"case {case['id']!r}: task {case['task']} needs choices, a list of the options' texts")
    golds = case["gold"] if isinstance(case["gold"], list) else [case["gold"]]
    gold, *also = ["" if gold is None else str(gold) for gold in golds] or [""]
    return Item(str(case["id"]), str(case.get("question") or ""), gold, tuple(map(str, choices)), also=tuple(also))
