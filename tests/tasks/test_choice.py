"""The choice reader: rules, spans, options of every form, real options where they are at hand, and fuzz."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from debate_local.tasks.answers.choice import FORMAT, LETTERS, read_choice, same_choice

pytestmark = pytest.mark.slow

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
ORGANS = ["Heart", "Lung", "Liver", "Kidney"]


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("Kidney", "whole (text)"),
        ("\\boxed{D}", "boxed"),
        ("It filters blood.\n#### D", "hash"),
        ("<answer>D</answer>", "tag"),
        ("Final answer: (D)", "final answer"),
        ("The answer is D, the others do not filter.", "answer"),
        ("The answer is the kidney.", "answer (text)"),
        ("I choose D.", "choice"),
        ("The best option is D.", "choice"),
        ("The answer is A. No, wait, it must be D.", "correction"),
        ("D. It filters blood.", "opening"),
        ("Only D is correct.", "lenient: verdict"),
        ("It filters blood, so D.", "lenient: conclusion"),
        ("Blood is filtered there (D).", "lenient: letter"),
        ("Blood flows through the kidney.", "lenient: option (text)"),
    ],
)
def test_the_rule_that_matched_is_named(text: str, rule: str) -> None:
    answer = read_choice(text, ORGANS)
    assert (answer.value, answer.key, answer.rule) == ("D", "D", rule)
    assert answer.span is not None
    assert text[slice(*answer.span)].strip("()*[]}.").lower() in ("d", "kidney")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "empty reply"),
        ("<think>so D", "nothing outside reasoning, question and template tokens"),
        ("A or B", "several candidates"),
        ("Answer: E", "a letter beyond the options"),
        ("Answer: A) Lung", "letter and text disagree"),
        ("I cannot answer that.", "a refusal or a question back"),
        ("Error: request timed out", "an error message"),
        ("The answer is \\boxed{A", "cut off in a box"),
        ("\\boxed{A}, \\boxed{B}", "several boxes in one list"),
        ("The answer is D. No, that is wrong.", "withdrawn"),
        ("Hello.", "no option"),
    ],
)
def test_no_answer_says_why(text: str, why: str) -> None:
    answer = read_choice(text, ORGANS)
    assert (answer.value, answer.key, answer.span, answer.rule) == (None, None, None, why)


def test_a_value_that_no_option_has_is_no_answer() -> None:
    assert read_choice("The sum is 13.", ["12", "14"]).rule == "no option has this value"
    assert read_choice("The sum is 13.", ["12", "14", "None of these"]).missing


def test_two_letters_of_an_option_that_names_both_are_one_answer() -> None:
    options = ["It expands", "It cools", "Both A and B", "Neither A nor B"]
    assert read_choice("Both A and B", options).value == "C"
    assert read_choice("The answer is both A and B.", options).value == "C"
    assert read_choice("Both A and B are correct.", ORGANS).missing


def test_options_that_differ_in_capitals_only_are_told_apart() -> None:
    genes = ["AA", "Aa", "aa"]
    assert [read_choice(f"The answer is {gene}.", genes).value for gene in genes] == ["A", "B", "C"]


@pytest.mark.parametrize(
    ("text", "options", "letter"),
    [
        ("So it takes 90 minutes.", ["60 min", "90 min", "90 h"], "B"),
        ("He loses 20 %.", ["20% gain", "25% gain", "15% loss"], None),
        ("The loss is 15 per cent.", ["20% gain", "25% gain", "15% loss"], "C"),
        ("She gets $1,250.00", ["$1250", "$1350"], "A"),
        ("It costs 75 cents.", ["$7.50", "$0.75"], "B"),
        ("x = 1/2", ["\\frac{1}{2}", "2"], "A"),
        ("The ratio is 2 : 3", ["2:3", "3:2"], "A"),
        ("The interval is [-1,1].", ["(-1,1)", "[-1,1]"], "B"),
        ("It cannot be determined.", ["4", "Cannot be determined"], "B"),
        ("All of these.", ["red", "blue", "All of the above"], "C"),
        ("No, it could not.", ["Yes", "No"], "B"),
    ],
)
def test_a_value_or_wording_of_an_option_is_read_with_its_unit(
    text: str, options: list[str], letter: str | None
) -> None:
    assert read_choice(text, options).value == letter


def test_the_question_repeated_with_its_options_is_no_answer() -> None:
    question = "Which organ filters blood?"
    listed = "\n".join(f"({letter}) {text}" for letter, text in zip(LETTERS, ORGANS, strict=False))
    assert read_choice(f"{question}\n{listed}", ORGANS, question).missing
    assert read_choice(f"{question}\n{listed}\n\nD", ORGANS, question).value == "D"
    assert read_choice(f"{listed}\nThe answer is (D).", ORGANS, question).value == "D"


def test_the_form_itself_is_no_answer_and_a_reply_in_it_is_read() -> None:
    assert read_choice(FORMAT, ORGANS).missing
    assert read_choice(f"I will follow this: {FORMAT}", ORGANS).missing
    assert read_choice("It filters blood: the answer is (D).", ORGANS).rule == "answer"


def test_the_same_letter_is_the_same_choice_and_no_answer_is_none() -> None:
    assert same_choice(read_choice("D", ORGANS), read_choice("It is the kidney.", ORGANS))
    assert not same_choice(read_choice("C", ORGANS), read_choice("D", ORGANS))
    assert not same_choice(read_choice("?", ORGANS), read_choice("?", ORGANS))


@pytest.mark.parametrize("choices", [[], ["x"] * 27])
def test_a_question_has_between_1_and_26_options(choices: list[str]) -> None:
    with pytest.raises(ValueError, match=f"1 to 26 options, got {len(choices)}"):
        read_choice("A", choices)


@given(st.integers(2, 26), st.data())
def test_every_letter_is_read_in_every_dress(count: int, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, count - 1))
    options = [f"choice number {number}" for number in range(count)]
    letter = LETTERS[place]
    dresses = ["({})", "**{}**", "[{}]", "\\text{{{}}}", "\\boxed{{{}}}", "`{}`", '"{}"', "{}.", "({}) {t}", "{}: {t}"]
    dress = data.draw(st.sampled_from(dresses)).format(letter, t=options[place])
    for text in (dress, f"The answer is {dress}", f"Answer: {dress}", f"Answer:\n{dress}", f"Not sure. Option {dress}"):
        assert read_choice(text, options).value == letter, text


FRAGMENTS = [
    "the answer is ", "Answer: ", "\\boxed{", "}", "A", "B", "(C)", "D)", "e", "Z", " ", "\n\n", "?", ".", ",", "and ",
    "or ", "not ", "so ", "wait ", "no, ", "that is wrong", "I choose ", "option ", "is correct", "agent 1 ",
    "the others ",
    "Heart", "12", "12 m", "none of these", "the ", "Question: ", "<think>", "</think>", "<|im_end|>", "~~", "__", "**",
    "1. ", "选", "答案是", "С", "İ", "\x00", "\ud800", "a" * 30, "{", "(", '"answer": "', "with agent 2 (",
]  # fmt: skip
OPTION_SETS = [ORGANS, ["12", "12 m", "1/2", "None of these"], ["A", "B"], ["", " ", "?", "e"], ["x"] * 26]


def check_invariants(text: str, options: list[str], question: str) -> None:
    """What holds for any reply at all."""
    answer = read_choice(text, options, question)
    assert answer.rule
    assert (answer.key is None) == (answer.value is None) == (answer.span is None)
    if answer.value is not None and answer.span is not None:
        assert answer.value == answer.key and answer.value in LETTERS[: len(options)]
        assert 0 <= answer.span[0] < answer.span[1] <= len(text)
    assert read_choice(text, options, question) == answer


@settings(max_examples=400, deadline=None)
@given(
    st.lists(st.sampled_from(FRAGMENTS), max_size=40).map("".join),
    st.sampled_from(OPTION_SETS),
    st.sampled_from(["", "Which organ?"]),
)
def test_no_mixture_of_marks_breaks_the_reader(text: str, options: list[str], question: str) -> None:
    check_invariants(text, options, question)


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=200), st.lists(st.text(max_size=30), min_size=1, max_size=6), st.text(max_size=40))
def test_no_text_and_no_options_break_the_reader(text: str, options: list[str], question: str) -> None:
    check_invariants(text, options, question)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(FRAGMENTS), min_size=1, max_size=4).map("".join), st.sampled_from(OPTION_SETS))
def test_a_loop_of_a_hundred_thousand_characters_is_read_to_the_end(unit: str, options: list[str]) -> None:
    check_invariants((unit * (100_000 // len(unit)))[:100_000], options, "")


@pytest.mark.parametrize(
    "unit", ["(A) ", "A, B and ", "\\boxed{", "the answer is ", "I choose ", "A) Heart\nB) Lung\n", "("]
)
def test_a_megabyte_of_one_mark_is_read_to_the_end(unit: str) -> None:
    check_invariants(unit * (1_000_000 // len(unit)), ORGANS, "Which organ?")


def real_questions() -> list[tuple[str, list[str]]]:
    """The options of real benchmarks: numbers, formulas, sentences, words, letters."""
    found = []
    for name in ("mmlu_test", "mmlu_test_57subjects"):
        rows = [json.loads(line) for line in (SHARED / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]
        found += [(row["question"], list(map(str, row["choices"]))) for row in rows]
    for line in (SHARED / "aqua_test.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        found.append((row["question"], [re.sub(r"^[A-E]\)\s*", "", option) for option in row["options"]]))
    return found


@pytest.mark.skipif(not (SHARED / "aqua_test.jsonl").exists(), reason="the shared samples are not here")
@pytest.mark.parametrize("reply", ["The answer is ({letter}).", "({letter}) {text}", "The answer is {text}."])
def test_the_options_of_real_questions_are_read_by_letter_and_by_text(reply: str) -> None:
    read, wrong = 0, []
    for question, options in real_questions():
        for letter, text in zip(LETTERS, options, strict=False):
            answer = read_choice(reply.format(letter=letter, text=text), options, question)
            read += 1
            # Two options may have one text, and an option may be the letter of another one.
            if answer.value != letter and options.count(text) == 1 and text not in LETTERS:
                wrong.append((text, options, answer))
    assert read > 2000
    assert len(wrong) <= read // 500, wrong
