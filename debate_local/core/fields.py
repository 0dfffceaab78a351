"""Read given fields out of a reply that was asked for JSON. Strict first, then lenient; never `eval`. Knows no task.

Lenient means: prose or fences around the object, single or no quotes, a trailing comma, backslashes that JSON does not
allow, an object in a list or in another object, a reply that ends within the object (fields that are whole count, the
cut one does not), and at last lines of `field: value`. An object quoted within a text of the model is that text.

The rules, named by `Fields.rule`: strict, embedded (strict, with something around it), lenient, lines.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from .chat import split_reasoning

# An object that matters is neither longer nor deeper; a reply may begin thousands that are none.
_LONGEST = 20_000
_MOST_OBJECTS = 24
_DEEPEST = 6


# The rules by which something was read; any other says why there is nothing.
RULES = ("strict", "embedded", "lenient", "lines")


@dataclass(frozen=True, slots=True)
class Fields:
    """What was found: field -> JSON value, under the names that were asked for. A field that is missing or null is not
    in it. rule: how it was read, or why there is nothing.
    """

    values: Mapping[str, Any]
    rule: str


def read_fields(text: str, names: Sequence[str]) -> Fields:
    """The named fields of the last object that has any of them. Case, blanks, `_` and `-` in a name do not matter.

    names: at least one. Several objects in one list must agree: what differs is missing.
    """
    if not names:
        raise ValueError("read_fields needs the name of at least one field")
    own = _LATEX_IN_JSON.sub(r"\\\\", split_reasoning(text).text.strip())
    if not own:
        return Fields({}, "nothing outside reasoning" if text.strip() else "empty reply")
    wanted = {_plain(name): name for name in names}
    for rule, values in _readings(own):
        found = _named(values, wanted)
        if found is not None:
            return Fields(found, rule)
    lines = _lines(own, wanted)
    return Fields(lines, "lines") if lines else Fields({}, "none of the fields")


# \frac, \text, \beta: letters of a valid escape, and LaTeX all the same.
_LATEX_IN_JSON = re.compile(
    r"\\(?<!\\\\)(?=(?:frac|forall|text|theta|times|tan|tau|to|triangle|beta|begin|bar|binom|boxed|neq?|nu|not|rho|right)"
    r"(?![a-z]))"
)


def _plain(name: str) -> str:
    return re.sub(r"[\W_]+", "", name.casefold())


def _readings(own: str) -> Iterator[tuple[str, Any]]:
    """What can be read as JSON, the most reliable first."""
    strict = _strict(own)
    if strict is not None and isinstance(strict[0], str):
        # JSON as a text within JSON.
        own, strict = strict[0], _strict(strict[0])
    if strict is not None:
        yield "strict", strict[0]
    starts = _starts(own)
    embedded: list[Any] = []
    place = 0
    for start in starts:
        if start >= place and (found := _strict(own, start)) is not None:
            embedded.append(found[0])
            place = found[1]
    yield from (("embedded", value) for value in reversed(embedded))
    lenient: list[Any] = []
    place = 0
    for start in starts:
        if start >= place:
            parser = _Lenient(own, start)
            lenient.append(parser.value())
            place = max(parser.place, start + 1)
    yield from (("lenient", value) for value in reversed(lenient))


def _starts(own: str) -> list[int]:
    """Where objects and lists may begin: the first and the last of them."""
    half = _MOST_OBJECTS // 2
    found = {m.start() for m in islice(_START.finditer(own), half)}
    place = len(own)
    # From the end, without a look at what lies between.
    for _ in range(4 * half):
        place = max(own.rfind("{", 0, place), own.rfind("[", 0, place))
        if place < 0 or len(found) == 2 * half:
            break
        if _START.match(own, place):
            found.add(place)
    return sorted(found)


_START = re.compile(r"[{\[](?:(?<=\{)(?=\s*[\"'“‘A-Za-z_{\[])|(?<=\[)(?=\s*\{))")


_DECODER = json.JSONDecoder(parse_constant=lambda _: None, strict=False)


def _strict(own: str, start: int | None = None) -> tuple[Any, int] | None:
    """The JSON value of all of the text, or of what begins at `start`, and where it ends; None where there is none."""
    try:
        if start is None:
            return _DECODER.decode(own), len(own)
        value, length = _DECODER.raw_decode(own[start : start + _LONGEST])
        return value, start + length
    except (ValueError, RecursionError):
        return None


def _named(value: Any, wanted: Mapping[str, str], depth: int = 0) -> dict[str, Any] | None:
    """The wanted fields of an object, of the objects of a list where they agree, or of the first object within.

    None when it has none of them; a field that is null is one.
    """
    if depth > _DEEPEST:
        return None
    if isinstance(value, list):
        return _agreed(
            [fields for one in value[:_MOST_OBJECTS] if (fields := _named(one, wanted, depth + 1)) is not None]
        )
    if not isinstance(value, dict):
        return None
    given = {_plain(str(key)): one for key, one in value.items()}
    if set(given) & set(wanted):
        return {name: given[key] for key, name in wanted.items() if given.get(key) is not None}
    return next((fields for one in value.values() if (fields := _named(one, wanted, depth + 1)) is not None), None)


def _agreed(found: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    given: dict[str, list[Any]] = {}
    for fields in found:
        for name, value in fields.items():
            given.setdefault(name, []).append(value)
    agreed = {name: values[0] for name, values in given.items() if all(value == values[0] for value in values)}
    return agreed if found else None


_LINE = re.compile(
    r"^[ \t>*_`#-]{0,20}([A-Za-z][\w \t-]{0,40}?)[*_`\"']{0,5}[ \t]{0,5}[:=][ \t*_`]{0,20}([^\n]{1,400})$", re.MULTILINE
)


def _lines(own: str, wanted: Mapping[str, str]) -> dict[str, Any]:
    """`field: value`, one a line; of several lines for one field the last counts."""
    found = {}
    for line in _LINE.finditer(own):
        if (name := wanted.get(_plain(line[1]))) and (value := line[2].strip(" \t\"'*_`,;")):
            found[name] = value
    return found


class _CutOff(Exception):
    """The text ended within a value."""


_QUOTES = {'"': '"', "'": "'", "“": "”", "‘": "’", "`": "`"}
# Comments are no JSON, and written all the same.
_BLANK = re.compile(r"(?:\s|//[^\n]*|/\*(?:[^*]|\*(?!/)){0,200}\*/)*+")
_BARE_KEY = re.compile(r"[A-Za-z_][\w \t-]{0,60}(?=\s*:)")
_BARE_VALUE = re.compile(r"[^,}\]\n]*")
_WORD_VALUES = {"true": True, "false": False, "null": None, "none": None, "nan": None, "undefined": None}
_JSON_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,300})(?:\.\d{1,300})?(?:[eE][+-]?\d{1,3})?")
_KEY_NEXT = re.compile(r"[\"“'‘][\w -]{1,60}[\"”'’]\s{0,9}:")
_BARE_KEY_NEXT = re.compile(r"\w{1,60}\s{0,9}:")
_AFTER_KEY = re.compile(r"\s*+:")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "'": "'", "\\": "\\", "/": "/"}


class _Lenient:
    """Reads one value in one pass. What is cut off or broken ends it; what was read before stays."""

    def __init__(self, text: str, start: int) -> None:
        self._text, self.place = text[: start + _LONGEST], start
        self._broken = False

    def value(self, depth: int = 0) -> Any:
        """The value that begins here. Raises _CutOff for a text, a number or a word that the end cuts off."""
        self._skip()
        char = self._text[self.place : self.place + 1]
        if char == "{" and depth < _DEEPEST:
            return self._object(depth)
        if char == "[" and depth < _DEEPEST:
            return self._list(depth)
        return self._quoted(char, self._ends_value) if char in _QUOTES and char else self._bare()

    def _skip(self) -> None:
        blank = _BLANK.match(self._text, self.place)
        self.place = blank.end() if blank else self.place

    def _object(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        self.place += 1
        while not self._closed("}"):
            try:
                key = self._key()
                if key is None:
                    self._broken = True
                    return found
                found[key] = self.value(depth + 1)
            except _CutOff:
                self._broken = True
        return found

    def _list(self, depth: int) -> list[Any]:
        found: list[Any] = []
        self.place += 1
        while not self._closed("]"):
            before = self.place
            try:
                found.append(self.value(depth + 1))
            except _CutOff:
                self._broken = True
            if self.place == before:
                self._broken = True
        return found

    def _closed(self, mark: str) -> bool:
        """Is this the end of the object or list, or of all that can be read?"""
        self._skip()
        while self._text.startswith(",", self.place):
            self.place += 1
            self._skip()
        if self._broken or self.place >= len(self._text):
            return True
        if self._text[self.place] in "}]":
            self.place += 1
            return True
        return False

    def _key(self) -> str | None:
        char = self._text[self.place]
        if char in _QUOTES:
            key = self._quoted(char, lambda place: _AFTER_KEY.match(self._text, place) is not None)
        elif bare := _BARE_KEY.match(self._text, self.place):
            key, self.place = bare[0], bare.end()
        else:
            return None
        colon = _AFTER_KEY.match(self._text, self.place)
        if colon is None:
            return None
        self.place = colon.end()
        return key

    def _ends_value(self, place: int) -> bool:
        """Can a value end here: before a comma, a bracket, the end, or the next key where a comma was forgotten?"""
        space = _BLANK.match(self._text, place)
        end = space.end() if space else place
        if end >= len(self._text) or self._text[end] in ",}]":
            return True
        forgotten = _KEY_NEXT.match(self._text, end)
        return bool(forgotten or ("\n" in self._text[place:end] and _BARE_KEY_NEXT.match(self._text, end)))

    def _quoted(self, quote: str, ends: Callable[[int], bool]) -> str:
        """A text: it ends at a quote that is followed by what can follow a text; others belong to it."""
        closing, pieces, place = _QUOTES[quote], [], self.place + 1
        while place < len(self._text):
            char = self._text[place]
            if char == "\\" and place + 1 < len(self._text):
                following = self._text[place + 1]
                # A backslash that escapes nothing belongs to the text: LaTeX, \$5.
                pieces.append(_ESCAPES.get(following, char + following))
                place += 2
                continue
            if char == closing and ends(place + 1):
                self.place = place + 1
                return "".join(pieces)
            pieces.append(char)
            place += 1
        self.place = len(self._text)
        raise _CutOff

    def _bare(self) -> Any:
        """A number or a word; anything else without quotes is a text up to the comma, bracket or line's end."""
        bare = _BARE_VALUE.match(self._text, self.place)
        word = bare[0].strip() if bare else ""
        self.place = bare.end() if bare else self.place
        if self.place >= len(self._text):
            raise _CutOff
        if word.casefold() in _WORD_VALUES:
            return _WORD_VALUES[word.casefold()]
        return json.loads(word) if _JSON_NUMBER.fullmatch(word) else word
