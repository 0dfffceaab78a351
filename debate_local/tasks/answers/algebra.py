"""What algebra says of one LaTeX expression: a canonical form, and whether two mean the same. Runs in a worker process.

Model text goes through the grammar of latex2sympy, never through `eval`. Decimals are exact: 0.6667 is no 2/3. Knows
nothing of tuples, sets and units (`formula.py`), of replies, or of who asks (`algebra_pool.py`).
"""

import contextlib
import json
import logging
import os
import re
import signal
import sys
from collections.abc import Callable
from fractions import Fraction
from multiprocessing.connection import Connection
from typing import Any

from debate_local.core.chat import digest
from debate_local.tasks.answers.numerals import canonical

# A reading gets this much of the processor's time. Wall-clock time would let a busy machine change what is read.
CPU_SECONDS = 2.0
_MEMORY_BYTES = 3 * 2**30
_ORPHAN_SECONDS = 5.0
# Digits computed, and digits shown: equal values agree in the shown ones.
_COMPUTED, _SHOWN = 40, 20
# Functions are compared by their values at two places with nothing special about them, on both sides of zero.
_PLACES = ("positive", "negative")


def simplified(latex: str) -> str | None:
    """The canonical form of an expression, equation or inequality; None when there is none to be had.

    Rational values as by `numerals.canonical`; other constants as `~` and their first 20 digits; rational functions in
    lowest terms; other functions as their values at two fixed places.
    """
    import sympy

    expression = _parsed(latex)
    if isinstance(expression, sympy.core.relational.Relational):
        return _relation(expression)
    if not isinstance(expression, sympy.Expr):
        return None
    expression = expression.doit()
    return _function(expression) if expression.free_symbols else _constant(expression)


def same(one: str, other: str) -> bool:
    """Does math-verify find the two equal, whichever is taken for the reference?"""
    from math_verify import verify

    a, b = _parsed(one), _parsed(other)
    if a is None or b is None:
        return False
    return any(verify(x, y, timeout_seconds=None) for x, y in ((a, b), (b, a)))


_DECIMAL = re.compile(r"(\d*)\.(\d+)")


def _exact(latex: str) -> str:
    """Decimals as fractions: sympy's own floats are rounded."""
    return _DECIMAL.sub(lambda m: rf"(\frac{{{int(m[1] + m[2])}}}{{{10 ** len(m[2])}}})", latex)


def _parsed(latex: str) -> Any:
    """The expression, i being the imaginary unit where nothing else is unknown; None when it does not parse."""
    import sympy
    from latex2sympy2_extended import NormalizationConfig
    from math_verify import LatexExtractionConfig, parse

    plain = NormalizationConfig(basic_latex=True, malformed_operators=True, nits=False, units=False, boxed="none")
    target = LatexExtractionConfig(boxed_match_priority=-1, normalization_config=plain)
    found = parse(f"${_exact(latex)}$", [target], fallback_mode="no_fallback", parsing_timeout=None)
    if not found or not isinstance(found[0], sympy.Basic | sympy.MatrixBase):
        return None
    expression, symbols = found[0], found[0].free_symbols
    if len(symbols) == 1 and (symbol := next(iter(symbols))).name == "i":
        expression = expression.subs(symbol, sympy.I)
    # The cube root of -8 is -2 in a school book, not the principal value.
    return expression.replace(_is_odd_root_of_a_negative, lambda root: -((-root.base) ** root.exp))


def _is_odd_root_of_a_negative(expression: Any) -> bool:
    if not expression.is_Pow or not expression.exp.is_Rational or not expression.base.is_negative:
        return False
    return bool(expression.exp.p % 2 and expression.exp.q % 2 and expression.exp.q > 1)


def _constant(expression: Any) -> str | None:
    import sympy

    if expression.is_Rational:
        return canonical(Fraction(int(expression.p), int(expression.q)))
    if expression in (sympy.oo, -sympy.oo):
        return str(expression)
    if expression.has(sympy.nan, sympy.zoo, sympy.oo, -sympy.oo):
        return None
    real, imaginary = (_digits(part) for part in expression.as_real_imag())
    if real is None or imaginary is None:
        return None
    if imaginary == "0":
        return real
    return f"{imaginary} i" if real == "0" else f"{real} + {imaginary} i"


