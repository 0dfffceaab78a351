"""Which expression a stretch of a reply arrives at: in a stated answer, and in a sentence of prose. Never one of two.

Knows nothing of cues and boxes: `expression.py` says which stretch to look at.
"""

import re
from collections.abc import Sequence
from itertools import pairwise

from debate_local.tasks.answers import voice
from debate_local.tasks.answers.expression_text import ExpressionText, Piece, Span
from debate_local.tasks.answers.formula_text import matching
from debate_local.tasks.answers.number import read_number
from debate_local.tasks.answers.reply import Sentence
from debate_local.tasks.answers.statements import Found

# What a sentence arrives at stands at its end.
_MOST_SPANS = 20
_LONGEST_BARE = 200

_RANGE = re.compile(r"\W*(\d+(?:\.\d+)?)(?:[-–~]|\s*(?:\bto\b|–|\\text\{\s*to\s*\}|\\sim)\s*)(\d+(?:\.\d+)?)\W*")
_FILLERS = re.compile(
    r"[\s*_\\(\[{\"'>]*(?:(?:so|therefore|thus|simply|just|about|approximately|exactly|only|equal|to|given|by|as|the|a|an"
    r"|number|value|set|pair|point|interval|expression|function|fraction|ordered|solutions?|are|is|be|it|that|of|by"
    r"|[a-z]\s*=|=|≈|:)[\s*_:,({\"']*)*+"
)
# Of the fillers, those that cannot belong to a formula: no bracket, and no `x =`.
_WORDS_FIRST = re.compile(r"[\s*_\"'>]*(?:(?:[a-z]{2,}|a)[\s*_\"':]+)*")
_NOT_BUT = re.compile(r"[\s*]*not\b[^.]{0,40}\bbut\b[^.]{0,12}")
_BETWEEN = re.compile(r"[\s*]*(?:,|;|,?\s*\b(?:and|or)\b)[\s*]*")
_AND_MORE = re.compile(r"[\s*]*,?[\s*]*\b(and|or)\b[\s*]*(?=[-\d(\[{\\]|[a-z]\b)")
_OR_MORE = re.compile(r"\$?[\s*]*\bor\b[\s*]*(?:\d|[a-z]\b)")
_NAME_ONLY = re.compile(r"\s*\\?[a-zA-Z]+(?:_\{?\w\}?)?(?:\([a-z]\))?\s*[.,;]?\s*")
_THEN_IS = re.compile(r"[\s*]*(?:is|are|equals|=|:)[\s*]*")
_ASSIGNED = re.compile(r"\s*[a-zA-Z]\w{0,2}\s*=")
_RELATION = re.compile(r"=|<|>|\\(?:le|ge|in|approx)(?![a-z])")

_FUNCTIONS = (
    "sqrt|arcsin|arccos|arctan|sin|cos|tan|cot|sec|csc|log|ln|exp|pi|theta|alpha|beta|gamma|lambda|infinity|infty|inf"
)
# What a formula without delimiters is made of; words of two letters and more end it.
_RUN = re.compile(
    rf"(?:\\(?:text(?:bf|it|rm)?|math(?:rm|bf))\{{[^{{}}]*\}}|\\(?!box|text)[a-zA-Z]++|\\[{{}}%$,;!:|]|(?:{_FUNCTIONS})(?![a-zA-Z])"
    r"|[a-zA-Z](?![a-zA-Z'’])|\d|[-+*/^_=<>(){}\[\]|!.,;:%°√πθ∞≤≥≠±×÷·∪∅−²³⁰¹⁴-⁹½¼¾⅓⅔$£€\s])++"
)
_LOOSE_END = re.compile(r"(?:[\s.,;:!$*]|(?<=\s)[aI](?=\s*\Z))+\Z")
_OPEN_END = re.compile(r"(?:[-+*/^_=<>(\[{≤≥×÷]|\\(?:times|cdot|frac|le|ge|pm|sqrt))\s*\Z")
_UNCLOSED = re.compile(r"[\s*]*\$(?!\s?[-\d])")
_SAYS_SOMETHING = re.compile(r"[^\W_]|\\[a-z]|[∞π∅]")
_WORD_AFTER = re.compile(r"\s*[^\W\d_]{2}")
_ONLY_LETTERS = re.compile(r"[\sA-Za-z]*")
_ONE_OR_TWO_WORDS = re.compile(r"[\s*_\"'$]*(?:the\s+)?([a-z]+(?:[ -][a-z]+)?)[\s*_\"'$.)]*")
_NO_ANSWER = re.compile(
    r"\b(?:correct|wrong|right|incorrect|same|below|above|follows|following|given|not|unknown|unclear|this|that|these|those"
    r"|there|it|we|found|obtained|true|indeed|yes|now|reached|therefore|thus|so|simply|what|here|clear|obvious|needed"
    r"|already|my|your|still|only|equal|between|unique|undetermined|an?|one|none)\b"
)

