"""Which numeral a stretch of text arrives at: in a stated answer, and in a sentence of prose. Never one of several.

Knows nothing of cues and boxes: `number.py` says which stretch to look at.
"""

import re
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from debate_local.tasks.answers.numerals import Numeral, find_numerals, find_words
from debate_local.tasks.answers.reply import Sentence, lower
from debate_local.tasks.answers.voice import denied, refused

# A longer sentence is a loop; what it arrives at stands at its end.
_LONGEST_SENTENCE = 240
_MOST_NUMERALS = 20


@dataclass(frozen=True, slots=True)
class Found:
    """A verdict: the numeral and the rule that chose it, or no numeral and why there is no answer."""

    rule: str
    numeral: Numeral | None = None


class NumberText:
    """A reply's own part (`reply.own_part`), as written and in lower case; the same length."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.low = lower(text)

    def numerals(self, start: int, end: int) -> list[Numeral]:
        return find_numerals(self.text, start, end, lambda: self._continental)

    @cached_property
    def _continental(self) -> bool:
        """Is this a language that writes 1.250,50? Asked only for numerals that can be read both ways."""
        return _CONTINENTAL.search(self.low, len(self.low) - 2000) is not None


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
    r"|\s*(?:hours?|hrs?|minutes?|weeks?|days?|feet|ft|yards?)\s+"
    r"|[^\d\n]{0,25}\b(?:could|might|may) (?:also )?be\b[^\d\n]{0,10}"
    r"|[^\d\n]{0,25},\s*and[\s*$]*|[^\d\n]{0,25}\bor\b[^\d\n]{0,25}"
)
_COMMA = re.compile(r"[\s$\\]*[,;][\s$\\]*")
_OPEN_END = re.compile(r"\s*(?:[+×÷=]|\\times|\\cdot|\s[-*/x])\s*\Z")
_CHANGE = re.compile(r"\b(?:chang|updat|revis|correct)\w*\b[^.]{0,40}\bfrom\s*\Z")
_NO_NUMBER = re.compile(r"\b(?:unknown|undefined|undetermined|indeterminate|infinit[ey]|infinity|nan)\b|\\infty|∞")
_UNREAD = re.compile(r"\\(?:[dt]?frac|sqrt|pi|binom|log|ln|sin|cos|tan)\b|π|√")
_CLAUSE = re.compile(r",(?=\s)|[;(]|\b(?:because|since|as|which|where|when|if|for|after|but)\b")
_LEADS_TO = re.compile(r"(?:[=≈:]|\b(?:is|are|equals|gives|makes|leaves|be))[\s*$\\]*(?:text\{)?\Z")


class _Row:
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

    def single(self, chosen: Numeral, rule: str) -> Found:
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
    if _OPERATOR.fullmatch(gap):
        return "operator"
    if _COMMA.fullmatch(gap):
        return "comma"
    # `I change my answer from 10 to 12` is no range.
    if _ALTERNATIVE.fullmatch(gap) and not _CHANGE.search(low, max(0, first.start - 60), first.start):
        return "alternative"
    return ""


def stated(reply: NumberText, start: int, end: int, rule: str) -> Found | None:
    """The one number that text[start:end] states; a reason when it states no single number; None if nothing at all.

    An equation's right-hand side counts; else the first numeral does: what comes later explains it.
    """
    text, low = reply.text, reply.low
    row = _Row(reply, (reply.numerals(start, end) or find_words(text, start, end))[:_MOST_NUMERALS])
    if not row.numerals:
        nothing = refused(low[start:end]) or _NO_NUMBER.search(low, start, end)
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
    chosen = kept[0]
    if _OPEN_END.match(low, chosen.end, end):
        return Found("cut off in an expression")
    if rule == "boxed" and row.linked(chosen, "comma"):
        return Found("several candidates")
    if row.linked(chosen, "operator"):
        later = [n for n in kept[1:] if _LEADS_TO.search(low, max(start, n.start - 20), n.start)]
        chosen = later[-1] if later else chosen
    return row.single(chosen, rule)


def _between(text: str, start: int, end: int, numerals: list[Numeral]) -> str:
    edges = [start, *(edge for n in numerals for edge in (n.start, n.end)), end]
    return " ".join(text[a:b] for a, b in zip(edges[::2], edges[1::2], strict=True))


_LABELS = {"agent", "case", "chapter", "class", "deck", "equation", "example", "grade", "level", "line", "method", "no"}
_LABELS |= {"number", "option", "page", "part", "peer", "problem", "question", "response", "room", "round", "solution"}
_LABELS |= {"step", "steps"} | {f"{label}s" for label in _LABELS}
_BELIEF_BEFORE = re.compile(r"\bconfidence(?: level)?\W*(?:(?:of|is)\W+)?\Z")
_ASIDE = re.compile(
    r"\b(?:for|among|between|per|with|by|from|after|at|in|on|than|every|each|over|within|during|until|since|before"
    r"|out of|of (?:the|his|her|their|its|my))\s+"
    r"(?:(?:the|a|an|his|her|their|its|my|all|each|every|these|those|other|about|only|just|\w+'s)\s+){0,2}[*\\]*\Z"
    r"|\b(?:after|before|by|when|while|from)\s+\w+ing\s+(?:the\s+)?[*\\]*\Z|,\s+an?\s+\Z"
    r"|\d\s+[a-z]+\s+to\s+[a-z]+\s+(?:the\s+)?[*\\]*\Z"
)
_NAMED = re.compile(r"[a-z,] [A-Z][a-z]+ \Z")
_AND_BEFORE = re.compile(r"[^.,;]{0,40}\b(?:and|or)\s+")
_CONDITION = re.compile(r"[\s*]*(?:so,?\s+)?(?:if|when|since|because|after|with|for|in|at|given)\b[^,]{0,120},\s")
_BELIEF = re.compile(r"\s*(?:sure|confident|certain|confidence|certainty)\b")
_ADJECTIVE = re.compile(r"(?:st|nd|rd|th)\b|-[a-z]|\s+times (?:as|more|the)\b|\s+of\s+(?:the\b|\d)")
_OPERANDS = re.compile(
    r"\b(?:sum|product|difference|quotient|average|total) (?:of|between)\b[^.]{1,40}? and [\s$]*[-\d.,]+"
)
_OPENS = re.compile(r"[\s*_$\\(\[>\-]*+(?:so|thus|therefore|hence|and|yes)?+[\s,:*$]*+\Z")
_CONCLUDES = re.compile(
    r"\b(?:so|therefore|thus|hence|leaving|making|giving|meaning|total(?:l)?ing"
    r"|which (?:is(?! the| an?\b| \S+ times)|means|leaves|gives|makes))\b|=>|→"
)
_VERB = re.compile(
    r"(?:[=≈:]|\b(?:is|are|was|were|be|equals?|gives?|makes?|leaves?|total|to|of|has|have|had|gets?|earns?|pays?|needs?"
    r"|costs?|spends?|saves?|takes?|left with|minus|negative|so))\s*(?:(?:about|only|just|exactly|now)\s+)?[\s*$\\(]*\Z"
)
_DIGIT = re.compile(r"\d")


def concluded(reply: NumberText, sentence: Sentence) -> Found | None:
    """The number that a sentence of prose arrives at; None when it has none."""
    text, low, end = reply.text, reply.low, sentence.end
    start = max(sentence.start, end - _LONGEST_SENTENCE)
    if start > sentence.start:
        start = max(start, text.find(" ", start, end))
    row = _Row(reply, reply.numerals(start, end)[-_MOST_NUMERALS:])
    usable = [n for n in row.numerals if not _ruled_out(low, start, n)]
    if not usable:
        row = _Row(reply, [n for n in find_words(text, start, end) if _word_counts(low, start, n)])
        usable = row.numerals
        if not usable:
            return None
    ends = [match.end() for match in _CONCLUDES.finditer(low, start, end) if match.end() <= usable[-1].start]
    begin = ends[-1] if ends else start
    usable = [n for n in usable if n.start >= begin]
    equals = text.rfind("=", begin, end)
    if equals >= 0:
        sides = row.across(text, equals, usable)
        return row.single(sides[0], "lenient: equation") if sides else Found("cut off after an equals sign")
    free = [n for n in usable if not row.linked(n, "operator")]
    if not free:
        return Found("an expression or a range")
    return row.single(_main(reply, start, free), "lenient: conclusion" if ends else "lenient: last number")


def _main(reply: NumberText, start: int, free: list[Numeral]) -> Numeral:
    """The last numeral that is not said in passing (`for 5 tickets`, `the sum of 7 and 5`, `Boeing 747`)."""
    low = reply.low
    passing = [match.span() for match in _OPERANDS.finditer(low, start, free[-1].end)]
    if condition := _CONDITION.match(low, start):
        passing.append(condition.span())
    central: list[Numeral] = []
    aside_end = -1
    for numeral in free:
        begin = max(start, numeral.start - 40)
        # 5 of `for 3 tickets and 5 drinks` is as much in passing as 3.
        paired = aside_end >= 0 and _AND_BEFORE.fullmatch(low, aside_end, numeral.start)
        in_passing = _ASIDE.search(low, begin, numeral.start) or any(a <= numeral.start < b for a, b in passing)
        if paired or in_passing or _NAMED.search(reply.text, begin, numeral.start):
            aside_end = numeral.end
        elif not _ADJECTIVE.match(low, numeral.end):
            central.append(numeral)
    return (central or free)[-1]


def _ruled_out(low: str, start: int, numeral: Numeral) -> bool:
    """Labels (step 4), degrees of belief (90 % sure), standards (more than 4) and denied values are no candidates."""
    before = low[max(start, numeral.start - 24) : numeral.start]
    words = before.rstrip(" #*").split()
    last = words[-1].strip("(*_#.") if words else ""
    return (
        (last in _LABELS and low[numeral.start].isdigit())
        or last == "than"
        or ("confidence" in before and _BELIEF_BEFORE.search(before) is not None)
        or _BELIEF.match(low, numeral.end) is not None
        or denied(low, start, numeral.start, numeral.end)
    )


def _word_counts(low: str, start: int, numeral: Numeral) -> bool:
    """Number words count where there are no digits at all, or where a verb leads to them; `one` is mostly a pronoun."""
    if low[numeral.start : numeral.end] == "one":
        return not low[start : numeral.start].strip(" *") and not low[numeral.end :].strip(" .*!")
    return not _DIGIT.search(low) or led_to_by_a_verb(low, start, numeral)


def led_to_by_a_verb(low: str, start: int, numeral: Numeral) -> bool:
    """`is 12`, `: 12`, `has 12`: what the sentence says of something, not what it says in passing."""
    return _VERB.search(low, max(start, numeral.start - 40), numeral.start) is not None


def opens(low: str, start: int, numeral: Numeral) -> bool:
    """Does the stretch begin with this numeral?"""
    return _OPENS.match(low, start, numeral.start) is not None
