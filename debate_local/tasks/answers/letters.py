"""Where a stretch of a reply names options by letter, alone or several together. Not which of them it chooses.

A capital that stands alone counts unless it can only be something else: the article A, the pronoun I, a Roman numeral,
a variable (A + B), a part of a name (T-cell, E. coli). A small letter counts in brackets, or alone where an answer is
due.
"""

import re
from typing import NamedTuple

from debate_local.tasks.answers.reply import OwnText

_CJK = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
# Cyrillic and Greek letters that look like Latin ones, where no word of their language follows.
_TWINS = dict(zip("АВСЕНІАΑΒΕΗΙасе", "ABCEHIAABEHIace", strict=True))
_TWIN = re.compile(rf"(?<!\w)[{''.join(_TWINS)}](?!\w|\s+[^\W\d_a-zA-Z])")


class Letters(NamedTuple):
    """Options named together at [start, end): `B`, `A and B`. options: places from 0, perhaps beyond the last one."""

    start: int
    end: int
    options: tuple[int, ...]


def latin(text: str) -> str:
    """The same text with look-alikes of Latin option letters, standing alone, as Latin letters."""
    return text if text.isascii() else _TWIN.sub(lambda twin: _TWINS[twin.group()], text)


# An option's letter, its brackets and markup.
_OPEN = r"(?:\\[a-z]{2,10}\s?\{\s?|[(\[{<*_\"'“‘`$]|\\[(\[])*"
_LETTER = re.compile(
    rf"(?<![^\W_{_CJK}])(?<![\\^/-])(?<!\w')(?<!\w_)(?<![a-zA-Z]\.)([A-Za-z])"
    rf"(?![^\W_{_CJK}]|[-'+^#](?=\w)|\+|_\w|\.[A-Za-z]\b|\.\d|\s?=(?!=|>))"
)
_CLOSE = re.compile(r"[)\]}>*_\"'”’`$\\]*")
_AND = re.compile(
    r"\s*(?:,|/|;|&|\+)?\s*(?:\b(?:and|or|nor|und|oder|et|ou|y|o|и|или)\b|[和或、与])?\s*(?:options?|choices?)?\s*"
    + _OPEN
)
_SINGULAR = re.compile(r"\s+(?:is|was|has|would|could|can|does|seems|looks|because)\b")
# What may follow the capital A or I of an option, and a small letter, without a mark between.
_FOLLOWS = re.compile(
    r"\s*(?:\Z|[.,;:!?)\]}>*_\"'”’`$\\(\n/|–—=→]|- |--)"
    rf"|\s+(?:is|was|are|because|since|as|and|or|nor|due|for|by|with|which|would|must|should|has|had|seems|looks|"
    r"appears|fits|matches|remains|it|though|that|given|based|while|not|but|can|cannot|could|does|in|here)\b"
    rf"|\s*[{_CJK}]"
)
_ROMAN = re.compile(r"\s*(?:,|and|or|&|only)\s*(?:I{2,3}|IV|V|only)\b|\s+only\b")


def letters_in(reply: OwnText, start: int, end: int, count: int) -> list[Letters]:
    """All letters that text[start:end] names, those of one enumeration together. count: how many options there are."""
    found: list[Letters] = []
    place = start
    while first := _LETTER.search(reply.text, place, end):
        group = _group(reply, first, end, count)
        if group:
            found.append(group)
        place = group.end if group else first.end()
    return found


def letters_at(reply: OwnText, place: int, end: int, count: int) -> Letters | None:
    """The letters that stand at `place` itself, small ones too."""
    first = _LETTER.match(reply.text, place, end)
    return _group(reply, first, end, count, small=True) if first else None


def _group(reply: OwnText, first: re.Match[str], end: int, count: int, small: bool = False) -> Letters | None:
    """The enumeration that begins with this letter."""
    if not _names(reply, first, end, count, small):
        return None
    options, stop = [_place(first)], _closed(reply, first, end)
    while link := _AND.match(reply.text, stop, end):
        letter = _LETTER.match(reply.text, link.end(), end)
        linked = reply.text[stop : link.end()].strip(" *_\"'()[]$")
        if not linked or not letter or not _names(reply, letter, end, count, small and first.group().islower()):
            break
        if _SINGULAR.match(reply.low, letter.end(), end):
            # `B, and C is wrong` lists nothing.
            break
        options.append(_place(letter))
        stop = _closed(reply, letter, end)
    return Letters(first.start(), stop, tuple(options))


def _names(reply: OwnText, letter: re.Match[str], end: int, count: int, small: bool) -> bool:
    """Does this letter name an option?"""
    char, text = letter.group(), reply.text
    bracketed = text[letter.start() - 1 : letter.start()] in ("(", "[") and text[letter.end() : letter.end() + 1] in (
        ")",
        "]",
    )
    if bracketed:
        # force(s)
        return not text[letter.start() - 2 : letter.start() - 1].isalnum()
    if text[max(0, letter.start() - 2) : letter.start()].strip()[-1:].isdecimal():
        # The unit of a number: 7 J.
        return False
    if char in "I" and (count <= 8 or _ROMAN.match(text, letter.end(), end)):
        return False
    if char in "AI" or (char.islower() and small):
        return _FOLLOWS.match(text, letter.end(), end) is not None
    return char.isupper()


def _place(letter: re.Match[str]) -> int:
    return ord(letter.group().upper()) - ord("A")


def _closed(reply: OwnText, letter: re.Match[str], end: int) -> int:
    close = _CLOSE.match(reply.text, letter.end(), end)
    return close.end() if close else letter.end()
