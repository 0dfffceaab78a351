"""The confidence reader: graded replies, scales, and fuzz."""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from debate_local.tasks.answers.confidence import FORMAT, read_confidence
from tests.tasks.graded_cases import assert_read_as_expected, graded_cases

pytestmark = pytest.mark.slow


@pytest.mark.hazard("D09")
@pytest.mark.parametrize("case", graded_cases("confidence"))
def test_a_graded_reply_is_read_as_a_careful_person_reads_it(case: dict[str, Any]) -> None:
    assert_read_as_expected(case)


@pytest.mark.parametrize(
    ("reply", "value", "rule"),
    [
        ("Confidence: 0.85", "0.85", "confidence"),
        pytest.param("85%", "0.85", "bare (percent)", marks=pytest.mark.hazard("D09")),
        pytest.param("Confidence: 85", "0.85", "confidence (of 100)", marks=pytest.mark.hazard("D09")),
        pytest.param("Confidence: 0", "0", "confidence", marks=pytest.mark.hazard("D09")),
        ("Confidence: 1", "1", "confidence"),
        ("Confidence: 1%", "0.01", "confidence (percent)"),
        ("Confidence: 8/10", "0.8", "confidence (fraction)"),
        ("Confidence: $\\frac{7}{10}$", "0.7", "confidence (fraction)"),
        ("Konfidenz: 0,9", "0.9", "confidence"),
        ("Confidence: High (0.9)", "0.9", "confidence"),
        ("I am 90% sure.", "0.9", "sure (percent)"),
        ("I am eighty percent certain.", "0.8", "sure"),
        ("With 70% confidence I say that the rate is 15%.", "0.7", "sure (percent)"),
        ("My confidence that the answer is 42 is 0.75", "0.75", "confidence"),
        ("On a scale of 1 to 10, my confidence is 8.", "0.8", "confidence (scale)"),
        ('{"answer": "B", "confidence_level": "0.75"}', "0.75", "field"),
        ("Answer: 0.4\nConfidence: 0.9", "0.9", "confidence"),
        ("Answer: 50%\nConfidence: 90%", "0.9", "confidence (percent)"),
        ("Agent 1's confidence: 0.9\nMy confidence: 0.6", "0.6", "confidence"),
        ("Confidence: 0.6. Wait, that is too low. Confidence: 0.9", "0.9", "confidence"),
        ("<think>Confidence: 0.2</think>Confidence: 0.7", "0.7", "confidence"),
    ],
)
def test_a_confidence_is_read_in_any_scale_and_the_rule_names_the_scale(reply: str, value: str, rule: str) -> None:
    answer = read_confidence(reply)
    assert (answer.value, answer.key, answer.rule) == (value, value, rule)


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ("", "empty reply"),
        ("The answer is 0.5.", "no confidence is stated"),
        ("20% of 50 is 10.", "no confidence is stated"),
        pytest.param("Confidence: high", "stated, but not as a number", marks=pytest.mark.hazard("D09")),
        pytest.param("Confidence: 1.5", "out of range", marks=pytest.mark.hazard("D09")),
        pytest.param("Confidence: -1", "out of range", marks=pytest.mark.hazard("D09")),
        ("Confidence: minus 0.4", "out of range"),
        ("Confidence: 150%", "out of range"),
        ("Confidence: 5", "out of range"),
        ("Confidence: 3/0", "a division by zero"),
        ("Confidence: 0.7-0.9", "a range"),
        ("I am 75-80% confident.", "a range"),
        ("Confidence: NaN", "stated, but not as a number"),
        ('{"confidence": "high"}', "the field holds no number"),
    ],
)
def test_no_confidence_says_why(reply: str, why: str) -> None:
    answer = read_confidence(reply)
    assert answer.missing and answer.value is None
    assert answer.rule == why


def test_a_reply_in_the_asked_form_is_read_and_the_request_itself_is_not() -> None:
    assert "Confidence: " in FORMAT
    assert read_confidence(FORMAT).missing
    assert read_confidence("So it is 42.\nConfidence: 0.35").value == "0.35"


@given(st.integers(0, 100))
def test_a_percentage_and_its_share_are_one_confidence(percent: int) -> None:
    share = read_confidence(f"Confidence: {percent / 100}")
    assert share.key == read_confidence(f"Confidence: {percent}%").key == read_confidence(f"{percent}% sure").key
    assert Fraction(str(share.value)) == Fraction(percent, 100)


FRAGMENTS = [
    "confidence", ": ", "is ", "0.8", "85%", "85", "8/10", "-", "1.5", " ", "\n", "sure", "high", "(", ")", "{", "}",
    '"', "confidence_level", "of ", "to ", "percent ", "eighty ", "agent 1 ", "%", ".", ",", "1e5", "½", "٣", "<think>",
    "1" * 40,
    "\\frac{1}{2}", "scale of 1 to 10 ", "İ",
]  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.lists(st.sampled_from(FRAGMENTS), max_size=25).map("".join), st.text(max_size=200)))
def test_no_text_breaks_the_reader(reply: str) -> None:
    answer = read_confidence(reply)
    assert answer.rule
    assert (answer.key is None) == (answer.value is None) == (answer.span is None)
    if answer.value is not None:
        assert 0 <= Fraction(answer.value) <= 1


@pytest.mark.parametrize(
    "unit", ["confidence ", "90% sure ", "{", '{"confidence": ', "1", "per cent sure ", "confidence: 0.5 "]
)
def test_a_megabyte_of_one_mark_is_read_to_the_end(unit: str) -> None:
    assert read_confidence(unit * (1_000_000 // len(unit))).rule
