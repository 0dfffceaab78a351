"""A judge's verdict: what decides, what does not, and which side it names. Run: pytest tests/core/test_verdict.py"""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from debate_local.core.verdict import ASK_ANSWER, ask_preference, named_side, read_verdict, schema_of
from tests.core.test_fields import FRAGMENTS

SIDES = ("affirmative", "negative", "alternative")


def reply(**fields: object) -> str:
    names = {"preference": "Whether there is a preference", "side": "Supported Side", "reason": "Reason"}
    return json.dumps({names.get(name, "debate_answer"): value for name, value in fields.items()})


def test_a_whole_verdict_is_read() -> None:
    verdict = read_verdict(reply(preference="Yes", side="Negative", reason="It adds up.", answer="42"), SIDES)
    assert (verdict.side, verdict.answer, verdict.reason) == ("negative", "42", "It adds up.")
    assert (verdict.rule, verdict.undecided, verdict.readable) == ("strict", "", True)


@pytest.mark.hazard("D10")
def test_a_verdict_cut_off_in_its_reason_has_decided_and_one_cut_off_in_its_answer_has_not() -> None:
    whole = read_verdict('{"Supported Side": "Affirmative", "debate_answer": "9", "Reason": "The ...', SIDES)
    assert (whole.side, whole.answer, whole.rule) == ("affirmative", "9", "lenient")
    cut = read_verdict('{"Reason": "shown", "Supported Side": "Affirmative", "debate_answer": "9', SIDES)
    assert (cut.answer, cut.undecided, cut.side) == ("", "no answer is given", "affirmative")


def test_an_answer_without_a_word_on_sides_decides() -> None:
    verdict = read_verdict(reply(reason="-", answer=42), SIDES)
    assert (verdict.answer, verdict.side, verdict.undecided) == ("42", "", "")


@pytest.mark.hazard("D11")
@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"side": "Both", "answer": "42"}, "not one side"),
        ({"side": "Affirmative/Negative", "answer": "42"}, "not one side"),
        ({"side": "affirmative and negative", "answer": "42"}, "not one side"),
        ({"side": "Neither", "answer": "42"}, "not one side"),
        ({"side": "", "answer": "42"}, "not one side"),
        ({"side": "the moderator", "answer": "42"}, "not one side"),
        ({"side": 0, "answer": "42"}, "not one side"),
        ({"side": 4, "answer": "42"}, "not one side"),
        ({"side": True, "answer": "42"}, "not one side"),
        ({"side": ["Affirmative", "Negative"], "answer": "42"}, "not one side"),
        ({"side": "not the affirmative", "answer": "42"}, "not one side"),
        ({"preference": "No", "side": "Affirmative", "answer": "42"}, "no preference"),
        ({"preference": False, "answer": "42"}, "no preference"),
        ({"preference": "Yes", "side": "Affirmative"}, "no answer is given"),
        ({"preference": "Yes", "side": "Affirmative", "answer": ""}, "empty"),
        ({"preference": "Yes", "side": "Affirmative", "answer": "N/A"}, "empty"),
        ({"answer": "\\text{none}"}, "empty"),
        ({"answer": ["42", "40"]}, "several values"),
        ({"answer": {"value": 42}}, "an object"),
    ],
)
def test_what_speaks_against_itself_does_not_decide(fields: dict[str, object], why: str) -> None:
    verdict = read_verdict(reply(**fields), SIDES)
    assert verdict.answer == "" and verdict.undecided == why
    # What decides nothing was read all the same; only a verdict that lacks its answer may be asked for again.
    assert verdict.readable == (why != "no answer is given")


def test_no_preference_needs_no_answer() -> None:
    assert read_verdict(reply(preference="No", reason="Too early."), SIDES).readable


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "empty reply"),
        ("The affirmative side wins. The answer is 42.", "none of the fields"),
        ('{"Reason": "no answer field"}', "none of the fields"),
        ("__import__('os').system('touch /tmp/never')", "none of the fields"),
        ('<think>{"debate_answer": "40"}', "nothing outside reasoning"),
    ],
)
def test_a_reply_without_the_fields_is_unreadable_and_says_why(text: str, rule: str) -> None:
    verdict = read_verdict(text, SIDES)
    assert not verdict.readable and verdict.undecided == verdict.rule == rule


@pytest.mark.parametrize(("number", "side"), [(1, "affirmative"), ("2", "negative"), ("Debater #3", "alternative")])
def test_a_number_from_1_names_a_side(number: object, side: str) -> None:
    assert read_verdict(reply(side=number, answer="42"), SIDES).side == side


@pytest.mark.hazard("D21")
@pytest.mark.parametrize(
    ("text", "side"),
    [
        ("The concrete proposal of con wins", "con"),
        ("Pro wins, for its proposal is concrete.", "pro"),
        ("I support con; the case of pro is weak.", "con"),
        ("Pro", "pro"),
        ("the PRO side", "pro"),
        ("The proposal convinces me.", None),
        ("Pro and con are equally strong.", None),
        ("pro and con", None),
        ("Does con win?", "con"),
        ("Does pro win? I support con.", "con"),
        ("con rather than pro", "con"),
        ("", None),
    ],
)
def test_a_side_is_named_by_a_whole_word(text: str, side: str | None) -> None:
    assert named_side(text, ("pro", "con")) == side
    assert (read_verdict(reply(side=text, answer="42"), ("pro", "con")).side or None) == side


def test_where_the_sides_are_not_known_any_name_is_one() -> None:
    assert read_verdict(reply(side="Team A", answer="42")).answer == "42"
    assert read_verdict(reply(side="Both", answer="42")).undecided == "not one side"


def test_what_is_asked_for_is_what_is_read_and_what_the_schema_allows() -> None:
    for keys, asked in ((schema_of(SIDES)["required"], ask_preference(SIDES)), (schema_of()["required"], ASK_ANSWER)):
        assert all(f'"{key}"' in asked for key in keys)
    assert all(f'"{side.capitalize()}"' in ask_preference(SIDES) for side in SIDES)
    sides = schema_of(SIDES)["properties"]["Supported Side"]["enum"]
    assert [read_verdict(reply(side=side, answer="1"), SIDES).side for side in sides] == [*SIDES, ""]


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.lists(st.sampled_from([*FRAGMENTS, *SIDES]), max_size=40).map("".join), st.text(max_size=200)))
def test_no_text_breaks_the_reader_and_a_verdict_decides_or_says_why_not(text: str) -> None:
    verdict = read_verdict(text, SIDES)
    assert bool(verdict.answer) != bool(verdict.undecided)
    assert verdict.side in ("", *SIDES)