def _digits(number: Any) -> str | None:
    """A real number: exact where it is rational, else its first digits."""
    import sympy

    value = sympy.N(number, _COMPUTED, maxn=400)
    if not value.is_Float and not value.is_Rational:
        return None
    # Precision 1 means that nothing but zeros was found.
    if value == 0 or getattr(value, "_prec", 0) == 1:
        return "0"
    whole = Fraction(str(value)) if abs(sympy.log(abs(value), 10).evalf(5)) < 300 else None
    if whole is not None:
        near = whole.limit_denominator(10**6)
        if near and abs(whole / near - 1) < Fraction(1, 10 ** (_COMPUTED - 6)):
            return canonical(near)
    return "~" + str(sympy.Float(value, _SHOWN))


def _function(expression: Any) -> str | None:
    import sympy

    symbols = sorted(expression.free_symbols, key=str)
    if expression.is_rational_function(*symbols):
        # Without assumptions: with them, sympy prints and orders the same.
        reduced = sympy.cancel(sympy.together(expression.subs({s: sympy.Symbol(s.name) for s in symbols})))
        if not reduced.free_symbols:
            return _constant(reduced)
        if not reduced.has(sympy.I) and all(n.is_Rational for n in reduced.atoms(sympy.Number, sympy.NumberSymbol)):
            return str(reduced)
    values = [_value_at(expression, symbols, place) for place in _PLACES]
    if None in values:
        return None
    return values[0] if values[0] == values[1] else f"a function with the values {values[0]} and {values[1]}"


def _value_at(expression: Any, symbols: list[Any], place: str) -> str | None:
    """The value where each symbol has a number of its own, which depends on nothing but its name and the place."""
    import sympy

    sign = 1 if place == _PLACES[0] else -1
    at = {
        s: sign * (sympy.Rational(1, 3) + sympy.Rational(int(digest([place, s.name])[:8], 16), 2**32)) for s in symbols
    }
    return _constant(expression.subs(at).doit())


def _relation(relation: Any) -> str | None:
    """`polynomial = 0` (or < 0, ...), its leading coefficient positive and its coefficients without common factor."""
    import sympy

    signs = {"Equality": "=", "Unequality": "!=", "StrictLessThan": "<", "LessThan": "<="}
    signs |= {"StrictGreaterThan": ">", "GreaterThan": ">="}
    sign = signs.get(type(relation).__name__)
    difference = sympy.expand((relation.lhs - relation.rhs).doit())
    symbols = sorted(difference.free_symbols, key=str)
    if sign is None or not symbols or not difference.is_polynomial(*symbols):
        return None
    plain = {symbol: sympy.Symbol(symbol.name) for symbol in symbols}
    polynomial = sympy.Poly(difference.subs(plain), *plain.values())
    if not polynomial.domain.is_QQ and not polynomial.domain.is_ZZ:
        return None
    polynomial = polynomial.clear_denoms(convert=True)[1].primitive()[1]
    if polynomial.LC() < 0:
        polynomial = -polynomial
        sign = sign.translate(str.maketrans("<>", "><"))
    return f"{polynomial.as_expr()} {sign} 0"


_OPERATIONS: dict[str, Callable[..., str | bool | None]] = {"simplified": simplified, "same": same}


def serve(descriptor: int) -> None:
    """Answer the requests that come through a pipe's end, until its other end is closed.

    A request is JSON: the operation's name and its arguments; the reply is JSON: its result, null where it failed. The
    first message says that all is loaded. A reading that takes too long ends the process.
    """
    _restrain()
    parent = os.getppid()
    with contextlib.closing(Connection(descriptor)) as pipe:
        pipe.send_bytes(_warm())
        while True:
            # A copy of the other end may live on in a process that forked from the parent.
            while not pipe.poll(_ORPHAN_SECONDS):
                if os.getppid() != parent:
                    return
            try:
                name, *arguments = json.loads(pipe.recv_bytes())
                pipe.send_bytes(json.dumps(_timed(name, arguments)).encode())
            except (EOFError, OSError):
                return


def _restrain() -> None:
    """Ctrl-C is the parent's affair, memory has a limit, and libraries keep quiet."""
    import resource

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    logging.disable(logging.CRITICAL)
    sys.set_int_max_str_digits(100_000)


def _warm() -> bytes:
    """Load what a reading needs, which must not count as its time."""
    simplified(r"\frac{x^2}{2} + \sqrt{3}")
    return b"ready"


def _timed(name: str, arguments: list[str]) -> str | bool | None:
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    try:
        return _OPERATIONS[name](*arguments)
    except Exception:
        # Grammar and algebra fail in a hundred ways on what is no mathematics.
        return None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
