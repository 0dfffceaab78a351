"""The options of a question, and where a reply names them: by text or by value. Not which one it chooses, nor letters.

A text counts word for word: capitals, plurals, markup and articles apart. An option that is one number counts by its
value, with its unit and direction (loss, gain). A longer option's text hides a shorter one's inside it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import NamedTuple

from debate_local.tasks.answers.numerals import Numeral, find_numerals
from debate_local.tasks.answers.reply import lower, plain

_NOT_ONE = -1


class Mention(NamedTuple):
    """Option number `option`, from 0, is named at [start, end). By letter it may lie beyond the last."""

    start: int
    end: int
    option: int

    @property
    def ambiguous(self) -> bool:
        """True when several options read the same here."""
        return self.option == _NOT_ONE


class Token(NamedTuple):
    """One word, number or sign at [start, end), in the form that is compared."""

    start: int
    end: int
    word: str


_CJK = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_TOKEN = re.compile(
    rf"\d+(?:,\d{{3}})+(?!\d)(?:\.\d+)?|\d+(?:\.\d+)?|[{_CJK}]|[^\W\d_{_CJK}]+(?:'[^\W\d_]+)?"
    # A hyphen inside a word (T-cell) joins what a blank parts elsewhere.
    r"|(?<![^\W\d_])-|-(?![^\W\d_])|[^\w\s\\{}$*\"'.;:,`-]"
)
# Signs that are written in several ways.
_ONE_WAY = {"–": "-", "−": "-", "—": "-", "√": "sqrt", "·": "×", "&": "and", "dfrac": "frac", "tfrac": "frac"}
_ARTICLES = ("the", "a", "an")


def tokens(text: str, start: int, end: int, exact: bool = False) -> list[Token]:
    """The tokens of text[start:end]; not exact: without regard to capitals and to the s of a plural."""
    found = []
    for match in _TOKEN.finditer(text, start, end):
        word = match.group()
        if word[0].isdecimal():
            word = word.replace(",", "")
        elif not exact:
            word = word.lower()
            if len(word) > 3 and word[-1] == "s" and word[-2] != "s":
                word = word[:-1]
        found.append(Token(match.start(), match.end(), _ONE_WAY.get(word, word)))
    return found


_UNITS = {
    "m": "metre meter", "cm": "centimetre centimeter", "mm": "millimetre millimeter", "km": "kilometre kilometer kms",
    "kg": "kilogram kilo kgs", "g": "gram gm gms", "mg": "milligram", "l": "litre liter", "ml": "millilitre milliliter",
    "h": "hour hr hrs", "min": "minute mins", "s": "second sec secs", "day": "", "week": "", "month": "",
    "year": "yr yrs", "%": "percent", "rs": "rupee re inr ₹", "$": "dollar usd", "€": "euro", "£": "pound",
    "cent": "paise ¢", "j": "joule", "kj": "kilojoule", "w": "watt", "v": "volt", "pa": "pascal", "hz": "hertz",
}  # fmt: skip
_UNIT_OF = {name: unit for unit, names in _UNITS.items() for name in (unit, *names.split())}
# What makes another answer of the same number.
_DIRECTIONS = frozenset(
    [
        "loss",
        "profit",
        "gain",
        "increase",
        "decrease",
        "more",
        "less",
        "under",
        "over",
        "below",
        "above",
        "east",
        "west",
        "north",
        "south",
        "left",
        "right",
        "am",
        "pm",
        "not",
        "before",
        "ago",
        "minus",
        "plus",
        "up",
        "down",
        "false",
        "true",
    ]
)
_WORD = re.compile(r"[^\W\d_]+|[%$€£₹¢]")
_AFTER_NUMBER = re.compile(r"[\s\\]*([^\W\d_]+|[%€£₹¢])")


def _unit(word: str) -> str:
    single = word[:-1] if len(word) > 3 and word.endswith("s") else word
    return _UNIT_OF.get(word) or _UNIT_OF.get(single) or single


def _words(low: str) -> frozenset[str]:
    return frozenset(_unit(word) for word in _WORD.findall(low.replace("per cent", "percent")))


@dataclass(frozen=True, slots=True)
class _Quantity:
    """An option that is one number; words: the units and whatever else stands around it."""

    value: Fraction
    words: frozenset[str]

    @property
    def units(self) -> frozenset[str]:
        return self.words & _UNITS.keys()


_OF_THESE = (
    r"(?: of)?(?: (?:the|these|those|them|above|options|choices|answers|alternatives|statements?|given|listed|other"
    r"|ones?)\b)+"
)
# An option of the left kind is named by these words.
_CATCH_ALLS = [
    re.compile(pattern)
    for pattern in (
        rf"\bnone(?:{_OF_THESE})?|\bno (?:correct|right) (?:answer|option|choice)\b",
        rf"\ball(?:{_OF_THESE})",
        rf"\bneither(?:{_OF_THESE}| is (?:true|correct))?",
        rf"\bboth(?:{_OF_THESE}| are (?:true|correct))",
    )
]


class Options:
    """The options of one question, in their order."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = _without_labels([plain(text).strip() for text in texts])

    @cached_property
    def longest(self) -> int:
        """How many characters a mention of an option may take, with markup."""
        return 40 + 2 * max(map(len, self.texts))

    def __len__(self) -> int:
        return len(self.texts)

    @cached_property
    def quantities(self) -> dict[int, _Quantity]:
        """The options that are one number."""
        found = {place: _quantity(text) for place, text in enumerate(self.texts)}
        return {place: quantity for place, quantity in found.items() if quantity}

    @cached_property
    def _exact(self) -> bool:
        """Do two options differ in capitals or a plural only (AA, Aa)?"""
        folded = {self._words(text, False) for text in self.texts}
        return len(folded) < len({self._words(text, True) for text in self.texts})

    @staticmethod
    def _words(text: str, exact: bool) -> tuple[str, ...]:
        words = [token.word for token in tokens(text, 0, len(text), exact)]
        return tuple(words[1:] if len(words) > 1 and words[0].lower() in _ARTICLES else words)

    def _begins(self, place: int, article: str) -> bool:
        return self.texts[place].lower().startswith(f"{article} ")

    @cached_property
    def _by_first_word(self) -> dict[str, list[tuple[tuple[str, ...], int]]]:
        """First word -> whole texts, the longest first. Numbers are no texts."""
        places: dict[tuple[str, ...], int] = {}
        for place, text in enumerate(self.texts):
            words = self._words(text, self._exact)
            if words and place not in self.quantities:
                same = words in places and self.texts[places[words]] != text
                # The first of several equal texts stands for all.
                places[words] = _NOT_ONE if same else places.get(words, place)
        table: dict[str, list[tuple[tuple[str, ...], int]]] = {}
        for words in sorted(places, key=len, reverse=True):
            table.setdefault(words[0], []).append((words, places[words]))
        return table

    @cached_property
    def _probes(self) -> list[str]:
        """One word of every text: where none of them is, no text is."""
        wordings = [words for options in self._by_first_word.values() for words, _ in options]
        return [
            max(
                (w.lower() for w in words if w.isascii() and w.isalpha() and w not in _ONE_WAY.values()),
                key=len,
                default="",
            )
            for words in wordings
        ]

    @cached_property
    def _catch_alls(self) -> list[tuple[re.Pattern[str], int]]:
        """`None of these` and `all of the above`, in whatever words, where exactly one option says so."""
        found = []
        for pattern in _CATCH_ALLS:
            places = [place for place, text in enumerate(self.texts) if pattern.fullmatch(text.lower().strip(" ."))]
            if len(places) == 1:
                found.append((pattern, places[0]))
        return found

    def texts_in(self, text: str, start: int, end: int) -> list[Mention]:
        """Where text[start:end] names an option by its text, in order."""
        low = lower(text[start:end])
        found = [
            Mention(start + match.start(), start + match.end(), place)
            for pattern, place in self._catch_alls
            for match in pattern.finditer(low)
        ]
        if not any(probe in low for probe in self._probes):
            return found
        row = tokens(text, start, end, self._exact)
        words = tuple(token.word for token in row)
        at = 0
        while at < len(row):
            for option, place in self._by_first_word.get(words[at], ()):
                if words[at : at + len(option)] == option:
                    # The article, or the A, that the option's text begins with belongs to it.
                    article = at and place >= 0 and words[at - 1] in _ARTICLES and self._begins(place, words[at - 1])
                    found.append(Mention(row[at - 1 if article else at].start, row[at + len(option) - 1].end, place))
                    at += len(option) - 1
                    break
            at += 1
        return sorted(set(found))

    def at(self, text: str, place: int) -> int | None:
        """The option whose text stands at `place` as it is written, and ends with a word; of several the longest."""
        found = [
            option
            for option, written in enumerate(self.texts)
            if written
            and text.startswith(written, place)
            and not text[place + len(written) : place + len(written) + 1].isalnum()
        ]
        return max(found, key=lambda option: len(self.texts[option])) if found else None

    def fragment(self, text: str, start: int, end: int) -> int | None:
        """The one option whose text holds text[start:end], whole words that carry a meaning."""
        row = self._words(text[start:end], self._exact)
        if not any(len(word) > 3 for word in row):
            return None
        holding = [
            place
            for option in self._by_first_word.values()
            for words, place in option
            if any(words[at : at + len(row)] == row for at in range(len(words) - len(row) + 1))
        ]
        return holding[0] if len(holding) == 1 and holding[0] != _NOT_ONE else None

    def with_value(self, low: str, numeral: Numeral, start: int, end: int) -> int | None:
        """The one option that is the number a sentence low[start:end] gives, with its unit and direction."""
        said = _words(low[start:end])
        after = _AFTER_NUMBER.match(low, numeral.end, end)
        units = _words(low[numeral.start : after.end() if after else numeral.end]) & _UNITS.keys()
        value = numeral.value
        if units == {"cent"} and value is not None and not any("cent" in q.words for q in self.quantities.values()):
            # 99 cents are $0.99.
            units, value = frozenset(), value / 100
        same = [place for place, quantity in self.quantities.items() if quantity.value == value]
        fitting = []
        for place in same:
            quantity = self.quantities[place]
            other_unit = units and quantity.units and not units & quantity.units
            if not other_unit and (quantity.words & _DIRECTIONS) <= said:
                fitting.append(place)
        if len(fitting) > 1:
            fitting = [place for place in fitting if self.quantities[place].words <= said]
        return fitting[0] if len({self.texts[place] for place in fitting}) == 1 else None


