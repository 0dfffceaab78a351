"""Which number a sentence of prose arrives at, where nothing is stated. Never one of several.

What is said in passing does not count: labels (step 4), names, reasons, remarks in brackets, shares of something else.
"""

import re

from debate_local.tasks.answers.number_choice import LEADS_TO, NO_NUMBER, NumberText, Row
from debate_local.tasks.answers.numerals import Numeral, find_words
from debate_local.tasks.answers.reply import Sentence
from debate_local.tasks.answers.statements import Found
from debate_local.tasks.answers.voice import denied

# A longer sentence is a loop; what it arrives at stands at its end.
_LONGEST_SENTENCE = 240
_MOST_NUMERALS = 20

_LABELS = {"agent", "case", "channel", "chapter", "class", "deck", "equation", "example", "flight"}
_LABELS |= {"grade", "highway", "level", "line", "method", "no", "number", "option", "page", "part", "peer", "problem"}
_LABELS |= {"question", "reading", "response", "room", "round", "solution", "step", "studio", "year"}
_LABELS |= {f"{label}s" for label in _LABELS}
_BELIEF_BEFORE = re.compile(r"\bconfidence(?: level)?\W*(?:(?:of|is)\W+)?\Z")
_BELIEF = re.compile(r"\s*(?:sure|confident|certain|confidence|certainty)\b")
_PEERS = re.compile(r"\s+(?:other |of the )?(?:agents|peers|solutions|responses|debaters|experts|votes for)\b")
_ROOT = re.compile(r"(?:\\sqrt\s?\{?|√\s?\(?)\Z")
_PASSING = re.compile(
    r"\b(?:for|among|between|per|with|by|from|after|at|in|on|than|every|each|over|within|during|until|since|before"
    r"|out of|of (?:the|his|her|their|its|my))\s+(?:(?:the|a|an|his|her|their|its|my|all|each|every|these|those|other"
    r"|about|only|just|\w+'s)\s+){0,2}[*\\]*\Z|\b(?:after|before|by|when|while|from)\s+\w+ing\s+(?:the\s+)?[*\\]*\Z"
    r"|,\s+an?\s+\Z|\d\s+[a-z]+\s+to\s+[a-z]+\s+(?:the\s+)?[*\\]*\Z"
)
# A preposition, but what the sentence says: leaves him at -7, I go with 12, is left with 5.
_ARRIVES = re.compile(
    r"\b(?:go|going|went|stick|sticking|stay|settle|end(?:s|ed)? up|leaves?(?: \w+){1,3}|left|stands?|stays?"
    r"|is (?:now )?down|arrives?|agree) (?:with|on|at|by)\s+[*\\$]*\Z"
)
_CURRENCIES = ("USD ", "EUR ", "GBP ", "INR ", "CAD ", "AUD ", "RM ", "US ")
_NAMED = re.compile(r"(?:[a-z,] [A-Z][a-z]+|(?:^|[ (])[a-z]+[A-Z][A-Za-z]*|[a-z,] [A-Z]{2,}) \Z")
_AND_BEFORE = re.compile(r"[^.,;]{0,40}\b(?:and|or)\s+")
_CONDITION = re.compile(r"[\s*]*(?:so,?\s+)?(?:if|when|since|because|after|with|for|in|at|given)\b[^,]{0,120},\s")
_ADJECTIVE = re.compile(r"(?:st|nd|rd|th)\b|-[a-z]|\s+times (?:as|more|the)\b|\s+of\s+(?:the\b|\d)")
_SHARE = re.compile(r"\s+of\b")
_OPERANDS = re.compile(
    r"\b(?:sum|product|difference|quotient|average|total) (?:of|between)\b[^.]{1,40}? and [\s$]*[-\d.,]+"
)
_OPENS = re.compile(r"[\s*_$\\(\[>\-]*+(?:so|thus|therefore|hence|and|yes)?+[\s,:*$]*+\Z")
_CONCLUDES = re.compile(
    r"\b(?:so|therefore|thus|hence|leaving|making|giving|meaning|total(?:l)?ing"
    r"|which (?:is(?! the| an?\b| \S+ times)|means|leaves|gives|makes))\b|=>|→"
)
# What only explains, compares or supposes after the point is made.
_EXPLAINS = re.compile(
    r",?\s\((?=[^()]*\b[a-z]{2,}\b[^()]*\b[a-z]{2,}\b)|,\s(?:which(?! (?:is|means|leaves|gives|makes|produces"
    r"|yields|equals|comes|adds|totals|brings)\b)|where|while|whereas|though|although|compared|exactly|in case"
    r"|with which|of which|(?:and |but )?(?:agent|solver|peer|expert) ?#?\w+ (?:got|gets|said|says|has|had"
    r"|claims|wrote|thinks)|so (?:he|she|they|it|you|we|that \w+) (?:would|could|may|might|can))\b"
    r"|,?\s(?:since|because|i\.e\.|that is,)\s"
)
_VERB = re.compile(
    r"(?:[=≈:]|\s[–—]|\b(?:is|are|was|were|be|equals?|gives?|makes?|leaves?|total|to|of|has|have|had|gets?|earns?"
    r"|pays?|needs?|costs?|spends?|saves?|takes?|left with|minus|negative|so"
    r"|(?:has|have|needs?) to \w+))\s*(?:(?:about|only|just|exactly"
    r"|now)\s+)?[\s*$\\(]*\Z"
)
_WORD_VERB = re.compile(
    r"(?:[=≈:]|\b(?:is|are|be|equals?|gives?|makes?|leaves?|gets?|total|left with|paid|pays|minus))\s+[*]*\Z"
)
_DIGIT = re.compile(r"\d")