_CLAUSE = re.compile(r"\b(?:because|since|where|when|whenever|if|provided|for (?:all|any|every))\b")
_LEADS_TO = re.compile(
    r"(?:[=≈:]|\b(?:is|are|was|be|equals?|equal to|gives?|get|gets|have|has|obtain|find|yields?|becomes?|that|to|of|so"
    r"|thus|therefore|hence|conclude|then|answer|leaving|giving|yielding|making|means|implies|being|i\.e\.))[\s*,]*"
    r"(?:(?:about|approximately|exactly|only|just|either|simply|the|value|number|point|interval)[\s*]+)*\Z"
)
_LAST_LINK = re.compile(r".*(?:=|:(?=\s)|\b(?:is|are|equals?|gives?|get|be)\b)(?=.*[^\W_])", re.DOTALL)
_NUMERAL_ONLY = re.compile(r"[-\d.,\s%$]*")
# x = 2 or x = -2; the pair (2, 3) at the end.
_ASSIGNMENTS = re.compile(r"(?<![a-zA-Z])[a-zA-Z]\s*=(?:[^=]{1,40}?(?:,|\bor\b|\band\b)\s*[a-zA-Z]\s*=)+")
_LAST_TUPLE = re.compile(r"[(\[][^()\[\]]*,[^()\[\]]*[)\]](?=[\s*.]*\Z)")
_DANGLING = re.compile(
    r"(?:\b(?:for|and|of|the|to|a|an|with|that|is|by|in|then|so|but|or|when|if|from|at|on|as|which)|[-+×/=,(:])\s*\Z"
)
_OPENED = re.compile(r"(?<!\\)\$(?!\s?\d)|\\[(\[]")


def is_range(text: str) -> bool:
    """10-12 and `10 to 12` are no single answer; p - q is an expression."""
    found = _RANGE.fullmatch(text)
    return found is not None and float(found[1]) < float(found[2])


def together(pieces: Sequence[Piece]) -> Piece:
    """Several expressions as one list."""
    if len(pieces) == 1:
        return pieces[0]
    return Piece(pieces[0].start, pieces[-1].end, ", ".join(piece.text.strip(" $") for piece in pieces))


def stretch(reply: ExpressionText, start: int, end: int, rule: str) -> Found[Piece] | None:
    """The expression that text[start:end] begins with, small words apart; in prose a word or two will do."""
    low = reply.low
    spans = [span for span in reply.spans(start, end) if not voice.denied(low, start, span.start, span.end)]
    until = spans[0].start if spans else end
    if spans and (_FILLERS.fullmatch(low, start, until) or _NOT_BUT.fullmatch(low, start, until)):
        named = len(spans) > 1 and _NAME_ONLY.fullmatch(reply.inner(spans[0]))
        if named and _THEN_IS.fullmatch(low, spans[0].end, spans[1].start):
            spans = spans[1:]
        return _joined(reply, spans, rule)
    if voice.refused(low[start:until]):
        return Found("stated, but no answer")
    return _plain(reply, start, until, rule) or _words(reply, start, end, rule)


