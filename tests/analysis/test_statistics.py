"""Intervals at known values."""

import math

import pytest
from scipy import stats

from debate_local.analysis.statistics import mean, paired_difference


def test_the_mean_of_right_and_wrong_has_wilsons_interval() -> None:
    estimate = mean([1.0] * 7 + [0.0] * 9)
    wilson = stats.binomtest(7, 16).proportion_ci(method="wilson")
    assert estimate.value == 7 / 16
    assert (estimate.low, estimate.high) == pytest.approx((wilson.low, wilson.high))


def test_nothing_right_does_not_prove_that_nothing_can_be_right() -> None:
    estimate = mean([0.0] * 16)
    assert estimate.low == 0.0
    assert estimate.high == pytest.approx(0.1936, abs=1e-4)


def test_means_over_agents_have_students_interval() -> None:
    scores = [0.0, 1 / 3, 2 / 3, 1.0, 1 / 3]
    estimate = mean(scores)
    expected = stats.ttest_1samp(scores, 0.0).confidence_interval()
    assert (estimate.low, estimate.high) == pytest.approx((max(0, expected.low), min(1, expected.high)))


def test_a_scale_other_than_0_to_1_is_kept() -> None:
    estimate = mean([100.0, 0.0, 100.0, 100.0], low=0.0, high=100.0)
    assert estimate.value == 75.0
    assert 0.0 <= estimate.low < 75.0 < estimate.high <= 100.0


def test_a_paired_difference_has_agresti_and_mins_interval() -> None:
    # 53 right both, 8 only the first, 16 only the second, 9 neither: Wald's interval on counts with 0.5 added to each.
    a = [1.0] * 53 + [1.0] * 8 + [0.0] * 16 + [0.0] * 9
    b = [1.0] * 53 + [0.0] * 8 + [1.0] * 16 + [0.0] * 9
    n, only_a, only_b = 86 + 2, 8.5, 16.5
    middle = (only_a - only_b) / n
    half = stats.norm.ppf(0.975) * math.sqrt(only_a + only_b - (only_a - only_b) ** 2 / n) / n
    estimate = paired_difference(a, b)
    assert estimate.value == pytest.approx(-8 / 86)
    assert (estimate.low, estimate.high) == pytest.approx((middle - half, middle + half))


def test_equal_scores_on_few_items_are_no_proof_of_equality() -> None:
    estimate = paired_difference([1.0] * 16, [1.0] * 16)
    assert estimate.value == 0.0
    assert estimate.low < -0.05 and estimate.high > 0.05
    assert not estimate.tells


def test_a_large_difference_over_many_items_tells() -> None:
    assert paired_difference([1.0] * 90 + [0.0] * 10, [0.0] * 90 + [1.0] * 10).tells


@pytest.mark.parametrize(("a", "b"), [([], []), ([1.0], [1.0, 0.0])])
def test_scores_that_cannot_be_paired_are_refused(a: list[float], b: list[float]) -> None:
    with pytest.raises(ValueError, match="items"):
        paired_difference(a, b)


def test_no_scores_are_refused() -> None:
    with pytest.raises(ValueError, match="no scores"):
        mean([])