# Nothing but numbers, or what several letters stand for.
_SEVERAL = re.compile(
    r"[\s*$]*(?:[-−]?[\d.]+[\s*$]*(?:[,;]|\band\b)[\s*$]*)+[-−]?[\d.]+[\s*$]*|[\s*$]*(?:[a-z]\s*=\s*[-−]?[\d./]+[\s*$,;]*(?:and\s*)?){2,}"
)


def concluded(reply: NumberText, sentence: Sentence) -> Found[Numeral] | None:
    """The number that a sentence of prose arrives at; None when it has none."""
    text, low, end = reply.text, reply.low, sentence.end
    start = max(sentence.start, end - _LONGEST_SENTENCE)
    if start > sentence.start:
        start = max(start, text.find(" ", start, end))
    row = Row(reply, reply.numerals(start, end)[-_MOST_NUMERALS:])
    usable = [n for n in row.numerals if not _ruled_out(low, start, n)]
    if not row.numerals and NO_NUMBER.search(low, start, end):
        return Found("not a number")
    if _SEVERAL.fullmatch(low, start, end) and len({n.value for n in row.numerals}) > 1:
        return Found("several candidates")
    ends = [match.end() for match in _CONCLUDES.finditer(low, start, end)]
    words = [n for n in find_words(text, start, end) if _word_counts(low, start, end, n, ends)]
    if words and (not usable or usable[-1].end <= _last(ends, words[-1].start, start)):
        row, usable = Row(reply, words), words
    end = _without_explanation(low, start, end, usable)
    usable = [n for n in usable if n.end <= end]
    if not usable:
        return None
    begin = _last(ends, usable[-1].start, start)
    usable = [n for n in usable if n.start >= begin]
    equals = text.rfind("=", begin, end)
    if equals >= 0:
        return _equated(reply, row, usable, equals)
    free = [n for n in usable if not row.linked(n, "operator")]
    if not free:
        return Found("an expression or a range")
    return row.single(_main(reply, start, free), "lenient: conclusion" if begin > start else "lenient: last number")


def _last(ends: list[int], place: int, start: int) -> int:
    """The end of the last conclusive word before `place`, else `start`."""
    return max((end for end in ends if end <= place), default=start)


def _equated(reply: NumberText, row: Row, usable: list[Numeral], equals: int) -> Found[Numeral]:
    """The side of an equation that is worked out, or what a verb leads to behind it (= 52, and minus 9 makes 43)."""
    sides = row.across(reply.text, equals, usable)
    if not sides:
        return Found("cut off after an equals sign")
    later = [n for n in sides[1:] if LEADS_TO.search(reply.low, max(equals, n.start - 20), n.start)]
    return row.single(later[-1] if later else sides[0], "lenient: equation")


