"""Read how sure a reply says it is, from 0 to 1. Knows nothing of the answer itself, and never guesses.

0.85, 85%, 85 (of 100), 8/10 and 8 out of 10 are read. Words (high), values out of range (1.5, -0.3, 150%), ranges and
a bare 2 to 10, which may be of ten or of a hundred, are no confidence. 0 is one, and 1 is full confidence. FORMAT asks
for what the rule `confidence` reads.

The rules in their order: field (JSON), confidence (`Confidence: 0.85`, the last one counts), sure (`I am 85% sure`),
bare (nothing but the number).
"""

import re
from fractions import Fraction

from debate_local.core.fields import read_fields
from debate_local.core.transcript import Answer
from debate_local.tasks.answers import voice
from debate_local.tasks.answers.numerals import canonical, find_words
from debate_local.tasks.answers.reply import lower, nothing_in, own_part

FORMAT = "On a last line, say how confident you are, from 0 to 1: `Confidence: ` and a number."
FIELDS = ("confidence_level", "confidence", "confidence_score", "certainty", "probability")


def read_confidence(text: str) -> Answer:
    """The confidence that a reply states of its own answer. value and key are a canonical decimal from 0 to 1."""
    own = own_part(text)
    if not own:
        return Answer.none(nothing_in(text))
    low = lower(own)
    return _in_a_field(text, own, low) or _stated(low) or _bare(own) or Answer.none("no confidence is stated")


def _in_a_field(text: str, own: str, low: str) -> Answer | None:
    if "{" not in own or not _CUE.search(low):
        return None
    given = read_fields(text, FIELDS)
    value = next((given.values[name] for name in FIELDS if name in given.values), None)
    # Mere lines are read below, with all that may stand in them.
    if given.rule == "lines" or value is None or isinstance(value, bool | dict | list):
        return None
    written = str(value)
    place = own.rfind(written) if written else -1
    span = (place, place + len(written)) if place >= 0 else (0, len(own))
    return _answer(_AMOUNT.match(lower(written)), "field", span) or Answer.none("the field holds no number")


_NUMBER = r"(?:[-−+]|minus|negative)?\s?(?:\d+(?:[.,]\d+)?|[.,]\d+)(?:e[-+]?\d{1,3})?"
_BEFORE = r"(?:about|around|approximately|roughly|at least|only|nearly|over|\\?boxed\{|[~≈*_`$\"'(\[=:\s\\{])*+"
_AMOUNT = re.compile(
    rf"{_BEFORE}(?:(?P<number>{_NUMBER})(?![\d:])"
    rf"(?:\s*(?P<percent>\\?%|per\s?cent)|\s*(?:/|out of|of|von|sur)\s*(?P<of>\d+(?:[.,]\d+)?)(?!\s*%))?"
    rf"(?P<range>\s*(?:-|–|~|to|bis|or)\s*{_NUMBER})?"
    r"|[dt]?frac\{(?P<top>\d{1,9})\}\{(?P<bottom>\d{1,9})\})",
)
_WORDS = (
    r"confidence|certainty|sureness|probability|konfidenz|sicherheit|confiance|confianza|confiança|certeza|certitude|fiducia"
    r"|certezza|zekerheid|vertrouwen|pewność|säkerhet"
)
# Plain words first of all, which makes the search fast; what a word is part of is looked at later.
_CUE = re.compile(rf"{_WORDS}|置信度|信心|自信度|確信度|확신|уверенность")
_SURE = re.compile(r"sure|confident|certain|sicher")
_LINK = re.compile(
    r"[\s*_`\"']{0,20}(?:(?:level|score|rating|value|estimate|grad|niveau|nivel)[\s*_`\"']{0,20})?"
    r"(?:[(\[][^()\[\]\n]{0,30}[)\]][\s*_`\"']{0,20})?"
    r"(?:(?:in|that|for|on|about)\s[^.:=\n]{0,60}(?=\s(?:is|of|=)\s|:))?"
    r"[\s*_`\"']{0,20}(?:is|was|of|at|ist|beträgt|est|es|é|equals|would be|[:=：是为為-]|(?=\d?[.,]\d))[\s*_`\"']{0,20}"
    r"(?:is|at|set at|set to)?"
)
# Further off, only what cannot be a count: High (0.9), I'd put my confidence at 6/10.
_FURTHER = re.compile(
    r"(?:(?!\b(?:minus|negative|between|from)\b)[^.!?\n]){0,40}?(?<![\d.,/-])"
    r"(?=\d?[.,]\d+(?![\d/])|\d{1,3}(?:[.,]\d+)?\s?(?:%|per\s?cent|/\s?10|out of 10))"
)
_SCALE = re.compile(r"\b(?:scale|skala|échelle|escala)\b[^.\n]{0,30}?(\d+)\s*(?:to|-|–|bis|à|a)\s*(\d+)")
_SHARE = re.compile(
    r"(?<![\d.,])(?P<low>\d[\d.,]{0,6}\s?%?\s*(?:-|–|to|or)\s*)?"
    rf"(?P<amount>{_NUMBER}\s*(?:\\?%|per\s?cent)[*_]*)[ \t]+\Z"
)
_SHARE_IN_WORDS = re.compile(r"([a-z -]{3,40})\sper\s?cent\s+\Z")
_MOST_CUES = 20
_NO_NUMBER = "stated, but not as a number"


