"""Read the answer that a judge decides on, where no task is known: of graded cases. Never guesses.

What a verdict is and when it decides, `core/verdict.py` says. The value of its answer field is a number, an option's
letter, yes or no, or a few words; a sentence, several values and an empty field are no decision.
"""

import re

from debate_local.core.transcript import Answer
from debate_local.core.verdict import read_verdict
from debate_local.tasks.answers import voice
from debate_local.tasks.answers.number import read_number
from debate_local.tasks.answers.numerals import canonical, exact_number


def read_judgement(text: str) -> Answer:
    """The answer that a judge decides on: a number, an option's letter (upper case), yes or no, or a few words."""
    verdict = read_verdict(text)
    if verdict.undecided:
        return Answer.none(f"no decision: {verdict.undecided}")
    value, why = _value(verdict.answer)
    if value is None:
        return Answer.none(f"no decision: {why}")
    place = text.rfind(verdict.answer)
    span = (place, place + len(verdict.answer)) if place >= 0 else (0, len(text))
    return Answer(value, value.casefold(), verdict.rule, span)


def same_judgement(answer: Answer, gold: str) -> bool:
    """Is the decision this gold? Numbers are compared as numbers, words without their case."""
    if answer.value is None:
        return False
    a, b = exact_number(answer.value), exact_number(gold)
    return a == b if a is not None and b is not None else answer.value.casefold() == gold.strip().casefold()


_LETTER = re.compile(
    r"(?:the )?(?:(?:option|choice|answer)(?: is)?\W{1,3})?[(\[*\"']*([A-Za-z])[)\]*\"'.]*", re.IGNORECASE
)
_LETTER_FIRST = re.compile(r"[(\[*]*([A-Z])(?:[)\]:]|\.\s)")
_LETTER_STATED = re.compile(r"\b(?:answer|option|choice)\b(?:\s+is)?:?\s+(?:option\s+)?[(*\[]*([A-Z])\b(?![ '’]\w)")
_TWO_LETTERS = re.compile(r"\W*[A-Z]\W*(?:\s(?:and|or)\s|[,/&])\W*[A-Z]\W*")
_TWO_NUMBERS = re.compile(r"\W*\d[\d.]*(?:[,;]\s+|\s(?:and|or|to)\s)\W*\d[\d.]*\W*")
_YES_NO = re.compile(
    r"\W*(?:(?:the )?(?:final )?answer is\W*|it is\W*)?(yes|no|true|false)\b(?!\W+(?:or|and|answer|one)\b)",
    re.IGNORECASE,
)
_MACRO = re.compile(r"\\(?:text|textbf|mathrm|boxed|mathbf)\{([^{}]*)\}")
_MOST_WORDS = 6


def _value(given: str) -> tuple[str | None, str]:
    """The decided value of a field, or why there is none."""
    text = " ".join(_MACRO.sub(r"\1", given).split()).strip("$*` ")
    if (number := exact_number(text)) is not None:
        return canonical(number), ""
    if _TWO_LETTERS.fullmatch(text) or _TWO_NUMBERS.fullmatch(text):
        return None, "several values"
    if found := _LETTER.fullmatch(text) or _LETTER_FIRST.match(text):
        return found[1].upper(), ""
    if found := _YES_NO.match(text):
        return found[1].lower(), ""
    if found := _LETTER_STATED.search(text):
        return found[1], ""
    number_read = read_number(text)
    if number_read.value is not None:
        return number_read.value, ""
    words = text.strip(" .!\"'")
    if any(char.isdigit() for char in text) and number_read.rule != "no number":
        return None, number_read.rule
    said = len(words.split()) <= _MOST_WORDS and not voice.refused(words.lower())
    return (words, "") if said else (None, "a sentence")