def _without_explanation(low: str, start: int, end: int, numerals: list[Numeral]) -> int:
    """Where an explanation begins, when a number comes before it and nothing is concluded behind it; else the end."""
    for explains in _EXPLAINS.finditer(low, start, end):
        if any(n.end <= explains.start() and not _is_share(low, n) for n in numerals) and not _goes_on(
            low, explains.end(), end, numerals
        ):
            return explains.start()
    return end


def _goes_on(low: str, start: int, end: int, numerals: list[Numeral]) -> bool:
    """Is something concluded in low[start:end], or does the main clause follow a reason (`since ..., she orders 4`)?"""
    comma = low.find(",", start, end)
    after = [n for n in numerals if comma >= 0 and n.start > comma]
    return _CONCLUDES.search(low, start, end) is not None or any(led_to_by_a_verb(low, comma, n) for n in after)


def _main(reply: NumberText, start: int, free: list[Numeral]) -> Numeral:
    """The last numeral that is not said in passing (`for 5 tickets`, `the sum of 7 and 5`, `Boeing 747`)."""
    low = reply.low
    passing = [match.span() for match in _OPERANDS.finditer(low, start, free[-1].end)]
    if condition := _CONDITION.match(low, start):
        passing.append(condition.span())
    central: list[Numeral] = []
    shares: list[Numeral] = []
    aside_end = -1
    for numeral in free:
        begin = max(start, numeral.start - 40)
        # 5 of `for 3 tickets and 5 drinks` is as much in passing as 3.
        paired = aside_end >= 0 and _AND_BEFORE.fullmatch(low, aside_end, numeral.start)
        in_passing = _PASSING.search(low, begin, numeral.start) and not _ARRIVES.search(low, begin, numeral.start)
        within = any(a <= numeral.start < b for a, b in passing)
        if paired or in_passing or within or _is_named(reply.text, begin, numeral.start):
            aside_end = numeral.end
        elif _is_share(low, numeral):
            # 12 of `12 of the 30 pupils`, when nothing else is said.
            shares.append(numeral)
        else:
            central.append(numeral)
    return (central or shares or free)[-1]


def _is_share(low: str, numeral: Numeral) -> bool:
    """`12 of the pupils`, `20 % of it`, `3 times as many`, `2nd`: the measure of something else."""
    return _ADJECTIVE.match(low, numeral.end) is not None or (
        numeral.form == "percent" and _SHARE.match(low, numeral.end) is not None
    )


def _is_named(text: str, begin: int, place: int) -> bool:
    return _NAMED.search(text, begin, place) is not None and not text.endswith(_CURRENCIES, begin, place)


def _ruled_out(low: str, start: int, numeral: Numeral) -> bool:
    """Labels (step 4), degrees of belief (90 % sure), standards (more than 4) and denied values are no candidates."""
    before = low[max(start, numeral.start - 24) : numeral.start]
    words = before.rstrip(" #*").split()
    last = words[-1].strip("(*_#.") if words else ""
    return (
        (last in _LABELS and low[numeral.start].isdigit())
        or last == "than"
        or numeral.form == "name"
        or ("confidence" in before and _BELIEF_BEFORE.search(before) is not None)
        or _BELIEF.match(low, numeral.end) is not None
        or _PEERS.match(low, numeral.end) is not None
        or _ROOT.search(low, max(start, numeral.start - 8), numeral.start) is not None
        or denied(low, start, numeral.start, numeral.end)
    )


def _word_counts(low: str, start: int, end: int, numeral: Numeral, ends: list[int]) -> bool:
    """Number words count where there are no digits at all, where a verb leads to them or the sentence concludes.

    `one` is mostly a pronoun.
    """
    if low[numeral.start : numeral.end] == "one":
        return not low[start : numeral.start].strip(" *") and not low[numeral.end :].strip(" .*!")
    if not _DIGIT.search(low):
        return True
    before = max(start, numeral.start - 40)
    return _WORD_VERB.search(low, before, numeral.start) is not None


def led_to_by_a_verb(low: str, start: int, numeral: Numeral) -> bool:
    """`is 12`, `: 12`, `has 12`: what the sentence says of something, not what it says in passing."""
    return _VERB.search(low, max(start, numeral.start - 40), numeral.start) is not None


def opens(low: str, start: int, numeral: Numeral) -> bool:
    """Does the stretch begin with this numeral?"""
    return _OPENS.match(low, start, numeral.start) is not None
