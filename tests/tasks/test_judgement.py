"""Judgements on graded cases, where no task is known. Run: pytest tests/tasks/test_judgement.py"""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from debate_local.tasks.answers.judgement import read_judgement, same_judgement
from tests.core.test_fields import FRAGMENTS, MARKS
from tests.tasks.graded_cases import assert_read_as_expected, graded_cases

pytestmark = pytest.mark.slow


@pytest.mark.hazard("D10")
@pytest.mark.parametrize("case", graded_cases("judge_json"))
def test_a_graded_judgement_is_read_as_a_careful_person_reads_it(case: dict[str, Any]) -> None:
    assert_read_as_expected(case)


@pytest.mark.hazard("D11")
@pytest.mark.parametrize(
    "reply",
    [
        '{"Supported Side": "Both", "debate_answer": "42 and 40"}',
        '{"Supported Side": "Affirmative/Negative", "debate_answer": "42"}',
        '{"Whether there is a preference": "No", "Supported Side": "", "debate_answer": "42"}',
        '{"debate_answer": "42 or 40"}',
        '{"debate_answer": "A and B"}',
        '{"debate_answer": ["A", "B"]}',
        '{"debate_answer": ""}',
        '{"debate_answer": "neither"}',
        '{"debate_answer": "I cannot decide"}',
        '{"Reason": "no answer field"}',
        "The affirmative side is right.",
    ],
)
def test_both_sides_no_preference_and_two_values_are_no_decision(reply: str) -> None:
    answer = read_judgement(reply)
    assert answer.missing and answer.rule.startswith("no decision")


@pytest.mark.parametrize(
    ("given", "value"),
    [
        ("The answer is 42 apples.", "42"),
        ("$1,234.50", "1234.5"),
        ("\\text{B}", "B"),
        ("(b)", "B"),
        ("B) the second", "B"),
        ("The answer is (C).", "C"),
        ("Yes, it does.", "yes"),
        ("no", "no"),
        ("Marie Curie", "Marie Curie"),
        (42, "42"),
        (True, "true"),
        (["42"], "42"),
    ],
)
def test_the_decision_is_taken_out_of_a_sentence(given: object, value: str) -> None:
    answer = read_judgement(json.dumps({"debate_answer": given}))
    assert answer.value == value
    assert same_judgement(answer, value.upper())


def test_a_number_is_compared_as_a_number() -> None:
    assert same_judgement(read_judgement('{"debate_answer": "18.0"}'), "18")
    assert not same_judgement(read_judgement('{"debate_answer": "18.5"}'), "18")
    assert not same_judgement(read_judgement("nothing"), "nothing")


@settings(max_examples=400, deadline=None)
@given(st.one_of(st.lists(st.sampled_from(FRAGMENTS), max_size=40).map("".join), st.text(max_size=200)))
def test_no_text_breaks_the_reader(reply: str) -> None:
    answer = read_judgement(reply)
    assert (answer.key is None) == (answer.value is None) == (answer.span is None)


@pytest.mark.parametrize("unit", MARKS)
def test_a_megabyte_of_one_mark_is_read_to_the_end(unit: str) -> None:
    assert read_judgement(unit * (1_000_000 // len(unit))).rule
