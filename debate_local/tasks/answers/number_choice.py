"""Which number a stretch of text states. Never one of several.

Knows nothing of cues and boxes: `number.py` says which stretch to look at.
"""

import re
from fractions import Fraction
from functools import cached_property
from itertools import pairwise

from debate_local.tasks.answers.numerals import Numeral, find_numerals, find_words
from debate_local.tasks.answers.reply import OwnText
from debate_local.tasks.answers.statements import Found
from debate_local.tasks.answers.voice import denied, refused

_MOST_NUMERALS = 20


class NumberText(OwnText):
    """The own part of a reply, and its numerals."""

    def numerals(self, start: int, end: int) -> list[Numeral]:
        """All numerals written with digits in text[start:end]; a chance of 1 in 4 is one."""
        found = find_numerals(self.text, start, end, lambda: self._continental)
        if len(found) > 1 and _CHANCE.search(self.low, start, end):
            return _chances(self.low, found)
        return found

    @cached_property
    def _continental(self) -> bool:
        """Is this a language that writes 1.250,50? Asked only for numerals that can be read both ways."""
        return _CONTINENTAL.search(self.low, len(self.low) - 2000) is not None


_CHANCE = re.compile(r"\b(?:chances?|probability|odds|likelihood)\b|\b1 in \d{1,3}\W*\Z")
_IN = re.compile(r"\s(?:in|out of)\s(?:every\s)?")


def _chances(low: str, numerals: list[Numeral]) -> list[Numeral]:
    """1 in 4, 3 out of 10 as one numeral each."""
    found = numerals[:1]
    for numeral in numerals[1:]:
        part = found[-1]
        if part.value is not None and numeral.value and _IN.fullmatch(low, part.end, numeral.start):
            found[-1] = Numeral(part.start, numeral.end, part.value / numeral.value, "chance")
        else:
            found.append(numeral)
    return found


_CONTINENTAL = re.compile(
    r"\b(?:antwort|ergebnis|lautet|beträgt|insgesamt|und|ist|sind|nicht|réponse|résultat|donc|sont|une|respuesta"
    r"|resultado|cuesta|una|risposta|risultato|della|sono|resposta|são|antwoord|het|een|ответ|итого)\b"
)

_UNIT = r"(?:[^\W\d]+[.']?\s+){0,3}"
_OPERATOR = re.compile(
    rf"[\s)\]}}$%]*{_UNIT}(?:\+|[-−–]|×|÷|\*|/|\\times|\\cdot|\\div|x|times|plus|minus|less"
    r"|(?:multiplied|divided) by)[\s(\[{$]*"
)
_ALTERNATIVE = re.compile(
    rf"[\s*$]*{_UNIT}(?:[-–—~&]|and|through|till|until)[\s*$]*(?:[a-z]\s*=\s*)?|[\s*$]*to[\s*$]*"
    r"|\s*(?:hours?|hrs?|minutes?|weeks?|days?|feet|ft|yards?)\s+|[^\d\n]{0,25}\b(?:could|might|may) (?:also "
    r"|just as well )?be\b[^\d\n]{0,10}|[^\d\n]{0,25}\b(?:otherwise|else)\b[^\d\n]{0,15}|[^\d\n]{0,25},\s*and[\s*$]*"
    r"|[^\d\n]{0,25}\bor\b[^\d\n]{0,25}"
)
_COMMA = re.compile(r"[\s$\\]*[,;][\s$\\]*")
_OPEN_END = re.compile(r"\s*(?:[+×÷=]|\\times|\\cdot|\s[-*/x])\s*\Z")
_CHANGE = re.compile(r"\b(?:chang|updat|revis|correct)\w*\b[^.]{0,40}\bfrom\s*\Z")
NO_NUMBER = re.compile(r"\b(?:unknown|undefined|undetermined|indeterminate|infinit[ey]|infinity|nan)\b|\\infty|∞")
_UNREAD = re.compile(r"\\(?:[dt]?frac|sqrt|pi|binom|log|ln|sin|cos|tan)\b|π|√")
_CLAUSE = re.compile(r",(?=\s)|[;(]|\b(?:because|since|as|which|where|when|if|for|after|but)\b")
LEADS_TO = re.compile(r"(?:[=≈:]|\b(?:is|are|equals|gives|makes|leaves|be))[\s*$\\]*(?:text\{)?\Z")


class Row:
    """The numerals of a stretch in their order, and what links each to the next one."""

    def __init__(self, reply: NumberText, numerals: list[Numeral]) -> None:
        self.numerals = numerals
        self._links = ["", *(_link(reply.low, a, b) for a, b in pairwise(numerals)), ""]

    def linked(self, numeral: Numeral, kind: str) -> bool:
        """Is this numeral linked so to the one before or after it?"""
        place = self.numerals.index(numeral)
        return kind in (self._links[place], self._links[place + 1])

    def across(self, text: str, equals: int, usable: list[Numeral]) -> list[Numeral]:
        """The right side of an equation, or what alone stands just left of it (20 = 14 + 6, 20 = x)."""
        right = [n for n in usable if n.start > equals]
        if right and not self.linked(right[0], "operator"):
            return right
        left = [n for n in usable if n.end <= equals and not text[n.end : equals].strip(" $&")]
        return [n for n in left if not self.linked(n, "operator") and text[equals + 1 :].strip()] or right

    def single(self, chosen: Numeral, rule: str) -> Found[Numeral]:
        """The chosen numeral, unless it is part of something else, or no number."""
        if self.linked(chosen, "operator"):
            return Found("an expression or a range")
        if self.linked(chosen, "alternative"):
            return Found("several candidates")
        if chosen.value is None:
            return Found(f"not a number: {chosen.form or 'several in a row'}")
        return Found(rule, chosen)