def whole(reply: ExpressionText) -> Found[Piece] | None:
    """The expression of a reply that is nothing else."""
    text = reply.written.strip()
    if len(text) > _LONGEST_BARE or "\n" in text:
        return None
    start = len(reply.written) - len(reply.written.lstrip())
    end = start + len(text)
    spans = reply.spans(start, end)
    if spans:
        around = reply.text[start : spans[0].start] + reply.text[spans[0].end : end]
        return _joined(reply, spans, "bare") if not around.strip(" *.") else None
    piece = _trimmed(reply, start, end, end) if _RUN.fullmatch(reply.written, start, end) else None
    if not isinstance(piece, Piece) or re.search(r"[.;:!]\s", piece.text) or not _balanced(piece.text):
        return None
    return _listed([piece], "bare")


def concluded(reply: ExpressionText, sentence: Sentence) -> Found[Piece] | None:
    """The expression that a sentence of prose arrives at; None when it has none."""
    low, spans = reply.low, reply.spans(sentence.start, sentence.end)[-_MOST_SPANS:]
    spans = [s for s in spans if not voice.denied(low, sentence.start, s.start, s.end)]
    led = [span for place, span in enumerate(spans) if _led_to(reply, sentence, spans[: place + 1])]
    if led:
        return _last_of(reply, led, sentence)
    if spans:
        valued = [span for span in spans if not _NAME_ONLY.fullmatch(reply.inner(span))]
        return Found("lenient: formula", reply.piece(valued[0])) if len(valued) == 1 else None
    if (found := _plain_conclusion(reply, sentence)) is not None:
        return found
    answer = read_number(reply.written[sentence.start : sentence.end] + sentence.mark)
    if answer.span is None:
        return None if answer.rule in ("no number", "empty reply") else Found(answer.rule)
    start, end = (sentence.start + place for place in answer.span)
    return Found("lenient: number", Piece(start, end, answer.value or ""))


def complete(reply: ExpressionText, sentence: Sentence, found: Found[Piece] | None) -> bool:
    """Does a last sentence without an end mark look finished? A reply that was cut off gives no answer."""
    text = reply.low[sentence.start : sentence.end].rstrip(" *")
    spans = reply.spans(sentence.start, sentence.end)
    rest = reply.written[spans[-1].end if spans else sentence.start : sentence.end]
    if _DANGLING.search(text[-20:]) or _OPENED.search(rest):
        return False
    if text.endswith(("$", "]", ")", "}", "`")):
        return True
    if found is None or found.thing is None:
        return found is not None
    return len(reply.low[found.thing.end : sentence.end].split()) <= 6


def _joined(reply: ExpressionText, spans: Sequence[Span], rule: str) -> Found[Piece]:
    """The first formula and those that belong to one list with it."""
    pieces = [reply.piece(spans[0])]
    for before, span in pairwise(spans[:_MOST_SPANS]):
        link = _BETWEEN.fullmatch(reply.low, before.end, span.start)
        if link is None:
            break
        piece = reply.piece(span)
        if "or" in link[0] and not (_ASSIGNED.match(pieces[-1].text) and _ASSIGNED.match(piece.text)):
            return Found("several candidates")
        pieces.append(piece)
    piece = together(pieces)
    if _OPEN_END.search(piece.text):
        return Found("cut off in an expression")
    if is_range(piece.text):
        return Found("an expression or a range")
    if len(pieces) == 1 and _OR_MORE.match(reply.low, piece.end):
        return Found("several candidates")
    return Found(rule, piece)


def _plain(reply: ExpressionText, start: int, end: int, rule: str) -> Found[Piece] | None:
    """The expression without delimiters that text[start:end] begins with, small words apart."""
    lead = _FILLERS.match(reply.low, start, end)
    words = _WORDS_FIRST.match(reply.low, start, lead.end() if lead else start)
    begin = words.end() if words else start
    pieces: list[Piece] = []
    while len(pieces) < _MOST_SPANS:
        run = _RUN.match(reply.written, begin, end)
        piece = _trimmed(reply, run.start(), run.end(), end) if run else None
        if isinstance(piece, str) and not pieces:
            return Found(piece)
        if not isinstance(piece, Piece):
            break
        pieces.append(piece)
        link = _AND_MORE.match(reply.low, piece.end, end)
        if link is None:
            break
        if link[1] == "or" and not _ASSIGNED.match(piece.text):
            return Found("several candidates")
        begin = link.end()
    return _listed(pieces, rule)


