"""Written numerals and their exact values. Knows how numbers are written, not which of them answers a question.

A numeral that looks like a number but is none (a clock time, a date, a list such as 1,2,3, a division by zero, an
exponent beyond reason) is found too, with the value None: its parts must not be taken for numbers.
"""

import re
import unicodedata
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

# Longer numerals are noise, and Python's own int() is slow or refuses there.
_MAX_DIGITS = 300
_MAX_EXPONENT = 400


class Numeral(NamedTuple):
    """A numeral at [start, end), its sign and currency mark included. form: how it was written, where that matters."""

    start: int
    end: int
    value: Fraction | None
    form: str = ""


_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+")
_VULGAR = {char: Fraction(unicodedata.numeric(char)).limit_denominator(10) for char in "¼½¾⅓⅔⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞"}
_SCALES = {"hundred": 100, "thousand": 1000, "k": 1000, "million": 10**6, "m": 10**6, "mn": 10**6}
_SCALES |= {"billion": 10**9, "bn": 10**9, "trillion": 10**12}
_PARTS = {"half": 2, "third": 3, "quarter": 4, "fourth": 4, "fifth": 5, "sixth": 6, "eighth": 8, "tenth": 10}
_PARTS |= {f"{part}s": size for part, size in _PARTS.items()} | {"halves": 2}

_DIGITS = r"\d{1,3}(?:\ \d{3}|,\ 000)+(?!\d)(?:[.,]\d+)?|\d+(?:(?:[.,']|\{,\}|,?\\[,;:!\ ])\d+)*|(?<![\d.])\.\d+"
_NUMERAL = re.compile(
    rf"""
    # Not inside a name (B12, T-20), an exponent or an index (m^2, x_1).
    (?:(?<![A-Za-z0-9_^])(?<!\^\{{)(?<!_\{{)(?<![A-Za-z]-)|(?<=\\times)|(?<=\\cdot)|(?<=\\div)|(?<=\\boxed)|(?<=\dx))
    (?: (?P<clock>\d{{1,2}}:\d\d(?::\d\d)?)(?![\d:])(?:\s?(?i:[ap]\.?m)\b)?
      | (?P<other>\d+(?::\d+)+ | \d+\ :\ \d+ | \d{{1,4}}([/-])\d{{1,2}}\3\d{{1,4}}(?!\d))
      | (?P<whole>\d{{1,9}})?\s?\\[dt]?frac\s?(?:\{{\s?(?P<top>\d{{1,99}})\s?\}}|(?P<top1>\d))\s?
            (?:\{{\s?(?P<bottom>\d{{1,99}})\s?\}}|(?P<bottom1>\d))
      | (?P<mixed>\d{{1,9}})(?:\s?(?P<vulgar>[¼½¾⅓-⅚⅛-⅞])|\ (?:and\ )?(?P<over>\d{{1,9}})/(?P<under>\d{{1,9}})(?![\d/])
            |\s{{1,2}}and\s{{1,2}}(?:a\s|one\s)?(?P<part>half|quarter)\b)
      | (?P<vulgar1>[¼½¾⅓-⅚⅛-⅞])
      | (?P<digits>{_DIGITS})
        (?: \s?/\s?(?P<divisor>\d{{1,99}})(?![\d/])
          | [eE](?P<e>[+-]?\d+)(?![\w.])
          | \s{{0,2}}(?:×|x|\*|\\times|\\cdot)\s{{0,2}}10\s?(?:(?:\^|\*\*)\s?\{{?\s?(?P<ten>[-−+]?\d+)\s?\}}?
                |(?P<ten1>[⁰-⁹¹²³⁻]+))
          | (?:\^|\*\*)\{{?(?P<power>[-−]?\d+(?:\}}?\^\{{?\d+)*)\}}? | (?P<power1>[⁰-⁹¹²³⁻]+)
        )?
    )
    (?: \s{{0,2}}(?P<percent>\\?%|per\s?cent\b)
      | (?:\\text\{{)?\s{{0,2}}(?P<scale>(?i:hundred|thousand|million|billion|trillion))\b
      # A 5k race is no 5,000 of anything.
      | (?P<short>[kK]|M|mn|bn)(?![A-Za-z])
            (?P<name>[\s-](?:race|run|walk|marathon|jog|course|fun\srun|event|video|resolution|tv)\b)?
      | (?:\s?(?:dollars?|euros?|pounds?))?(?:,?\sand|,)?\s(?P<cents>\d{{1,2}})\s?(?:cents?|pence)\b
    )?
    """,
    re.VERBOSE,
)
_FIRST = re.compile(r"\d[\d.,]*|[.\\¼½¾⅓-⅚⅛-⅞]")
_SEPARATOR = re.compile(r",?\\[,;:! ]|, |[.,' ]|\{,\}")

