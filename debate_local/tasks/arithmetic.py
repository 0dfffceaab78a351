"""Arithmetic: a generated expression of integers, say 3+14*5+9-21*8. No file, no download.

Source: Du et al. 2023 (arXiv 2305.14325), who ask for a+b*c+d-e*f. Released code: integers 0..29, repeats allowed (the
defaults here, preset `arithmetic_du2023`); text: six different two-digit numbers (preset `arithmetic_du2023_text`).
One-digit sums: operands=2, operators="+", low=1, high=9.
"""

import random

from debate_local.core.task import Task
from debate_local.tasks.answers.readers import NumberReader
from debate_local.tasks.benchmark import Draft, build
from debate_local.tasks.rows import Loaded, Origin, facts, item_ids

ORIGIN = Origin(
    task="arithmetic",
    title="",
    repository="",
    licence="",
    layouts=(),
    sizes={},
    papers=("2305.14325",),
    download="",
)


def arithmetic(
    items: int = 100,
    operands: int = 6,
    low: int = 0,
    high: int = 29,
    operators: str = "+*+-*",
    distinct: bool = False,
    seed: int = 0,
) -> Task:
    """Generate `items` expressions of `operands` integers from low to high (both included).

    operators: the signs between them, in order, of + - *; multiplication comes first. distinct: no integer twice in
    one expression. seed: which expressions; items=32 begins with those of items=16. Raises ValueError for options
    that do not fit together.
    """
    _check(items, operands, low, high, operators, distinct)
    expressions = [_expression(seed, number, operands, low, high, operators, distinct) for number in range(items)]
    ids = item_ids([{"expression": told} for told, _ in expressions], ["expression"])
    drafts = [Draft(id, f"What is {told}?", str(value)) for id, (told, value) in zip(ids, expressions, strict=True)]
    loaded = Loaded([], {"generated": f"integers {low}..{high} joined by {operators}, seed {seed}", **facts(ORIGIN)})
    task = build(ORIGIN, loaded, drafts, NumberReader(), PROMPT)
    # Expressions are drawn: that one comes twice is as it should be.
    task.oddities = ()
    return task


def _check(items: int, operands: int, low: int, high: int, operators: str, distinct: bool) -> None:
    if items < 1:
        raise ValueError(f"task.items must be at least 1, got {items}")
    if operands < 2:
        raise ValueError(f"task.operands must be at least 2, got {operands}")
    if unknown := sorted(set(operators) - set("+-*")):
        raise ValueError(f"task.operators may hold + - *, got {operators!r} with {' '.join(unknown)}")
    if len(operators) != operands - 1:
        raise ValueError(
            f"task.operators={operators!r} joins {len(operators) + 1} operands, but task.operands is {operands}: "
            f"give {operands - 1} operators or operands={len(operators) + 1}"
        )
    if low > high:
        raise ValueError(f"task.low must not be above task.high, got {low} and {high}")
    if distinct and high - low + 1 < operands:
        raise ValueError(
            f"task.distinct needs {operands} different integers, but {low}..{high} holds {high - low + 1}: "
            f"widen the range or set distinct=false"
        )


def _expression(
    seed: int, number: int, operands: int, low: int, high: int, operators: str, distinct: bool
) -> tuple[str, int]:
    """The expression with this number, and its value. Each has its own generator: it does not depend on the others."""
    generator = random.Random(f"arithmetic {seed} {number}")
    if distinct:
        values = generator.sample(range(low, high + 1), operands)
    else:
        values = [generator.randint(low, high) for _ in range(operands)]
    text = _shown(values[0]) + "".join(sign + _shown(value) for sign, value in zip(operators, values[1:], strict=True))
    return text, _value(values, operators)


def _shown(value: int) -> str:
    return str(value) if value >= 0 else f"({value})"


def _value(values: list[int], operators: str) -> int:
    """Products first, then sums from left to right. Model text and `eval` play no part."""
    total, term = 0, values[0]
    for sign, value in zip(operators, values[1:], strict=True):
        if sign == "*":
            term *= value
        else:
            total, term = total + term, value if sign == "+" else -value
    return total + term


PROMPT = "{question} {answer_format}"
