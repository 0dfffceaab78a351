"""Read what a judge decided: the answer in its JSON, or the side that it says has won. Never guesses, never substrings.

No decision, as an outcome of its own: no preference although an answer is given, both sides or none supported, two
values, an empty field, a reply without the field. Knows nothing of the task: a task with options or numbers reads the
field's text with its own reader.
"""

import re
from collections.abc import Sequence
from typing import Any

from debate_local.core.transcript import Answer
from debate_local.tasks.answers import voice
from debate_local.tasks.answers.fields import read_fields
from debate_local.tasks.answers.number import read_number
from debate_local.tasks.answers.numerals import canonical, exact_number
from debate_local.tasks.answers.reply import lower, own_part, sentences

FORMAT = (
    'Reply in JSON with the keys "Whether there is a preference" ("Yes" or "No"), "Supported Side" ("Affirmative" or '
    '"Negative"), "Reason" and "debate_answer".'
)
FIELDS = ("Whether there is a preference", "Supported Side", "debate_answer")


def read_judgement(text: str) -> Answer:
    """The answer that a judge decides on: a number, an option's letter (upper case), yes or no, or a few words."""
    given = read_fields(text, FIELDS)
    preference, side, answer = (given.values.get(name) for name in FIELDS)
    if answer is None:
        return Answer.none("no decision: no answer is given")
    if preference is False or _NO.fullmatch(str(preference or "")):
        return Answer.none("no decision: no preference")
    if _NO_SIDE.fullmatch(str(side or "")):
        return Answer.none("no decision: not one side")
    value, why = _value(answer)
    if value is None:
        return Answer.none(f"no decision: {why}")
    written = str(answer)
    place = text.rfind(written) if written else -1
    return Answer(value, value.casefold(), given.rule, (place, place + len(written)) if place >= 0 else (0, len(text)))


def same_judgement(answer: Answer, gold: str) -> bool:
    """Is the decision this gold? Numbers are compared as numbers, words without their case."""
    if answer.value is None:
        return False
    a, b = exact_number(answer.value), exact_number(gold)
    return a == b if a is not None and b is not None else answer.value.casefold() == gold.strip().casefold()


_NO = re.compile(r"\W*(?:no|none|false|no preference|neither)\W*", re.IGNORECASE)
_NO_SIDE = re.compile(
    r"\W*(?:both(?: sides)?|neither(?: side)?|none|equal(?:ly)?|tie|draw|undecided|unclear"
    r"|affirmative\W+(?:and|&|/|or)?\W*negative|negative\W+(?:and|&|/|or)?\W*affirmative)\W*",
    re.IGNORECASE,
)
_NOTHING = re.compile(
    r"\W*(?:(?:the )?answer is )?"
    r"(?:none|null|n/?a|unknown|undecided|undetermined|unclear|no (?:answer|decision|preference)|neither|both|either"
    r"|tbd"
    r"|(?:i\s+)?(?:cannot|can not|can't|could not|am unable to) (?:decide|determine|say|tell|choose).*"
    r"|not (?:sure|decided|available|applicable)|pending|tie|draw)?\W*",
    re.IGNORECASE,
)
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


def _value(given: Any) -> tuple[str | None, str]:
    """The decided value of a field, or why there is none."""
    if isinstance(given, bool):
        return str(given).lower(), ""
    if isinstance(given, list):
        values = {_value(element)[0] for element in given[:20]}
        return (values.pop() if len(values) == 1 else None), "several values"
    if isinstance(given, dict):
        return None, "an object"
    text = " ".join(_MACRO.sub(r"\1", str(given)).split()).strip("$*` ")
    if _NOTHING.fullmatch(text):
        return None, "empty"
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


_WINS = re.compile(
    r"\b(?:wins?|won|winner|prevails?|is (?:right|correct|better|stronger|more \w+)|support(?:s|ed|ing)?"
    r"|favou?r(?:s|ed)?|agree(?:s)? with|side(?:s|d)? with|verdict|preference|convinc\w+|persua\w+)\b"
)


def read_side(text: str, sides: Sequence[str], field: str = "Supported Side") -> Answer:
    """The side that a reply says has won. value is the side as given, key its lower case.

    sides: their names, such as affirmative and negative. A JSON field of that name is read first, then the last
    sentence that speaks of winning. Names count as whole words only: `con` is not in `concrete`.
    """
    given = read_fields(text, [field]).values.get(field)
    if given is not None:
        return _one_side(str(given), sides, 0, "field")
    own = own_part(text)
    for sentence in reversed(list(sentences(own))[-40:]):
        said = own[sentence.start : sentence.end]
        if sentence.mark != "?" and _WINS.search(lower(said)):
            return _one_side(said, sides, sentence.start, "verdict")
    return _one_side(own, sides, 0, "only mention")


_AT_ONCE = re.compile(r"[\s*:]*(?:(?:side|the|is|clearly|has|by)\s+)*")


def _one_side(text: str, sides: Sequence[str], offset: int, rule: str) -> Answer:
    """The one side that a stretch names, negated ones apart; with several, the one next to the word for winning."""
    low = lower(text)
    named = [
        (side, found.start(), found.end())
        for side in sides
        for found in re.finditer(rf"(?<!\w){re.escape(side.lower())}(?!\w)", low)
        if not voice.denied(low, 0, found.start(), found.end())
    ]
    if len({side for side, _, _ in named}) > 1:
        wins = _WINS.search(low)
        direct = [
            one
            for one in named
            if wins and re.fullmatch(r"[\s*:]*(?:(?:side|the|is|clearly|has|by)\s+)*", low[one[2] : wins.start()])
        ]
        named = direct if rule == "verdict" else []
    if len({side for side, _, _ in named}) != 1:
        return Answer.none("no one side")
    side, start, end = named[-1]
    return Answer(side, side.lower(), rule, (offset + start, offset + end))