# The last letters of minus and negative among them.
_MAY_LEAD = frozenset("-−–$£€¥₹sSeE")
_CURRENCY = re.compile(r"(?:\\?[$£€¥₹]|US\$)[ ]?\Z")
_MINUS = re.compile(
    r"""(?: (?<![A-Za-z0-9_)\]}%−–-])(?<![\d)\]}%][ ])([-−–])         # -7, and not 12-7 or 12 -7
          | (?<![A-Za-z0-9_)\]}%]\s)(?<![A-Za-z0-9_)\]}%])(−\s)      # U+2212 may stand apart
          | (?:[=≈({]|:(?![-−])|\b(?:is|be|equals))[ \t]*([-−]\s)   # = - 7, and not a label's :- 7
          | \b(negative\s)
          # minus seven, and not 12 minus 7
          | (?:^|[=(:,*]|\b(?:is|be|was|equals|of|are|get|gives|so))\s*\*{0,2}(minus\s)
        )\Z""",
    re.VERBOSE | re.IGNORECASE,
)


def find_numerals(text: str, start: int, end: int, continental: Callable[[], bool]) -> list[Numeral]:
    """All numerals written with digits in text[start:end], in order.

    continental: asked only where it matters (1.250, 1,250): does the text's language use the comma for decimals?
    """
    found = []
    place = start
    # Jumping to the next possible first character is several times faster than trying the pattern everywhere.
    while first := _FIRST.search(text, place, end):
        match = _NUMERAL.match(text, first.start(), end)
        if match:
            found.append(_numeral(text, match, continental))
        place = match.end() if match else first.end()
    return found


def exact_number(text: str) -> Fraction | None:
    """The value when the text is one numeral and nothing else; None otherwise. In English notation."""
    text = text.strip()
    found = find_numerals(text, 0, len(text), lambda: False)
    return found[0].value if len(found) == 1 and (found[0].start, found[0].end) == (0, len(text)) else None