def _stated(low: str) -> Answer | None:
    """The last confidence of one's own that is stated: `Confidence: 0.85`, `85% sure`."""
    found = [(cue, _after_cue) for cue in [*_CUE.finditer(low)][-_MOST_CUES:]]
    found += [(cue, _before_word) for cue in [*_SURE.finditer(low)][-_MOST_CUES:]]
    why = None
    for cue, read in sorted(found, key=lambda one: one[0].start(), reverse=True):
        line = low[max(low.rfind("\n", 0, cue.start()) + 1, cue.start() - 300) : cue.start()]
        if low[cue.end() : cue.end() + 1].isalpha() or voice.of_a_peer(low, cue.start()) or voice.about_peers(line):
            continue
        answer = _before_word(low, cue) or (_after_cue(low, cue) if read is _after_cue else None)
        if answer is not None and answer.rule != _NO_NUMBER:
            return answer
        why = why or answer
    return why


def _before_word(low: str, cue: re.Match[str]) -> Answer | None:
    """`85% sure`, `with 85% confidence`, `eighty percent certain`."""
    start = max(0, cue.start() - 50)
    if share := _SHARE.search(low, start, cue.start()):
        if share["low"]:
            return Answer.none("a range")
        return _answer(_AMOUNT.match(low, share.start("amount")), "sure", share.span("amount"))
    words = _SHARE_IN_WORDS.search(low, start, cue.start())
    numbers = find_words(low, *words.span(1)) if words else []
    if not numbers or numbers[-1].value is None:
        return None
    return _valued(numbers[-1].value / 100, "sure", (numbers[-1].start, numbers[-1].end))


def _after_cue(low: str, cue: re.Match[str]) -> Answer | None:
    """What a label such as `Confidence:` is followed by; None when it labels nothing here."""
    place = cue.end()
    link = _LINK.match(low, place)
    amount = _AMOUNT.match(low, link.end()) if link else None
    if amount is None and (further := _FURTHER.match(low, place)):
        amount = _AMOUNT.match(low, further.end())
    if amount is None:
        return Answer.none(_NO_NUMBER) if link else None
    scale = next(iter(_SCALE.findall(low[max(0, place - 80) : place])), None)
    return _answer(amount, "confidence", _place(amount), Fraction(scale[1]) if scale else None)


def _bare(own: str) -> Answer | None:
    low = lower(own)
    start = len(own) - len(own.lstrip())
    amount = _AMOUNT.match(low, start)
    if amount is None or low[amount.end() :].strip(" .*_`$\"')]\n"):
        return None
    return _answer(amount, "bare", _place(amount))


def _place(amount: re.Match[str]) -> tuple[int, int]:
    return amount.span("number") if amount["number"] else (amount.start("top"), amount.end("bottom"))


def _answer(
    amount: re.Match[str] | None, rule: str, span: tuple[int, int], scale: Fraction | None = None
) -> Answer | None:
    """The amount as a share of one; None without an amount."""
    if amount is None:
        return None
    if amount["range"]:
        return Answer.none("a range")
    if amount["top"]:
        top, bottom = int(amount["top"]), int(amount["bottom"])
        return (
            _valued(Fraction(top, bottom), f"{rule} (fraction)", span) if bottom else Answer.none("a division by zero")
        )
    written = re.sub(r"minus|negative|−", "-", re.sub(r"\s", "", amount["number"])).replace(",", ".")
    if len(written) > 30:
        return Answer.none("no number of this world")
    value = Fraction(written)
    if amount["percent"]:
        return _valued(value / 100, f"{rule} (percent)", span)
    if amount["of"]:
        of = Fraction(amount["of"].replace(",", "."))
        return _valued(value / of, f"{rule} (fraction)", span) if of else Answer.none("a division by zero")
    if scale and value > 1:
        return _valued(value / scale, f"{rule} (scale)", span)
    if value > 10:
        return _valued(value / 100, f"{rule} (of 100)", span)
    return _valued(value, rule, span)


def _valued(value: Fraction, rule: str, span: tuple[int, int]) -> Answer:
    if not 0 <= value <= 1:
        return Answer.none("out of range")
    text = canonical(value)
    return Answer(text, text, rule, span)
