"""Stances: whether an agent agrees with each of several answers, as lines of their own in its reply.

`Group 1: agree`, `**Group 2:** I disagree, because ...` and `group 3 - I do not agree` are stances. A line that says
both or neither, and two lines on one group that differ, are none. FORMAT asks for what is read.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

FORMAT = "Begin with one line for each group, `Group 1: agree` or `Group 1: disagree`."


@dataclass(frozen=True, slots=True)
class Stances:
    """words: for each group `agree`, `disagree`, or "" where nothing can be read. spans: where they stand in the text,
    [start, end): whoever reads the answer leaves these lines out."""

    words: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]


def read_stances(text: str, groups: int) -> Stances:
    """What a reply says of groups 1, 2, ... of so many."""
    said: dict[int, set[str]] = {}
    spans = []
    for line in _LINE.finditer(text):
        number, word = int(line["number"]), _word(line["rest"])
        if word and 1 <= number <= groups:
            said.setdefault(number, set()).add(word)
            spans.append(line.span())
    each: Sequence[set[str]] = [said.get(number, set()) for number in range(1, groups + 1)]
    return Stances(tuple(next(iter(words)) if len(words) == 1 else "" for words in each), tuple(spans))


def with_answers(text: str, answers: Sequence[str]) -> str:
    """The text with each `Group 2` in it told by that group's answer: the next prompt's groups are others."""

    def told(found: re.Match[str]) -> str:
        number = int(found["number"])
        return f"the answer {answers[number - 1]}" if 1 <= number <= len(answers) else found[0]

    return _NAMED.sub(told, text)


_NAMED = re.compile(r"\bgroup[ \t]?(?P<number>\d{1,3})\b", re.IGNORECASE)
_LINE = re.compile(
    r"^(?:[^\w\n]|_){0,12}group(?:[^\w\n]|_){0,6}(?P<number>\d{1,3})(?:[^\w\n]|_){1,12}(?P<rest>\S.*)$",
    re.IGNORECASE | re.MULTILINE,
)
_AGAINST = re.compile(r"\bdisagree(?:s|d)?\b|(?:\bnot|n['\u2019]t|\bcannot|\bnever)\s+(?:\w+\s+)?agree\b")
_FOR = re.compile(r"\bagree(?:s|d)?\b")


def _word(text: str) -> str:
    low = text.lower()
    against, favours = _AGAINST.search(low) is not None, _FOR.search(_AGAINST.sub(" ", low)) is not None
    return "" if against == favours else "disagree" if against else "agree"