def canonical(value: Fraction) -> str:
    """A plain decimal with an ASCII minus and no grouping, or `p/q` when there is no finite one."""
    top, bottom = value.numerator, value.denominator
    if bottom == 1:
        return str(top)
    rest, twos, fives = bottom, 0, 0
    while rest % 2 == 0:
        rest, twos = rest // 2, twos + 1
    while rest % 5 == 0:
        rest, fives = rest // 5, fives + 1
    if rest != 1:
        return f"{top}/{bottom}"
    places = max(twos, fives)
    digits = str(abs(top) * 10**places // bottom).rjust(places + 1, "0")
    return f"{'-' if top < 0 else ''}{digits[:-places]}.{digits[-places:]}"


def _numeral(text: str, match: re.Match[str], continental: Callable[[], bool]) -> Numeral:
    start, negative = _sign(text, match.start())
    value, form = _value(match, continental)
    if match.end("digits") == match.end():
        return Numeral(start, match.end(), -value if negative and value is not None else value)
    if value is not None and match["cents"]:
        value, form = value + Fraction(int(match["cents"]), 100), "two units"
    elif match["name"]:
        value, form = None, "name"
    elif value is not None and (scale := match["scale"] or match["short"]):
        value, form = value * _SCALES[scale.lower()], "scaled"
    elif match["percent"]:
        form = "percent"
    return Numeral(start, match.end(), -value if negative and value is not None else value, form)


def _sign(text: str, digits: int) -> tuple[int, bool]:
    """Where the numeral begins with its currency mark and sign, and whether it is negative."""
    low = max(0, digits - 14)
    start, negative = digits, False
    if text[low:digits].rstrip()[-1:] not in _MAY_LEAD:
        return start, negative
    # Both orders are written: -$45 and $-45.
    for pattern in (_MINUS, _CURRENCY, _MINUS):
        if start == low or text[start - 1].isalpha():
            break
        if (pattern is _CURRENCY or not negative) and (found := pattern.search(text, low, start)):
            negative = negative or pattern is _MINUS
            start = found.start(found.lastindex or 0)
    return start, negative


def _value(match: re.Match[str], continental: Callable[[], bool]) -> tuple[Fraction | None, str]:
    """The value before percent signs and scales, and the form."""
    if digits := match["digits"]:
        value = _plain_value(digits, continental)
        if value is None or match.end() == match.end("digits"):
            return value, ""
        return _extended(value, match)
    if clock := match["clock"]:
        hour, *rest = (int(part) for part in clock.split(":"))
        return (None if any(rest) else Fraction(hour)), "clock"
    if whole := match["mixed"]:
        if part := match["part"]:
            return int(whole) + Fraction(1, _PARTS[part]), "mixed"
        if vulgar := match["vulgar"]:
            return int(whole) + _VULGAR[vulgar], "mixed"
        over, under = int(match["over"]), int(match["under"])
        return (int(whole) + Fraction(over, under) if under else None), "mixed"
    if vulgar := match["vulgar1"]:
        return _VULGAR[vulgar], "fraction"
    if top := match["top"] or match["top1"]:
        bottom = int(match["bottom"] or match["bottom1"])
        return (int(match["whole"] or 0) + Fraction(int(top), bottom) if bottom else None), "fraction"
    return None, "ratio or date"


def _extended(value: Fraction, match: re.Match[str]) -> tuple[Fraction | None, str]:
    """What follows the digits of a plain number: a divisor, a power of ten, a power."""
    if divisor := match["divisor"]:
        return (value / int(divisor) if int(divisor) else None), "fraction"
    if exponent := match["e"] or match["ten"] or match["ten1"]:
        factor = _power(Fraction(10), exponent)
        return (value * factor if factor is not None else None), "power of ten"
    if exponent := match["power"] or match["power1"]:
        return _power(value, exponent), "power"
    return value, ""


def _power(base: Fraction, exponent: str) -> Fraction | None:
    exponent = exponent.translate(_SUPERSCRIPTS).replace("−", "-")
    if not re.fullmatch(r"[+-]?\d{1,4}", exponent):
        return None
    size = abs(int(exponent))
    if size > _MAX_EXPONENT or size * len(str(base)) > 4 * _MAX_EXPONENT or (not base and int(exponent) < 0):
        return None
    return Fraction(base ** int(exponent))


def _plain_value(digits: str, continental: Callable[[], bool]) -> Fraction | None:
    """1234 · 1,234.50 · 1.234,50 · 12 500 · 1'234 · 12,34,567 · 3,5 · .5"""
    if len(digits) > _MAX_DIGITS:
        return None
    if digits.isdecimal():
        return Fraction(int(digits))
    marks = [mark if len(mark) == 1 else "," for mark in _SEPARATOR.findall(digits)]
    groups = _SEPARATOR.split(digits)
    decimals = ""
    if _last_mark_is_decimal(marks, groups, continental):
        marks, groups, decimals = marks[:-1], groups[:-1], groups[-1]
    if len(set(marks)) > 1 or not _grouped(groups):
        return None
    return Fraction(int("".join(groups) + decimals or "0"), 10 ** len(decimals))


def _last_mark_is_decimal(marks: list[str], groups: list[str], continental: Callable[[], bool]) -> bool:
    last = marks[-1]
    if last not in ".," or marks.count(last) > 1:
        return False
    if len(marks) > 1:
        return True
    # One mark before three digits can group or part decimals: the language decides, but 0,125 groups nothing.
    if len(groups[1]) == 3 and 1 <= len(groups[0]) <= 3 and groups[0].strip("0"):
        return (last == ",") == continental()
    return True


def _grouped(groups: list[str]) -> bool:
    """Groups of three, or of two before a last one of three (Indian grouping)."""
    if len(groups) == 1:
        return True
    sizes = {len(group) for group in groups[1:-1]} or {3}
    return len(groups[-1]) == 3 and 1 <= len(groups[0]) <= 3 and sizes in ({3}, {2})


_TO_NINE = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
_TEENS = ["ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"]
_WORDS = {word: number for number, word in enumerate(_TO_NINE + _TEENS)}
_WORDS |= {"twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90}
_BIG = {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9}
_ANY_WORD = "|".join(sorted([*_WORDS, *_BIG], key=len, reverse=True))
_PART_WORD = "halves|half|(?:third|quarter|fourth|fifth|sixth|eighth|tenth)s?"
_WORD_NUMERAL = re.compile(
    rf"""\b(?P<sign>(?:minus|negative)\s+)?
    (?:(?P<dozen>a\s+dozen\b)
      |(?P<words>(?:an?\s+(?=(?:hundred|thousand|million|billion)\b))?
         (?:{_ANY_WORD})\b(?:(?:\s*-\s*|,?\s+and\s+|,?\s+)(?:{_ANY_WORD})\b)*)
       (?:\s+and\s+(?:a\s+|one\s+)(?P<and>{_PART_WORD})\b|[\s-]+(?P<of>{_PART_WORD})\b)?)""",
    re.VERBOSE | re.IGNORECASE,
)


def find_words(text: str, start: int, end: int) -> list[Numeral]:
    """All numerals written in English words (fifty-two, minus three, two thirds, two and a half) in text[start:end].

    Dollars and cents are one numeral.
    """
    found: list[Numeral] = []
    for match in _WORD_NUMERAL.finditer(text, start, end):
        numeral = _word_numeral(match)
        if found and numeral.value is not None and (whole := found[-1]).value is not None:
            small = _CENTS.match(text, numeral.end, end)
            if small and _AND_CENTS.fullmatch(text, whole.end, numeral.start):
                numeral = Numeral(whole.start, small.end(), whole.value + numeral.value / 100, "two units")
                found.pop()
        found.append(numeral)
    return found


_CENTS = re.compile(r"\s(?:cents?|pence)\b")
_AND_CENTS = re.compile(r"\s(?:dollars?|euros?|pounds?)(?:,?\sand|,)?\s", re.IGNORECASE)


def _word_numeral(match: re.Match[str]) -> Numeral:
    if match["dozen"]:
        return Numeral(match.start(), match.end(), Fraction(-12 if match["sign"] else 12), "words")
    words = [word for word in re.split(r"[\s,-]+", match["words"].lower()) if word not in ("and", "a", "an")]
    counted = _count(words) if len(words) <= 20 else None
    value = None if counted is None else Fraction(counted)
    if value is not None and (part := match["and"]):
        value += Fraction(1, _PARTS[part.lower()])
    elif value is not None and (part := match["of"]):
        value /= _PARTS[part.lower()]
    return Numeral(match.start(), match.end(), -value if match["sign"] and value is not None else value, "words")


def _count(words: list[str]) -> int | None:
    """The value of number words; None when they are several numbers in a row (five six)."""
    total, group, last = 0, 0, 1000
    for word in words:
        if word == "hundred":
            if group > 99:
                return None
            group, last = (group or 1) * 100, 100
        elif word in _BIG:
            if total and total % (1000 * _BIG[word]):
                return None
            total, group, last = total + (group or 1) * _BIG[word], 0, 1000
        else:
            number = _WORDS[word]
            # Twenty may be followed by one to nine, a hundred by anything smaller.
            if number >= last or (last < 100 and (number == 0 or last < 20)):
                return None
            group, last = group + number, number
    return total + group
