"""A reply in which formulas stand: where they stand, and the prose around them. Knows delimiters, not what answers.

The formulas' contents are covered in the text that prose is read from: their full stops, semicolons and signs end no
sentence and are no words.
"""

import re
from bisect import bisect_left
from typing import NamedTuple

from debate_local.tasks.answers.formula_text import matching
from debate_local.tasks.answers.reply import OwnText

_LONGEST_BOX = 600
# Formulas further from the end than this are read as plain text: answers stand at the end.
_WINDOW = 6_000

# Contents without the next opening, so that one that never closes costs no more than a look at what follows it.
_MATH = re.compile(
    r"\$\$([^$]{1,2000})\$\$|\$(?<!\\\$)((?:\\.|[^$\\\n]){1,1000})\$|\\\[((?:[^\\]|\\(?![\[\]])){1,2000})\\\]"
    r"|\\\(((?:[^\\]|\\(?![()])){1,1000})\\\)"
    r"|\\begin\{(?:align|gather|equation|eqnarray|multline)\*?\}((?:[^\\]|\\(?!end\{[agem]|begin\{[agem])){1,4000})"
    r"\\end\{(?:align|gather|equation|eqnarray|multline)\*?\}"
)
_DRAWING = re.compile(r"\[asy\](?:[^\[]|\[(?!asy\]|/asy\])){0,9000}\[/asy\]")
_AMOUNT = re.compile(r"\s?\d[\d,.]*\s+[a-z]{2,}")
_TABLE = re.compile(r"\\begin\{(?:\w?matrix|cases|array)")
_PERCENT_AFTER = re.compile(r"\s*(?:\\?%|per\s?cent\b)")


class Piece(NamedTuple):
    """Where in the reply an expression stands, and the expression; a list of several is put together."""

    start: int
    end: int
    text: str


class Span(NamedTuple):
    """A formula between delimiters, at [start, end); its content at [inner, close)."""

    start: int
    end: int
    inner: int
    close: int


class ExpressionText(OwnText):
    """A reply's own part. written: as it is, drawings blanked; text and low: with the formulas covered."""

    def __init__(self, own: str) -> None:
        self.written = _DRAWING.sub(lambda drawing: " " * len(drawing[0]), own)
        self._spans = _math_spans(self.written)
        super().__init__(_covered(self.written, self._spans))

    def spans(self, start: int, end: int) -> list[Span]:
        """The formulas that begin in [start, end)."""
        first = bisect_left(self._spans, start, key=lambda span: span.start)
        last = bisect_left(self._spans, end, key=lambda span: span.start)
        return self._spans[first:last]

    def inner(self, span: Span) -> str:
        """What stands between the delimiters."""
        return self.written[span.inner : span.close]

    def piece(self, span: Span) -> Piece:
        """A formula as an answer, with a percent sign behind it; of workings in rows, the last one."""
        text = self.inner(span)
        if "\\\\" in text and not _TABLE.search(text):
            rows = [row for row in text.split("\\\\") if row.strip()]
            text = rows[-1].replace("&", " ").strip().lstrip("= ") if rows else ""
        percent = _PERCENT_AFTER.match(self.written, span.end)
        return Piece(span.inner, span.close, f"{text} %" if percent else text)

    def in_a_box(self, place: int) -> bool:
        """Is this within a box? The whole of a box is one statement."""
        box = self.written.rfind("\\boxed{", max(0, place - _LONGEST_BOX), place)
        near = self.written[box : place + _LONGEST_BOX] if box >= 0 else ""
        close = matching(near, len("\\boxed")) if near else None
        return close is not None and box + close > place


def _math_spans(text: str) -> list[Span]:
    """The formulas between delimiters, without boxes. Amounts of money are none ($5 and $6)."""
    spans, place = [], max(0, len(text) - _WINDOW)
    while found := _MATH.search(text, place):
        inner, close = found.span(found.lastindex or 0)
        place = found.end()
        if _AMOUNT.match(text, inner, close):
            place = found.start() + 1
        elif "\\box" not in text[inner:close]:
            spans.append(Span(found.start(), found.end(), inner, close))
    return spans


def _covered(text: str, spans: list[Span]) -> str:
    pieces, end = [], 0
    for span in spans:
        # A sentence may end within a formula: `we get $x = 5.$ Hence`.
        content = text[span.inner : span.close].rstrip()
        mark = content[-1:] if content[-1:] in (".", "?") else ""
        cover = "¤" * (len(content) - len(mark)) + mark + " " * (span.close - span.inner - len(content))
        pieces += [text[end : span.inner], cover, " " * (span.end - span.close) if mark else ""]
        end = span.end if mark else span.close
    return "".join([*pieces, text[end:]])
