"""What a written formula says: its canonical form, from numbers up to tuples, sets, intervals, matrices and relations.

The structure is read here; an expression within it that is no plain number is put to `algebra`, a function that the
caller gives. Knows nothing of replies and of processes. Nothing is rounded: 0.6667 is no 2/3.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from debate_local.tasks.answers.formula_text import cleaned, matching, split_outside
from debate_local.tasks.answers.numerals import canonical, exact_number, find_words

Algebra = Callable[[str], str | None]

# Longer or deeper is no final answer; it is compared as text.
_LONGEST = 600
_DEEPEST = 12


@dataclass(frozen=True, slots=True)
class Formula:
    """A formula as understood.

    text: one spelling, for people. key: equal keys mean the same. decided: different keys of decided formulas mean
    different things; otherwise only math-verify may tell. unit: percent, degrees, unit, or "".
    """

    text: str
    key: str
    decided: bool
    unit: str = ""


def understood(text: str, algebra: Algebra) -> Formula | None:
    """What a formula says; None when there is nothing."""
    if len(text) > 2 * _LONGEST:
        return Formula(" ".join(text.split()), as_text(text), decided=True)
    written = cleaned(text)
    if not re.search(r"[^\W_]|\\\{\s*\\\}", written):
        return None
    if len(written) > _LONGEST:
        return Formula(written, as_text(written), decided=True)
    bare, unit = without_unit(written)
    reading = _Reading(algebra)
    key = reading.key(bare)
    shown = key if PLAIN_NUMBER.fullmatch(key) else bare
    return Formula(shown, key, reading.decided, unit)


PLAIN_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:/\d+)?")

_PERCENT = re.compile(r"\s*(?:%|\bper\s?cent\b|\\text\{\s*(?:%|per\s?cent)\s*\})\Z")
_DEGREES = re.compile(
    r"\s*(?:\^\s*\\circ\s*(?:[CF]|\\text\{\s*[CF]\s*\})?|\\text\{\s*degrees?\s*\}|(?<![a-zA-Z])degrees?)\Z"
)
_TEXT_UNIT = re.compile(r"(?<=[\w})!|])(?:\s*/?\s*(?:\\text\{[^{}]*\}|(?<=\})/\s*[a-z]+)(?:\^\s*\{?\s*-?\d\s*\}?)?)+\Z")
# After a number: words (72 dollars, 3 square units), a symbol with a power (24 m2), or one letter apart (24 m).
_WORD_UNIT = re.compile(
    r"\s*(?:(?!and\b|or\b|to\b|mod\b)[A-Za-z]{2,}\.?(?:[\s/-]+[A-Za-z]{1,}\.?){0,4}|[cmk]?m(?=\W|\Z|[23]\Z)|[gshlLNJWV]\b)"
    r"(?:\s*/\s*(?:s|h|hr|min|sec|day|year)\b)?"
    r"(?:\s*\^?\s*\{?[23]\}?)?\Z"
)
_CURRENCY = re.compile(r"(-?)\s*(?:\\text\{\s*(?:US)?\$?\s*\}|US\$|[$£€¥])\s*(?=[-\d.\\])")
_NUMBER_FIRST = re.compile(
    r"[-+]?(?:\d[\d,]*(?:\.\d+)?|\.\d+)(?:\s*/\s*\d+)?(?:\s*\\(?:times|cdot)\s*10\^\{?-?\d+\}?)?"
)
_FUNCTION_INSIDE = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![a-z])")
_FUNCTION = re.compile(r"\s*(?:sqrt|sin|cos|tan|log|ln|exp|pi|factorial)(?![a-z])")


def without_unit(written: str) -> tuple[str, str]:
    """A formula without its percent or degree sign, currency mark or unit, and which kind of those it had."""
    bare = _CURRENCY.sub(r"\1", written, count=1) if _CURRENCY.match(written) else written
    if found := _PERCENT.search(bare):
        return bare[: found.start()], "percent"
    if (found := _DEGREES.search(bare)) and not _FUNCTION_INSIDE.search(bare):
        return bare[: found.start()], "degrees"
    if found := _TEXT_UNIT.search(bare):
        return bare[: found.start()], "unit"
    number = _NUMBER_FIRST.match(bare)
    if number and not _FUNCTION.match(bare, number.end()) and _WORD_UNIT.match(bare, number.end()):
        return bare[: number.end()], "unit"
    return bare, "unit" if bare != written else ""


_LIST = re.compile(r"[,;]|(?<![\\a-zA-Z])(?:and|or)(?![a-zA-Z])")
_WIDE_LIST = re.compile(r"[,;]\s|[,;](?!\d{3}(?!\d))|(?<![\\a-zA-Z])(?:and|or)(?![a-zA-Z])")
_GROUPED = re.compile(r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_UNION = re.compile(r"\\cup(?![a-zA-Z])|(?<=[)\]])\s*U\s*(?=[(\[])")
_PLUS_MINUS = re.compile(r"\\(pm|mp)(?![a-zA-Z])")
_MATRIX = re.compile(
    r"\\begin\{(?:[pbBvV]|small)?(?:matrix|array)\}(?:\{[clr|\s]*\})?(.*)\\end\{(?:[pbBvV]|small)?(?:matrix|array)\}"
)
_BASE = re.compile(r"(-?\d[\dA-F]*)\s*_\s*\{?\s*(?:\\text\{)?\s*(\d{1,2}|[a-z]{3,7})\s*\}{0,2}")
_REPEATING = re.compile(r"(-?)(\d*)\.(\d*)\\(?:overline|bar|dot)\s*\{?\s*(\d+)\s*\}?")
_WHOLE_TEXT = re.compile(r"(?:\s*\\text\{([^{}]*)\})+")
_ONE_TEXT = re.compile(r"\\text\{([^{}]*)\}")
_WORDS = re.compile(r"[A-Za-z][A-Za-z'’.-]*+(?:\s++[A-Za-z][A-Za-z'’.-]*+)*+")
_PROSE = re.compile(r"(?<![\\a-zA-Z{])[a-zA-Z]{4,}|\\text\{[^{}]*[a-z]{3}")
_NO_ALGEBRA = re.compile(
    r"\\(?:ldots|dots|cdots|ref|includegraphics|url|href|mathbb)\b|[?@#&]|\d\s*:\s*\d|\A\W*[A-Za-z]\W*\Z"
)
_WORD_BASES = {"two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7", "eight": "8", "nine": "9"}
_INFINITE = {r"\infty": "oo", r"+\infty": "oo", r"-\infty": "-oo"}
_DEGREES_INSIDE = re.compile(r"(\d+(?:\.\d+)?)\s*\^\s*\\circ(?![a-zA-Z])")


class _Reading:
    """Reads one formula; `decided` turns False when some part could be read only halfway."""

    def __init__(self, algebra: Algebra) -> None:
        self._algebra = algebra
        self._depth = 0
        self.decided = True

    def key(self, text: str) -> str:
        """The canonical form of a formula or of a part of one."""
        text = text.strip()
        self._depth += 1
        try:
            if self._depth > _DEEPEST:
                self.decided = False
                return as_text(text)
            for reader in (
                *(self._number, self._words, self._chain, self._list, self._relation),
                *(self._union, self._bracketed, self._matrix, self._two_signs),
            ):
                if (found := reader(text)) is not None:
                    return found
            return self._leaf(text)
        finally:
            self._depth -= 1

    def _number(self, text: str) -> str | None:
        if text in _INFINITE:
            return _INFINITE[text]
        if found := _REPEATING.fullmatch(text):
            return canonical(_repeating(found))
        if found := _BASE.fullmatch(text):
            return f"{found[1]}_{_WORD_BASES.get(found[2], found[2])}"
        if "," in text and not _GROUPED.fullmatch(text):
            return None
        value = exact_number(text) if ":" not in text else None
        return None if value is None else canonical(value)

    def _words(self, text: str) -> str | None:
        """An answer in words, in a text macro or bare; a number in words is that number."""
        if _WHOLE_TEXT.fullmatch(text):
            inner = " ".join(_ONE_TEXT.findall(text)).strip()
            bare, _ = without_unit(inner)
            if any(char.isdigit() for char in inner):
                return self.key(bare)
        elif _WORDS.fullmatch(text) and re.search(r"[A-Za-z]{4}|\b(?:yes|no|odd)\b", text, re.IGNORECASE):
            inner = text
        else:
            return None
        numbers = find_words(inner, 0, len(inner))
        if len(numbers) == 1 and numbers[0].end - numbers[0].start == len(inner) and numbers[0].value is not None:
            return canonical(numbers[0].value)
        return as_text(inner)

    def _chain(self, text: str) -> str | None:
        for separator, which in _CHAINS:
            parts = [part for _, part in split_outside(text, separator) if part]
            if len(parts) > 1 or (parts and parts[0] != text):
                return self.key(parts[which])
        return None

    def _relation(self, text: str) -> str | None:
        parts = split_outside(text, EQUALS)
        if len(parts) > 1:
            return self._equation(text, [part for _, part in parts])
        parts = split_outside(text, _ORDER)
        return self._inequality(text, parts) if len(parts) > 1 else None

    def _equation(self, text: str, parts: Sequence[str]) -> str:
        """`name = value` and worked sums are their value; other equations go to algebra."""
        if _is_name(parts[-1]) and not _is_name(parts[0]):
            parts = parts[::-1]
        value = parts[-1]
        if value and all(_is_name(part) or not _has_letter(part) for part in parts[:-1]):
            # A line may be asked for as `y = 2x + 1` and given as `2x - y + 1 = 0`: only the equation as a whole tells.
            self.decided = self.decided and not _has_letter(value)
            return self.key(value)
        if value and len(parts) > 2:
            return self.key(value)
        return self._leaf(text)

    def _inequality(self, text: str, parts: Sequence[tuple[str, str]]) -> str:
        """`x > 2` and `1 < x \\le 2` are intervals; others go to algebra."""
        terms = [part for _, part in parts]
        signs = [_ORDER_SIGNS[sign.strip()] for sign, _ in parts[1:]]
        names = [place for place, term in enumerate(terms) if _is_name(term) and _has_letter(term)]
        if len(names) != 1 or any(_has_letter(term) for place, term in enumerate(terms) if place != names[0]):
            return self._leaf(text)
        if signs[0] == "!=":
            return f"not {self.key(terms[1 - names[0]])}" if len(terms) == 2 else self._leaf(text)
        if len({sign[0] for sign in signs}) > 1 or len(terms) > 3 or (len(terms) == 3 and names[0] != 1):
            return self._leaf(text)
        if signs[0][0] == ">":
            terms, signs, names = terms[::-1], signs[::-1], [len(terms) - 1 - names[0]]
        low = (self.key(terms[names[0] - 1]), signs[names[0] - 1]) if names[0] else ("-oo", "<")
        high = (self.key(terms[names[0] + 1]), signs[names[0]]) if names[0] + 1 < len(terms) else ("oo", "<")
        closed = [sign[1:] != "" for _, sign in (low, high)]
        return f"{'[' if closed[0] else '('}{low[0]}, {high[0]}{']' if closed[1] else ')'}"

    def _list(self, text: str) -> str | None:
        """`3, 5, 7` in any order; `x = 1, y = 2` keeps the names; `x < 1 or x > 3` is a union."""
        if _GROUPED.fullmatch(text):
            return None
        found = split_outside(text, _WIDE_LIST if re.search(r"[,;]\s", text) else _LIST)
        parts = [part for _, part in found if part]
        if len(parts) < 2:
            return self.key(parts[0]) if parts and parts[0] != text else None
        names = [name for part in parts if (name := _assigned(part))]
        if len(names) == len(parts) and len(set(names)) == len(names):
            values = [self.key(split_outside(part, EQUALS)[-1][1]) for part in parts]
            return ", ".join(sorted(f"{name} = {value}" for name, value in zip(names, values, strict=True)))
        if all(separator == "or" for separator, _ in found[1:]) and all(_ORDER.search(part) for part in parts):
            return _joined(" U ", {self.key(part) for part in parts})
        return self._set(parts)

    def _set(self, parts: Sequence[str]) -> str:
        elements: set[str] = set()
        for part in parts:
            found = self.key(without_unit(part)[0])
            # The elements of 1 \pm 2, 7 are three.
            elements.update(_elements(found) if _PLUS_MINUS.search(part) else [found])
        return "{" + _joined(", ", elements) + "}"

    def _union(self, text: str) -> str | None:
        parts = split_outside(text, _UNION)
        return _joined(" U ", {self.key(part) for _, part in parts if part}) if len(parts) > 1 else None

    def _bracketed(self, text: str) -> str | None:
        if text == r"\emptyset":
            return "{}"
        opening = 1 if text.startswith("\\{") else 0
        if text[opening : opening + 1] not in ("(", "[", "{"):
            return None
        if matching(text, opening) != len(text) - 1:
            return None
        inner = text[opening + 1 : -1].removesuffix("\\").strip()
        parts = [part for _, part in split_outside(inner, _WIDE_LIST if re.search(r"[,;]\s", inner) else _COMMA)]
        if text[opening] == "{":
            if not opening and len(parts) < 2:
                return self.key(inner)
            return self._set([part for part in parts if part])
        if len(parts) < 2:
            return self.key(inner)
        return text[0] + ", ".join(self.key(without_unit(part)[0]) for part in parts) + text[-1]

    def _matrix(self, text: str) -> str | None:
        found = _MATRIX.fullmatch(text)
        if not found:
            return None
        rows = [row for row in re.split(r"\\\\(?:\[[^\[\]]*\])?|\\cr\b", found[1]) if row.strip()]
        return "[" + "; ".join(", ".join(self.key(entry) for entry in row.split("&")) for row in rows) + "]"

    def _two_signs(self, text: str) -> str | None:
        if not _PLUS_MINUS.search(text):
            return None
        signs = [{"pm": "+", "mp": "-"}, {"pm": "-", "mp": "+"}]
        both = [_PLUS_MINUS.sub(lambda m, sign=sign: sign[m[1]], text).lstrip("+ ") for sign in signs]  # type: ignore[misc]
        return self._set(both)

    def _leaf(self, text: str) -> str:
        """An expression for algebra, or what is none: then its own letters are all that can be compared."""
        if _PROSE.search(text) or _NO_ALGEBRA.search(text):
            return as_text(text)
        found = self._algebra(_DEGREES_INSIDE.sub(r"(\\frac{\1 \\pi}{180})", text))
        if found is None:
            self.decided = False
            return as_text(text)
        return found


EQUALS = re.compile(r"(?<![<>:])=(?!=)")
_COMMA = re.compile(r"[,;]")
_ORDER = re.compile(r"<|>|\\(?:le|ge|ne)(?![a-zA-Z])")
_ORDER_SIGNS = {"<": "<", ">": ">", r"\le": "<=", r"\ge": ">=", r"\ne": "!="}
# A chain is known by one of its parts: the conclusion, the set that something is in, the value before its rounding.
_CHAINS = [
    (re.compile(r"\\(?:implies|Rightarrow|iff|Leftrightarrow)(?![a-zA-Z])"), -1),
    (re.compile(r"\\in(?![a-zA-Z])"), -1),
    (re.compile(r"\\approx(?![a-zA-Z])"), 0),
    (re.compile(r"\\equiv(?![a-zA-Z])"), -1),
    (re.compile(r"\\p?mod(?![a-zA-Z])|\(\s*\\?mod(?![a-zA-Z])"), 0),
]
_DECORATION = re.compile(
    r"\\(?:text|overline|angle|triangle|vec|hat|bar|widehat|circ|ell|mathcal)(?![a-zA-Z])|\^\{-1\}"
)
_NAME = re.compile(r"(?:\\[a-z]++|[A-Za-z'_(),|\s{}]|(?<=_)\d|(?<=_\{)\d+|(?<=\()\d+(?=\)))+")
_NO_NAME = re.compile(r"\\(?:frac|sqrt|pi|sin|cos|tan|cot|log|ln|cdot|times|pm|infty|binom)(?![a-z])")
_LETTER = re.compile(r"[A-Za-z]")
_COMMAND = re.compile(r"\\(?:frac|sqrt|pi|sin|cos|tan|cot|log|ln|cdot|times|div|pm|infty|binom|circ)(?![a-zA-Z])")


def _is_name(part: str) -> bool:
    """A symbol, or something like f(x), f^{-1}(2), AB, x_1, (x,y) or an area in words; never an operation."""
    part = _DECORATION.sub(" ", part)
    return bool(_LETTER.search(part)) and not _NO_NAME.search(part) and _NAME.fullmatch(part) is not None


def _has_letter(part: str) -> bool:
    return _LETTER.search(_COMMAND.sub(" ", part)) is not None


def _assigned(part: str) -> str | None:
    """The name in `name = value`, None of anything else."""
    sides = split_outside(part, EQUALS)
    return sides[0][1] if len(sides) == 2 and _is_name(sides[0][1]) and sides[1][1] else None


def _elements(key: str) -> list[str]:
    return key[1:-1].split(", ") if key.startswith("{") else [key]


def _joined(separator: str, keys: set[str]) -> str:
    return separator.join(sorted(keys))


def _repeating(found: re.Match[str]) -> Fraction:
    sign, whole, start, period = found.groups()
    value = int(whole + start or "0") + Fraction(int(period), 10 ** len(period) - 1)
    value = Fraction(value, 10 ** len(start))
    return -value if sign else value


_IN_BRACKETS = re.compile(r"\A[(\[]([\w\s.'-]+)[)\]]\Z")
_LEADING = re.compile(r"(?:the|an?)\s+")
_SYNONYMS = {r"\mathbb{r}": "(-oo, oo)", "all real numbers": "(-oo, oo)", "all reals": "(-oo, oo)", "empty set": "{}"}
_SYNONYMS |= {"no solution": "{}", "no solutions": "{}", "no real solutions": "{}", "does not exist": "dne"}


def as_text(text: str) -> str:
    """Words as they are compared: lower case, no marks; a single letter, such as an option's, as it is."""
    text = _ONE_TEXT.sub(r" \1 ", text)
    inner = " ".join(text.split()).strip(" .,;:!\"'")
    inner = _IN_BRACKETS.sub(r"\1", inner)
    if len(inner) == 1:
        return inner
    words = _LEADING.sub("", inner.casefold(), count=1) if " " in inner else inner.casefold()
    return _SYNONYMS.get(words, words)