def _listed(pieces: Sequence[Piece], rule: str) -> Found[Piece] | None:
    if not pieces:
        return None
    piece = together(pieces)
    return Found("an expression or a range") if is_range(piece.text) else Found(rule, piece)


def _trimmed(reply: ExpressionText, start: int, end: int, limit: int) -> Piece | str | None:
    """A run without what belongs to the prose around it; why it is no expression; or None."""
    text = _LOOSE_END.sub("", reply.written[start:end])
    word = _WORD_AFTER.match(reply.written, end, limit)
    if word and text.endswith(("(", "[", "-")):
        text = _LOOSE_END.sub("", text.rstrip("([-"))
    if text.endswith(")") and "(" not in text:
        text = text.rstrip(")")
    if not _SAYS_SOMETHING.search(text) or (word and _ONLY_LETTERS.fullmatch(text)):
        return None
    if _OPEN_END.search(text) or text.count("{") > text.count("}") or _UNCLOSED.match(text):
        return "cut off in an expression"
    said = text.lstrip(" \t\n*")
    return Piece(start + len(text) - len(said), start + len(text), said)


def _words(reply: ExpressionText, start: int, end: int, rule: str) -> Found[Piece] | None:
    """An answer in one or two words, with nothing beside it."""
    found = _ONE_OR_TWO_WORDS.fullmatch(reply.low, start, end)
    if found is None or _NO_ANSWER.search(found[1]):
        return None
    return Found(rule, Piece(*found.span(1), reply.written[slice(*found.span(1))]))


def _plain_conclusion(reply: ExpressionText, sentence: Sentence) -> Found[Piece] | None:
    """What a sentence without delimiters arrives at, other than a mere number."""
    start, end = sentence.start, sentence.end
    if assignments := _ASSIGNMENTS.search(reply.written, start, end):
        return _plain(reply, assignments.start(), end, "lenient: formula")
    link = _LAST_LINK.match(reply.text, start, end)
    found = _plain(reply, link.end(), end, "lenient: formula") if link else None
    if found and found.thing and (not _NUMERAL_ONLY.fullmatch(found.thing.text) or ", " in found.thing.text):
        return found
    if pair := _LAST_TUPLE.search(reply.written[start:end]):
        return Found("lenient: formula", Piece(start + pair.start(), start + pair.end(), pair[0]))
    return None


def _last_of(reply: ExpressionText, led: Sequence[Span], sentence: Sentence) -> Found[Piece]:
    """The last of the formulas that a sentence leads to, with those that it is listed with (x = 1 or x = 2)."""
    clause = _CLAUSE.search(reply.low, led[0].end, sentence.end)
    if clause:
        # What is said in passing ends at its comma.
        comma = reply.low.find(", ", clause.end(), sentence.end)
        main = [span for span in led if span.start < clause.start() or -1 < comma <= span.start]
        led = main or led
    first = len(led) - 1
    while first and _BETWEEN.fullmatch(reply.low, led[first - 1].end, led[first].start):
        names = [_ASSIGNED.match(reply.inner(span)) for span in led[first - 1 : first + 1]]
        if (names[0] and names[0][0].strip()) != (names[1] and names[1][0].strip()):
            break
        first -= 1
    return _joined(reply, led[first:], "lenient: formula")


def _led_to(reply: ExpressionText, sentence: Sentence, spans: Sequence[Span]) -> bool:
    """Does the sentence lead to the last of these formulas: by a verb, as a relation, in a list, or as all it says?"""
    low, span = reply.low, spans[-1]
    if _LEADS_TO.search(low, max(sentence.start, span.start - 60), span.start):
        return not _NAME_ONLY.fullmatch(reply.inner(span))
    if _RELATION.search(reply.inner(span)):
        return True
    if len(spans) > 1 and _BETWEEN.fullmatch(low, spans[-2].end, span.start):
        return _led_to(reply, sentence, spans[:-1])
    return not low[sentence.start : span.start].strip(" *") and not low[span.end : sentence.end].strip(" *)")


def _balanced(text: str) -> bool:
    return all(matching(text, place) is not None for place, char in enumerate(text) if char in "([{")
