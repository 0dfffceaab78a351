"""Estimates with intervals. Everything here takes numbers and gives numbers; it knows nothing of runs.

Intervals are 95 % unless said. Cells of a sweep share items and seeds, so they are compared in pairs.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value and its interval; n is the number of items behind it."""

    value: float
    low: float
    high: float
    n: int

    @property
    def tells(self) -> bool:
        """True when the interval does not hold 0: for differences."""
        return not self.low <= 0.0 <= self.high


def mean(scores: Sequence[float], low: float = 0.0, high: float = 1.0, confidence: float = 0.95) -> Estimate:
    """The mean of item scores within [low, high].

    Scores that are all at one end or the other: Wilson's interval, which holds at small n and at 0 or 100 %. Others
    (means over agents): Student's t over the items, cut to the range. Raises ValueError without scores.
    """
    n = len(scores)
    if not n:
        raise ValueError("no scores to average")
    value = math.fsum(scores) / n
    spread = math.fsum((score - value) ** 2 for score in scores)
    if all(score in (low, high) for score in scores) or spread == 0.0 or n == 1:
        share = (value - low) / (high - low)
        below, above = _wilson(share, n, confidence)
        return Estimate(value, low + below * (high - low), low + above * (high - low), n)
    from scipy import stats

    half = float(stats.t.ppf((1 + confidence) / 2, n - 1)) * math.sqrt(spread / (n - 1) / n)
    return Estimate(value, max(low, value - half), min(high, value + half), n)


def _wilson(share: float, n: int, confidence: float) -> tuple[float, float]:
    from scipy import stats

    z = float(stats.norm.ppf((1 + confidence) / 2))
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    # At the ends the bound is exact; the sum of the two terms is not.
    low = 0.0 if share == 0.0 else max(0.0, middle - half)
    return low, 1.0 if share == 1.0 else min(1.0, middle + half)


def paired_difference(a: Sequence[float], b: Sequence[float], range: float = 1.0, confidence: float = 0.95) -> Estimate:
    """The mean of a - b over the same items, in the scores' unit.

    The interval is Agresti and Min's (2005) for matched pairs: Wald's after adding half an observation to each of the
    four cells of the table, which is two pairs in all: one without a difference, half a one at +range and half at
    -range. Written so, it serves scores between 0 and 1 too, and is never empty: 16 items without a difference are no
    proof of equality. value is the plain mean. Raises ValueError for unequal lengths or no items.
    """
    if len(a) != len(b):
        raise ValueError(f"paired scores need the same items: {len(a)} against {len(b)}")
    if not a:
        raise ValueError("no items to compare")
    from scipy import stats

    differences = [x - y for x, y in zip(a, b, strict=True)]
    n = len(differences)
    padded = n + 2
    middle = math.fsum(differences) / padded
    variance = (math.fsum(d * d for d in differences) + range * range) / padded - middle**2
    half = float(stats.norm.ppf((1 + confidence) / 2)) * math.sqrt(variance / padded)
    return Estimate(math.fsum(differences) / n, max(-range, middle - half), min(range, middle + half), n)
