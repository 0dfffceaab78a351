"""Faults of released code, re-enacted by name (`quirks=[...]`) so that a published figure can be explained.

A quirk changes what is read, what is scored or which items there are, never what is asked: beside its plain twin a run
with quirks sends nothing new. Its name begins with the paper's first author. None is ever on by itself; a run that has
some says so in its label, its tables and run.json.

Rule 1: a quirk is one class, whose docstring names the paper and the fault; papers.md is the source of both.
Rule 2: a quirk that cannot matter to a task is refused for it, not ignored.
"""

import difflib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

from debate_local.core.chat import derive_seed
from debate_local.core.task import Grade, Grading, Task
from debate_local.core.transcript import Answer, Item, Transcript
from debate_local.core.voting import last_votes, votes_of
from debate_local.tasks.answers.answer_task import AnswerTask
from debate_local.tasks.answers.choice import LETTERS
from debate_local.tasks.answers.numerals import canonical, exact_number
from debate_local.tasks.answers.readers import ChoiceReader, YesNoReader, first_letter


class Quirk:
    """What one fault changes; with these methods, nothing. suits: the tasks that it may be given to, in words."""

    suits = "every task"

    def __init__(self, task: AnswerTask, seed: int) -> None:
        self.task, self.seed = task, seed

    @classmethod
    def fits(cls, task: AnswerTask) -> bool:
        """Can it matter to this task?"""
        return True

    def loaded(self, items: Sequence[Item]) -> Sequence[Item]:
        """The items that the loader gives, of all of the source's."""
        return items

    def kept(self, items: Sequence[Item]) -> Sequence[Item]:
        """The items of which results are kept, of all that a run was to have."""
        return items

    def read(self, answer: Answer, text: str, item: Item) -> Answer:
        """What is read in a reply, given what was read so far."""
        return answer

    def score(self, score: float, answer: Answer, item: Item) -> float:
        """The score of an answer, which may be none, given its score so far."""
        return score

    def verdict(self, score: float, transcript: Transcript) -> float:
        """The score of a debate whose answers are one decision, given its score so far."""
        return score


class _OfGSM8K(Quirk):
    suits = "task gsm8k"

    @classmethod
    def fits(cls, task: AnswerTask) -> bool:
        return task.name == "gsm8k"


class _OfMMLU(Quirk):
    suits = "task mmlu"

    @classmethod
    def fits(cls, task: AnswerTask) -> bool:
        return task.name == "mmlu"


class NoneIsRight(_OfGSM8K):
    """Du et al. 2023, GSM8K: no answer that can be parsed counts as correct."""

    def score(self, score: float, answer: Answer, item: Item) -> float:
        return 1.0 if answer.missing else score


class GoldDigits(_OfGSM8K):
    """Du et al. 2023, GSM8K: the pattern for the gold ignores commas and minus, so that 1,234 is 234 and -5 is 5."""

    def score(self, score: float, answer: Answer, item: Item) -> float:
        if answer.missing or not (numbers := _DIGITS.findall(self.task.golds.get(item.id, item.target))):
            return score
        misread = exact_number(numbers[-1])
        return score if misread is None else float(answer.key == canonical(misread))


_DIGITS = re.compile(r"\d+(?:\.\d+)?")


class NoMinus(_OfGSM8K):
    """Du et al. 2023, GSM8K: predictions have no minus sign, so that -3 is read as 3."""

    def read(self, answer: Answer, text: str, item: Item) -> Answer:
        if answer.key is None or answer.value is None:
            return answer
        return replace(answer, value=answer.value.lstrip("-"), key=answer.key.lstrip("-"))


class CommaIsPoint(Quirk):
    """Du et al. 2023, arithmetic: commas are turned into dots, so that 1,000 is read as 1.0."""

    suits = "task arithmetic"

    @classmethod
    def fits(cls, task: AnswerTask) -> bool:
        return task.name == "arithmetic"

    def read(self, answer: Answer, text: str, item: Item) -> Answer:
        if answer.span is None or "," not in (said := text[slice(*answer.span)]):
            return answer
        dotted = said.replace(",", ".").replace("\N{MINUS SIGN}", "-").strip("$ ")
        # 1.234.567 is no number to it.
        misread = exact_number(dotted) if _ONE_POINT.fullmatch(dotted) else None
        if misread is None:
            return Answer.none("no number once commas are points")
        return replace(answer, value=canonical(misread), key=canonical(misread), rule=f"{answer.rule}, comma as point")


_ONE_POINT = re.compile(r"-?\d+\.\d+")


class LastAgentNone(_OfMMLU):
    """Du et al. 2023, MMLU: the check for no answer looks at the last agent only, whatever the others answered."""

    def verdict(self, score: float, transcript: Transcript) -> float:
        votes = last_votes(votes_of(transcript.turns))
        return 0.0 if votes and votes[-1].answer.missing else score


class FirstRowEaten(_OfMMLU):
    """Du et al. 2023, MMLU: the loader takes the first row of each subject for a header, and it is never asked."""

    def loaded(self, items: Sequence[Item]) -> Sequence[Item]:
        first: dict[str, str] = {}
        for item in items:
            first.setdefault(item.group, item.id)
        return [item for item in items if first[item.group] != item.id]


