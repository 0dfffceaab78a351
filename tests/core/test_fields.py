"""Fields of a reply: strict JSON, what models make of it, and replies that are neither."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from debate_local.core.fields import read_fields

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("reply", "value", "rule"),
    [
        ('{"answer": "B"}', "B", "strict"),
        pytest.param('{"answer": true}', True, "strict", marks=pytest.mark.hazard("D08")),
        pytest.param('{"answer": "B"} }', "B", "embedded", marks=pytest.mark.hazard("D08")),
        pytest.param("{'answer': True}", True, "lenient", marks=pytest.mark.hazard("D08")),
        pytest.param('```json\n{"answer": "B"}\n```', "B", "embedded", marks=pytest.mark.hazard("D10")),
        ('{"note": "a fence: ```json {} ```", "answer": "B"}', "B", "strict"),
        ('Here it is: {"answer": 7} as asked.', 7, "embedded"),
        ("{'note': 'the dog's bowl', 'answer': '5'}", "5", "lenient"),
        ('{"answer": "9",}', "9", "lenient"),
        ('{"note": "see \\frac{1}{2} and \\$5", "answer": "0.5"}', "0.5", "lenient"),
        ('{"answer": "\\frac{1}{2}"}', "\\frac{1}{2}", "strict"),
        pytest.param('{"answer": "9", "note": "The ...', "9", "lenient", marks=pytest.mark.hazard("D10")),
        ('{"answer": 9, "no', 9, "lenient"),
        ("{answer: 9, note: all is well}", 9, "lenient"),
        ('{"note": "he said "no" twice", "answer": "B"}', "B", "lenient"),
        ('{"answer": "B" "note": "no comma"}', "B", "lenient"),
        ("{“answer”: “B”}", "B", "lenient"),
        ('{"answer": "B", // final\n "note": "x"}', "B", "lenient"),
        ('[{"answer": "C"}]', "C", "strict"),
        ('{"result": {"answer": "C"}}', "C", "strict"),
        ('"{\\"answer\\": \\"C\\"}"', "C", "strict"),
        ('{"Answer": "C"}', "C", "strict"),
        ('{"answer": "40"} No, that is wrong: {"answer": "42"}', "42", "embedded"),
        ('<think>{"answer": "40"}</think>{"answer": "42"}', "42", "strict"),
        pytest.param(
            '{"note": "they wrote {\\"answer\\": \\"99\\"}", "answer": "42"}',
            "42",
            "strict",
            marks=pytest.mark.hazard("D12"),
        ),
        ("Answer: 42\nNote: none", "42", "lines"),
        ('{"answer": ""}', "", "strict"),
        ('{"answer": 0}', 0, "strict"),
    ],
)
def test_a_field_is_read_out_of_what_models_call_json(reply: str, value: object, rule: str) -> None:
    found = read_fields(reply, ["answer"])
    assert found.values == {"answer": value}
    assert type(found.values["answer"]) is type(value)
    assert found.rule == rule


@pytest.mark.parametrize(
    ("reply", "rule"),
    [
        ("", "empty reply"),
        ("I support the first side.", "none of the fields"),
        ('{"answer": null}', "strict"),
        ('{"answer": "9', "none of the fields"),
        ('{"answer": 9', "none of the fields"),
        ('[{"answer": "1"}, {"answer": "2"}]', "strict"),
        ("__import__('os').system('touch /tmp/never')", "none of the fields"),
        ('<think>{"answer": "40"}', "nothing outside reasoning"),
    ],
)
def test_a_field_that_is_missing_null_or_cut_is_not_made_up(reply: str, rule: str) -> None:
    found = read_fields(reply, ["answer"])
    assert not found.values and found.rule == rule


def test_a_later_null_is_no_earlier_value() -> None:
    assert not read_fields('{"answer": "40"} but then {"answer": null}', ["answer"]).values


def test_names_are_matched_whatever_their_case_blanks_and_dashes() -> None:
    given = {"debate-answer": "1", "Supported side": "A", "CONFIDENCE_LEVEL": 0.5}
    found = read_fields(json.dumps(given), ["debate_answer", "Supported Side", "confidence level", "reason"])
    assert found.values == {"debate_answer": "1", "Supported Side": "A", "confidence level": 0.5}


def test_a_name_is_needed() -> None:
    with pytest.raises(ValueError, match="at least one field"):
        read_fields("{}", [])


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.one_of(st.booleans(), st.integers(-(10**9), 10**9), st.from_regex(r"[a-z ,.:'{}]{0,30}", fullmatch=True)),
    json_values,
)
def test_valid_json_is_never_repaired(value: object, other: object) -> None:
    written = json.dumps({"other": {"x": other}, "answer": value})
    found = read_fields(written, ["answer"])
    assert found.values == {"answer": value} and found.rule == "strict"
    assert read_fields(f"So: {written} That is all.", ["answer"]).values == {"answer": value}


FRAGMENTS = [
    "{", "}", "[", "]", '"', "'", "\\", ":", ",", "answer", '"answer"', "debate_answer", "42", "true", "null", " ",
    "\n",
    "```json", "```", "“", "”", "<think>", "</think>", "//", "e5", "-", "NaN", "\\u00", "\ud800", "Supported Side",
]  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(st.one_of(st.lists(st.sampled_from(FRAGMENTS), max_size=40).map("".join), st.text(max_size=200)))
def test_no_text_breaks_the_reader(reply: str) -> None:
    assert set(read_fields(reply, ["answer", "debate_answer"]).values) <= {"answer", "debate_answer"}


MARKS = ["{", "[{", '{"a": ', '{"answer": "', "{'a':'b',", '"', "\\", "answer: ", '{"answer": "1"} ']


@pytest.mark.parametrize("unit", MARKS)
def test_a_megabyte_of_one_mark_is_read_to_the_end(unit: str) -> None:
    assert read_fields(unit * (1_000_000 // len(unit)), ["answer"]).rule