def _link(low: str, first: Numeral, second: Numeral) -> str:
    """How two neighbours belong together; equal values (52, fifty-two) are one answer."""
    gap = low[first.end : second.start]
    if len(gap) > 40 or (first.value == second.value and first.value is not None):
        return ""
    if second.form == "percent" and first.value is not None and second.value == 100 * first.value:
        # 0.25, or 25%
        return ""
    if _OPERATOR.fullmatch(gap):
        return "operator"
    if _COMMA.fullmatch(gap):
        return "comma"
    # `I change my answer from 10 to 12` is no range.
    if _ALTERNATIVE.fullmatch(gap) and not _CHANGE.search(low, max(0, first.start - 60), first.start):
        return "alternative"
    return ""


def stated(reply: NumberText, start: int, end: int, rule: str) -> Found[Numeral] | None:
    """The one number that text[start:end] states; a reason when it states no single number; None if nothing at all.

    An equation's right-hand side counts; else the first numeral does: what comes later explains it.
    """
    text, low = reply.text, reply.low
    if _NOTHING.match(low, start, end):
        return Found("stated, but not a number")
    row = Row(reply, (reply.numerals(start, end) or find_words(text, start, end))[:_MOST_NUMERALS])
    row = Row(reply, [n for n in row.numerals if not _PEER_NUMBER.search(low, max(start, n.start - 24), n.start)])
    if not row.numerals:
        nothing = refused(low[start:end]) or NO_NUMBER.search(low, start, end)
        return Found("stated, but not a number") if nothing else None
    if _UNREAD.search(_between(text, start, end, row.numerals)):
        return Found("an expression")
    if refused(low[start : row.numerals[0].start]):
        return Found("stated, but not a number")
    kept = [n for n in row.numerals if not denied(low, start, n.start, n.end)]
    if not kept:
        return Found("denied, nothing put in its place")
    clause = _CLAUSE.search(low, kept[0].end, end)
    equals = text.rfind("=", start, clause.start() if clause else end)
    if equals >= 0:
        if not text[equals + 1 : end].strip(" $*\\"):
            return Found("cut off after an equals sign")
        kept = row.across(text, equals, kept) or kept
    chosen = _product(reply, row, start, end) or kept[0]
    if _OPEN_END.match(low, chosen.end, end):
        return Found("cut off in an expression")
    if chosen.form == "product":
        return Found(rule, chosen)
    if row.linked(chosen, "comma") and (rule == "boxed" or _ONLY_NUMBERS.fullmatch(low, start, end)):
        return Found("several candidates")
    if row.linked(chosen, "operator"):
        later = [n for n in kept[1:] if LEADS_TO.search(low, max(start, n.start - 20), n.start)]
        chosen = later[-1] if later else chosen
    return row.single(chosen, rule)


# `null` and an empty text are values of JSON that say: no answer.
_NOTHING = re.compile(r"[\s\"'*_]*(?:null|none|n/?a|nan|unknown|undefined)\b|\s*,")
_ONLY_NUMBERS = re.compile(r"[\s\d.,;$€£%*_\\-]*")
_PEER_NUMBER = re.compile(
    r"\b(?:agents?|peers?|solvers?|debaters?|experts?|participants?|rounds?|responses?|solutions?)\s*#?\Z"
)


_TIMES = re.compile(r"\s*(?:×|\*|\\times|\\cdot)\s*")
_NOTHING_ELSE = re.compile(r"[\s$*_{}().]*")


def _product(reply: NumberText, row: Row, start: int, end: int) -> Numeral | None:
    """5 · 2³, when nothing else stands there: a way to write a number, as 3.2 · 10³ is."""
    numerals = row.numerals
    if len(numerals) < 2 or not any(n.form == "power" for n in numerals):
        return None
    value = Fraction(1)
    for numeral, following in zip(numerals, [*numerals[1:], None], strict=True):
        if numeral.value is None or (following and not _TIMES.fullmatch(reply.low, numeral.end, following.start)):
            return None
        value *= numeral.value
    first, last = numerals[0].start, numerals[-1].end
    if not _NOTHING_ELSE.fullmatch(reply.low, start, first) or not _NOTHING_ELSE.fullmatch(reply.low, last, end):
        return None
    return Numeral(first, last, value, "product")


def _between(text: str, start: int, end: int, numerals: list[Numeral]) -> str:
    edges = [start, *(edge for n in numerals for edge in (n.start, n.end)), end]
    return " ".join(text[a:b] for a, b in zip(edges[::2], edges[1::2], strict=True))
