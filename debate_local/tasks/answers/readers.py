"""The kinds of answers: how each is asked for, read, compared and held against a gold. Knows no benchmark.

A `Reader` joins the sentence that asks for a format, the function that reads a reply, and the same canonical form for
golds. `READERS` names those that `task=jsonl` offers.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from debate_local.core.transcript import Answer, Item
from debate_local.tasks.answers import choice, expression, formula, number, words, yes_no
from debate_local.tasks.answers.choice import LETTERS
from debate_local.tasks.answers.numerals import canonical, exact_number


class Reader(Protocol):
    """One kind of answer.

    format asks for what `read` reads first. stated: a reply's last sentence that gives a canonical gold as format asks
    for it. gold: a gold as its source writes it, in canonical form; None when it
    cannot be read. right: whether an answer, which is not missing, is this canonical gold. values: how many answers
    can be given to an item, None when there is no end to them.
    """

    @property
    def format(self) -> str: ...

    def read(self, text: str, item: Item) -> Answer: ...

    def stated(self, gold: str, item: Item) -> str: ...

    def same(self, a: Answer, b: Answer) -> bool: ...

    def gold(self, text: str, item: Item) -> str | None: ...

    def right(self, answer: Answer, gold: str, item: Item) -> bool: ...

    def values(self, item: Item) -> int | None: ...


@dataclass(frozen=True, slots=True)
class NumberReader:
    """One number, exact: 18 and 18.0 are one answer, 2/3 and 0.667 are two."""

    format: str = number.FORMAT

    def read(self, text: str, item: Item) -> Answer:
        """See `number.read_number`."""
        return number.read_number(text, item.question)

    def stated(self, gold: str, item: Item) -> str:
        """In a box."""
        return f"\\boxed{{{gold}}}"

    def same(self, a: Answer, b: Answer) -> bool:
        """Are both the same number?"""
        return number.same_number(a, b)

    def gold(self, text: str, item: Item) -> str | None:
        """The canonical number."""
        value = exact_number(text)
        return None if value is None else canonical(value)

    def right(self, answer: Answer, gold: str, item: Item) -> bool:
        """Exactly."""
        return answer.key == gold

    def values(self, item: Item) -> int | None:
        """There is no end to numbers."""
        return None


@dataclass(frozen=True, slots=True)
class ChoiceReader:
    """One of an item's options, by letter or text. Options with the same text are one vote: that of the first."""

    format: str = choice.FORMAT

    def read(self, text: str, item: Item) -> Answer:
        """See `choice.read_choice`; value is the letter that was said, key the first letter with that option's text."""
        answer = choice.read_choice(text, item.choices, stem(item))
        if answer.key is None or len(set(item.choices)) == len(item.choices):
            return answer
        return Answer(answer.value, first_letter(item.choices, answer.key), answer.rule, answer.span)

    def stated(self, gold: str, item: Item) -> str:
        """The letter in brackets."""
        return f"The answer is ({gold})."

    def same(self, a: Answer, b: Answer) -> bool:
        """Is it the same option?"""
        return choice.same_choice(a, b)

    def gold(self, text: str, item: Item) -> str | None:
        """The letter, given as one; of options with the same text the first."""
        letter = text.strip().strip("()")
        known = len(letter) == 1 and letter in LETTERS[: len(item.choices)]
        return first_letter(item.choices, letter) if known else None

    def right(self, answer: Answer, gold: str, item: Item) -> bool:
        """By letter."""
        return answer.key == gold

    def values(self, item: Item) -> int | None:
        """As many as options."""
        return len(item.choices)


@dataclass(frozen=True, slots=True)
class YesNoReader:
    """Yes or no."""

    format: str = yes_no.FORMAT

    def read(self, text: str, item: Item) -> Answer:
        """See `yes_no.read_yes_no`."""
        return yes_no.read_yes_no(text, item.question)

    def stated(self, gold: str, item: Item) -> str:
        """One word."""
        return f"The answer is {gold}."

    def same(self, a: Answer, b: Answer) -> bool:
        """Is it the same word?"""
        return not a.missing and a.key == b.key

    def gold(self, text: str, item: Item) -> str | None:
        """yes, no, true and false, in any case."""
        return {"yes": "yes", "true": "yes", "no": "no", "false": "no"}.get(text.strip().lower())

    def right(self, answer: Answer, gold: str, item: Item) -> bool:
        """By word."""
        return answer.key == gold

    def values(self, item: Item) -> int | None:
        """Two."""
        return 2


