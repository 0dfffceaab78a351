"""Whether two formulas mean the same, and whether an answer means a gold. Knows nothing of replies and of processes."""

import re
from collections.abc import Callable
from fractions import Fraction

from debate_local.tasks.answers.formula import EQUALS, PLAIN_NUMBER, Algebra, Formula, as_text, understood
from debate_local.tasks.answers.formula_text import split_outside

Same = Callable[[str, str], bool]


def same_meaning(a: Formula, b: Formula, same: Same) -> bool:
    """Do both mean the same? same: asked, of two spellings, where the keys cannot tell."""
    if a.key == b.key:
        return True
    return not (a.decided and b.decided) and same(a.text, b.text)


def means_gold(answer: Formula, gold: Formula, algebra: Algebra, same: Same) -> bool:
    """Does an answer mean the gold, when what goes without saying may be left out on either side?

    That is: a percent sign, the base of a numeral, the brackets of a tuple or of a set, the names of coordinates.
    """
    if answer.key == gold.key:
        return True
    # `no` may be a word or a product.
    if _LETTERS_ONLY.fullmatch(gold.text) and as_text(answer.text) == as_text(gold.text):
        return True
    if answer.unit != gold.unit and "percent" in (answer.unit, gold.unit):
        return _value(answer) is not None and _value(answer) == _value(gold)
    if "_" in gold.key and gold.key.partition("_")[0] == answer.key:
        return True
    if (value := _value_of_equation(answer)) is not None and not EQUALS.search(gold.text):
        said = understood(value, algebra)
        if said is not None and said.key == gold.key:
            return True
    if _coordinates(gold.key) == _coordinates(answer.key) is not None:
        return True
    for one, other in ((answer, gold), (gold, answer)):
        if one.key == "{" + other.key + "}":
            return True
        if one.key[:1] == "(" and other.key[:1] == "{" and "{" not in other.text:
            ordered = understood(f"({other.text})", algebra)
            return ordered is not None and ordered.key == one.key
    return same_meaning(answer, gold, same)


_LETTERS_ONLY = re.compile(r"[A-Za-z\s]+|\\text\{[A-Za-z\s]+\}")


def _value(formula: Formula) -> Fraction | None:
    if not PLAIN_NUMBER.fullmatch(formula.key):
        return None
    return Fraction(formula.key) / (100 if formula.unit == "percent" else 1)


_TO_SOLVE = re.compile(r"-?(?:\d+|\\frac\{\d+\}\{\d+\})\s*[a-zA-Z]")


def _value_of_equation(formula: Formula) -> str | None:
    """The right side of `a + b = 5`, which says what a + b is; `2x = 8` says what 2x is, and is yet to be solved."""
    parts = [part for _, part in split_outside(formula.text, EQUALS)]
    return parts[-1] if len(parts) > 1 and parts[-1] not in ("", "0") and not _TO_SOLVE.fullmatch(parts[0]) else None


def _coordinates(key: str) -> str | None:
    """`1, 2` of (1, 2), of the column [1; 2] and of x = 1, y = 2; None of what has no coordinates."""
    if re.fullmatch(r"\([^()\[\]{}]*\)|\[[^()\[\]{},]*\]|\[[^()\[\]{};]*,[^()\[\]{};]*\]", key):
        return key[1:-1].replace(";", ",") if key[0] == "(" or ";" in key else None
    named = [part.partition(" = ") for part in key.split(", ")]
    return ", ".join(value for _, _, value in named) if len(named) > 1 and all(v for _, _, v in named) else None