class YesNoSubstring(Quirk):
    """Du et al. 2023: yes and no are found within words, yes first: `no` in `know`, `yes` in `eyes`."""

    suits = "tasks of yes and no, such as strategyqa"

    @classmethod
    def fits(cls, task: AnswerTask) -> bool:
        return isinstance(task.reader, YesNoReader)

    def read(self, answer: Answer, text: str, item: Item) -> Answer:
        for word in ("yes", "no"):
            if (start := text.lower().find(word)) >= 0:
                return Answer(word, word, f"{word!r} somewhere", (start, start + len(word)))
        return Answer.none("neither 'yes' nor 'no' anywhere")


class KeyedByQuestion(Quirk):
    """Du et al. 2023: results are keyed by the question's text: of items that ask the same the last is left."""

    def kept(self, items: Sequence[Item]) -> Sequence[Item]:
        last = {item.question: item.id for item in items}
        return [item for item in items if last[item.question] == item.id]


class RandomLabel(Quirk):
    """Chen et al. 2024: an answer that cannot be read becomes a random label. Here drawn by seed, item and reply."""

    suits = "tasks of options or of yes and no, such as strategyqa, ecqa and aqua"

    @classmethod
    def fits(cls, task: AnswerTask) -> bool:
        return isinstance(task.reader, (ChoiceReader, YesNoReader))

    def read(self, answer: Answer, text: str, item: Item) -> Answer:
        if not answer.missing:
            return answer
        labels = LETTERS[: len(item.choices)] if item.choices else ("yes", "no")
        label = labels[derive_seed(self.seed, item.id, -1, 0, f"label of {text}") % len(labels)]
        return Answer(label, first_letter(item.choices, label) if item.choices else label, "a random label")


QUIRKS: Mapping[str, type[Quirk]] = {
    "du_first_row_eaten": FirstRowEaten,
    "du_keyed_by_question": KeyedByQuestion,
    "du_no_minus": NoMinus,
    "du_comma_is_point": CommaIsPoint,
    "du_yes_no_substring": YesNoSubstring,
    "du_gold_digits": GoldDigits,
    "du_none_is_right": NoneIsRight,
    "du_last_agent_none": LastAgentNone,
    "chen_random_label": RandomLabel,
}


@dataclass(slots=True)
class QuirkyTask(AnswerTask):
    """A task of one reader, with faults."""

    quirks: Sequence[Quirk] = ()

    def read(self, text: str, item: Item) -> Answer:
        """The answer that a reply gives, by its reader and then by each quirk."""
        answer = AnswerTask.read(self, text, item)
        for quirk in self.quirks:
            answer = quirk.read(answer, text, item)
        return answer

    def score(self, answer: Answer, item: Item) -> float:
        """The score of an answer, which may be none."""
        score = AnswerTask.score(self, answer, item)
        for quirk in self.quirks:
            score = quirk.score(score, answer, item)
        return score

    def grade(self, transcript: Transcript, item: Item) -> Grading:
        """By rule, without a request; here a missing answer may have a score."""
        by_answer = [self.score(answer, item) for answer in transcript.decision.answers]
        if len(by_answer) == 1:
            for quirk in self.quirks:
                by_answer = [quirk.verdict(by_answer[0], transcript)]
        return Grade(math.fsum(by_answer) / max(1, len(by_answer)), tuple(by_answer))
        yield []  # a generator that asks nothing


def checked(names: Sequence[str]) -> list[str]:
    """The names in the order in which quirks work, each once. Raises ValueError for one that is none."""
    if unknown := next((name for name in names if name not in QUIRKS), None):
        near = difflib.get_close_matches(unknown, QUIRKS, n=1)
        raise ValueError(
            f"there is no quirk {unknown!r}.{f' Did you mean {near[0]!r}?' if near else ''} The quirks:\n"
            + "\n".join(f"  {name}  {told(name)}" for name in QUIRKS)
        )
    return [name for name in QUIRKS if name in names]


def told(name: str) -> str:
    """What a quirk re-enacts, in one line."""
    return (QUIRKS[name].__doc__ or "").strip() if name in QUIRKS else "not known to this version"


def with_quirks(task: Task, names: Sequence[str], seed: int) -> Task:
    """The task with these faults; the task itself where there are none. seed: the run's.

    Raises ValueError for a quirk that is none, or that cannot matter to this task.
    """
    if not names:
        return task
    kinds = {name: QUIRKS[name] for name in checked(names)}
    if not isinstance(task, AnswerTask):
        raise ValueError(f"quirks={','.join(kinds)}: they work on tasks whose replies are read by rule")
    for name, kind in kinds.items():
        if not kind.fits(task):
            raise ValueError(f"quirk {name} is for {kind.suits}, and changes nothing here. {told(name)}")
    quirks = [kind(task, seed) for kind in kinds.values()]
    items = task.all_items
    for quirk in quirks:
        items = quirk.loaded(items)
    given = {f.name: getattr(task, f.name) for f in fields(task) if f.init}
    return QuirkyTask(**{**given, "all_items": items}, quirks=quirks)


def kept_items(task: Task, items: Sequence[Item]) -> list[Item]:
    """Of the items that a run was to have, those of which results are kept."""
    for quirk in task.quirks if isinstance(task, QuirkyTask) else ():
        items = quirk.kept(items)
    return list(items)