@lru_cache(maxsize=4096)
def options_of(choices: tuple[str, ...]) -> Options:
    """The options of a question; made once for all the replies to it."""
    return Options(choices)


_OPTION_LABEL = re.compile(r"\s*\(?([A-Za-z])\s?[).:]\s*(?=\S)")


def _without_labels(texts: list[str]) -> list[str]:
    """`B) 21.5` is 21.5, where all options carry their own letter."""
    labels = [_OPTION_LABEL.match(text) for text in texts]
    if not all(label and ord(label[1].upper()) == ord("A") + place for place, label in enumerate(labels)):
        return texts
    return [text[label.end() :] if label else text for text, label in zip(texts, labels, strict=True)]


# 10,8 may as well be two numbers.
_DECIMAL_COMMA = re.compile(r"\d,\d{1,2}(?!\d)")
_FORMULA = re.compile(r"[=<>^√π+*()\[\]]|\b(?:sqrt|log|ln|sin|cos|tan|pi)\b|\\[a-z]|(?<![a-zA-Z])/|/(?![a-zA-Z])")


def _quantity(text: str) -> _Quantity | None:
    numerals = find_numerals(text, 0, len(text), lambda: False)
    numeral = numerals[0] if len(numerals) == 1 else None
    if numeral is None or numeral.value is None:
        return None
    rest = f"{text[: numeral.start]} {text[numeral.end :]}"
    if (
        any(char.isdecimal() for char in rest)
        or len(rest.split()) > 4
        or _FORMULA.search(rest)
        or _DECIMAL_COMMA.search(text)
    ):
        return None
    return _Quantity(numeral.value, _words(text.lower()))