@dataclass(frozen=True, slots=True)
class ExpressionReader:
    """A mathematical expression, compared by meaning: \\frac12, 1/2 and 0.5 are right for one gold."""

    format: str = expression.FORMAT

    def read(self, text: str, item: Item) -> Answer:
        """See `expression.read_expression`."""
        return expression.read_expression(text, item.question)

    def prefetch(self, text: str, item: Item) -> None:
        """See `expression.prefetch`."""
        expression.prefetch(text, item.question)

    def stated(self, gold: str, item: Item) -> str:
        """In a box."""
        return f"\\boxed{{{gold}}}"

    def same(self, a: Answer, b: Answer) -> bool:
        """Do both mean the same?"""
        return expression.same_expression(a, b)

    def gold(self, text: str, item: Item) -> str | None:
        """As it is written; what it means is worked out when an answer is held against it."""
        return text.strip() if formula.understood(text, str) else None

    def right(self, answer: Answer, gold: str, item: Item) -> bool:
        """By meaning."""
        return expression.equals_gold(answer, gold)

    def values(self, item: Item) -> int | None:
        """There is no end to expressions."""
        return None


@dataclass(frozen=True, slots=True)
class WordsReader:
    """One of a few words, or a list of words in order. vocabulary: the words that can be; () for any."""

    vocabulary: tuple[str, ...] = ()
    format: str = words.FORMAT

    def read(self, text: str, item: Item) -> Answer:
        """See `words.read_words`."""
        return words.read_words(text, item.question, self.vocabulary)

    def stated(self, gold: str, item: Item) -> str:
        """In a box."""
        return f"\\boxed{{{gold}}}"

    def same(self, a: Answer, b: Answer) -> bool:
        """Are both the same words in the same order?"""
        return not a.missing and a.key == b.key

    def gold(self, text: str, item: Item) -> str | None:
        """The words in lower case, one blank between two."""
        key = words.words_key(text)
        return key if key and (not self.vocabulary or key in map(words.words_key, self.vocabulary)) else None

    def right(self, answer: Answer, gold: str, item: Item) -> bool:
        """By words."""
        return answer.key == gold

    def values(self, item: Item) -> int | None:
        """As many as the vocabulary has."""
        return len(self.vocabulary) or None


@dataclass(frozen=True, slots=True)
class GroupReader:
    """Another reader for each group of items. format asks for what all of them read."""

    by_group: Mapping[str, Reader]
    format: str

    def read(self, text: str, item: Item) -> Answer:
        """By the reader of the item's group."""
        return self.by_group[item.group].read(text, item)

    def stated(self, gold: str, item: Item) -> str:
        """By the reader of the item's group."""
        return self.by_group[item.group].stated(gold, item)

    def same(self, a: Answer, b: Answer) -> bool:
        """Answers of one item have keys of one kind."""
        return not a.missing and a.key == b.key

    def gold(self, text: str, item: Item) -> str | None:
        """By the reader of the item's group."""
        return self.by_group[item.group].gold(text, item)

    def right(self, answer: Answer, gold: str, item: Item) -> bool:
        """By the reader of the item's group."""
        return self.by_group[item.group].right(answer, gold, item)

    def values(self, item: Item) -> int | None:
        """Those of the item's group."""
        return self.by_group[item.group].values(item)


READERS: Mapping[str, Callable[[], Reader]] = {
    "number": NumberReader,
    "choice": ChoiceReader,
    "yes_no": YesNoReader,
    "expression": ExpressionReader,
    "words": WordsReader,
}


def with_options(question: str, choices: Sequence[str]) -> str:
    """A question and its options, one a line: (A) first, (B) second."""
    return f"{question}\n\n{_listed(choices)}" if choices else question


def stem(item: Item) -> str:
    """The question without the options."""
    return item.question.removesuffix(f"\n\n{_listed(item.choices)}")


def _listed(choices: Sequence[str]) -> str:
    return "\n".join(f"({letter}) {text}" for letter, text in zip(LETTERS, choices, strict=False))


def first_letter(choices: Sequence[str], letter: str) -> str:
    """The first letter whose option has the same text as this letter's."""
    return LETTERS[choices.index(choices[LETTERS.index(letter)])]
