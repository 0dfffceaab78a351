"""The number reader: graded sentences, real rows where they are at hand, and fuzz."""

import json
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from debate_local.tasks.answers.number import FORMAT, read_number, same_number
from debate_local.tasks.answers.numerals import canonical, exact_number

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
SHARED = HERE.parents[2] / "shared"


def graded_cases(file: Path) -> list[Any]:
    """The number cases of a file, one parameter each; none when the file is not there."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    cases = [json.loads(line) for line in lines]
    return [pytest.param(case, id=f"{case['id']}-{case['kind']}") for case in cases if case["task"] in NUMBER_TASKS]


NUMBER_TASKS = ("gsm8k", "arithmetic")
CASES = graded_cases(HERE / "number_cases.jsonl") + graded_cases(SHARED / "cases" / "extraction.jsonl")


@pytest.mark.parametrize("case", CASES)
def test_a_graded_reply_is_read_as_a_careful_person_reads_it(case: dict[str, Any]) -> None:
    answer = read_number(case["text"], case.get("question", ""))
    accepted = {case["expect_answer"], *case.get("alt_answers", [])}
    values = {None if text is None else exact_number(text) for text in accepted}
    assert (None if answer.value is None else Fraction(answer.value)) in values, answer
    right = answer.value is not None and Fraction(answer.value) == exact_number(case["gold"])
    if answer.value == case["expect_answer"]:
        assert right == case["expect_correct"]


@pytest.mark.parametrize("case", CASES)
def test_the_span_shows_where_in_the_reply_the_answer_stands(case: dict[str, Any]) -> None:
    answer = read_number(case["text"], case.get("question", ""))
    if answer.missing:
        assert answer.span is None
    else:
        assert answer.span is not None
        shown = case["text"][slice(*answer.span)]
        # Read alone, what the span shows is the same number.
        assert read_number(shown).key == answer.key or read_number(f"Die Antwort ist {shown}.").key == answer.key


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("\\boxed{18}", "boxed"),
        ("so 9 * 2 is 18.\n#### 18", "hash"),
        ("<answer>18</answer>", "tag"),
        ("Final answer: 18", "final answer"),
        ("The answer is 18%.", "answer (percent)"),
        ("The answer is 17. Sorry, it should be 18.", "correction"),
        ("**She makes 18 dollars**, since 9 * 2 = 18. It is 3 more than before.", "lenient: bold"),
        ("9 * 2 = 18", "lenient: equation"),
        ("She sells 9, so she makes 18 dollars.", "lenient: conclusion"),
        ("She makes 18 dollars.", "lenient: last number"),
        ("She makes eighteen dollars.", "lenient: last number (words)"),
    ],
)
def test_the_rule_that_matched_is_named_with_the_form_of_the_numeral(text: str, rule: str) -> None:
    answer = read_number(text)
    assert (answer.value, answer.rule) == ("18", rule)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "empty reply"),
        ("<think>so 18", "nothing outside reasoning, question and template tokens"),
        ("So \\boxed{1", "cut off in a box"),
        ("It is 10-12.", "an expression or a range"),
        ("The answer is 16 or 18.", "several candidates"),
        ("They meet at 5:30.", "not a number: clock"),
        ("I cannot answer that.", "a refusal or a question back"),
        ("How many are left?", "a question and nothing after it"),
        ("The answer is 18. No, that is wrong.", "withdrawn"),
        ("I agree with the others.", "no number"),
    ],
)
def test_no_answer_says_why(text: str, why: str) -> None:
    answer = read_number(text)
    assert answer.missing and answer.value is None
    assert answer.rule == why


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("The chance is 1 in 4.", "0.25"),
        ("The probability is 3 out of 10.", "0.3"),
        ("He has read 18 out of 20 pages.", "18"),
        ("She ran a 5k race in 31 minutes.", "31"),
        ("He earns 5k a month.", "5000"),
        ("It comes to twelve dollars and fifty cents.", "12.5"),
        ("He buys a dozen rolls.", "12"),
        ("The fund holds \\$1.5\\text{ million}.", "1500000"),
        ("The answer is $3 \\cdot 2^4$.", "48"),
        ("Total:- 45 stamps", "45"),
    ],
)
def test_numbers_are_read_as_they_are_meant(text: str, value: str) -> None:
    assert read_number(text).value == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("The walk is 9 miles long, which takes about 3 hours.", "9"),
        ("She fills 12 bottles, since 25 / 2 = 12.5 is rounded down.", "12"),
        ("The rent is $1,080 (8% of $1,000 being $80).", "1080"),
        ("So he saves 70 dollars, 20% of his pay.", "70"),
        ("It costs $56.\n\nExplanation: 4 tickets and $12 for parking make $56, or $5 less online.", "56"),
        ("So the trip is 42 km long. At 14 km an hour it lasts 3 hours.", "42"),
        ("There are 8 left. Let me know if I should explain the 3 steps!", "8"),
        ("The total is 66, and that is my final answer. Bob: 60.", "66"),
        ("He pays 480 dollars, as much as for his iPhone 12.", "480"),
        ("I get 92, as the other 2 agents do.", "92"),
        ("I'm sorry, but I can't help with 40 bottles.", None),
        ("The answer is the same as agent 2's.", None),
        ('{"answer": null, "confidence": 0.1}', None),
        ("If the tip counts, the answer is 55, otherwise it is 50.", None),
        ("On the first reading the answer is 5. On the second reading the answer is 6.", None),
    ],
)
def test_what_is_said_in_passing_is_no_answer(text: str, value: str | None) -> None:
    assert read_number(text).value == value


def test_cents_and_dollars_are_read_in_the_unit_that_the_question_asks_for() -> None:
    assert read_number("It is $0.25 more.", "How much more is that, in cents?").value == "25"
    assert read_number("The answer is 25 cents.", "How many cents?").value == "25"
    assert read_number("The answer is 25 cents.", "How many dollars is that?").value == "0.25"
    assert read_number("It is $0.25 more.", "How much more is that?").value == "0.25"


def test_18_and_18_point_0_are_one_vote_and_2_to_the_53_plus_1_is_another() -> None:
    assert same_number(read_number("18"), read_number("The answer is 18.0."))
    assert same_number(read_number("2/3"), read_number("\\boxed{\\frac{4}{6}}"))
    assert not same_number(read_number(f"{2**53}"), read_number(f"{2**53 + 1}"))
    assert not same_number(read_number("0.667"), read_number("2/3"))
    assert not same_number(read_number("none"), read_number("none"))


def test_a_reply_in_the_asked_form_is_read_by_the_first_rule_and_the_form_itself_is_no_answer() -> None:
    assert "\\boxed{" in FORMAT
    assert read_number(f"I add them up. {FORMAT.split()[-1]}").missing
    assert read_number(FORMAT).missing
    assert read_number("I add them up. So the answer is \\boxed{42}.").rule == "boxed"


def test_the_question_repeated_is_no_answer_wherever_it_stands() -> None:
    question = "A shelf holds 14 books. Three shelves are full. How many books are there?"
    assert read_number(question, question).missing
    assert read_number(f"You ask: {question}", question).missing
    assert read_number("A shelf holds 14 books.", question).missing
    assert read_number(f"{question} There are 42 books.", question).value == "42"
    # The same number as an answer, not as an echo.
    assert read_number("14", question).value == "14"


amounts = st.one_of(
    st.integers(-(10**12), 10**12).map(Fraction),
    st.builds(Fraction, st.integers(-(10**9), 10**9), st.sampled_from([2, 4, 5, 8, 10, 100, 1000])),
)


@given(amounts)
def test_a_canonical_value_reads_as_itself(value: Fraction) -> None:
    assert exact_number(canonical(value)) == value
    assert Fraction(canonical(value)) == value


@given(st.integers(-(10**9), 10**9), st.sampled_from([",", "{,}", "\\,", " "]), st.sampled_from(["", "$", "\\$", "£"]))
def test_grouping_currency_and_sign_do_not_change_an_integer(number: int, comma: str, mark: str) -> None:
    digits = f"{abs(number):,}".replace(",", comma)
    written = f"{'-' if number < 0 else ''}{mark}{digits}"
    for text in (f"\\boxed{{{written}}}", f"The answer is {written}.", f"#### {written}"):
        assert read_number(text).value == str(number), text


@given(st.integers(0, 10**6), st.integers(1, 999))
def test_a_fraction_is_exact_however_it_is_written(top: int, bottom: int) -> None:
    for text in (f"\\boxed{{\\frac{{{top}}}{{{bottom}}}}}", f"The answer is {top}/{bottom}."):
        assert Fraction(str(read_number(text).value)) == Fraction(top, bottom), text


@given(st.integers(0, 999), st.integers(0, 999))
def test_a_boxed_answer_beats_any_number_before_it(before: int, answer: int) -> None:
    text = f"First there are {before}. Then {before} + 1 = {before + 1}. So we get \\boxed{{{answer}}}."
    assert read_number(text).value == str(answer)


FRAGMENTS = [
    "the answer is ", "Answer: ", "\\boxed{", "}", "\\frac{1}{2}", "12", "1,234", " ", "\n\n", "?", ".", ",",
    "=", "-", "*", "/", "^", "$", "%", "and ", "or ", "wait ", "no, ", "that is wrong", "agent 1 ",
    "the others ", "so ", "if the ", "not ", "how many", "Question: ", "Q:", "<think>", "</think>",
    "<|im_end|>", "one ", "twenty-", "hundred ", "half", "½", "７", "−", "5:30", "1e5", "10^3", "×", "#### ",
    "1. ", "答案是", "Die Antwort lautet ", "a" * 30, "1" * 400, "1e99999", "9^9^9", "5/0", "İ", "\x00", "\ud800",
    "١", "²",
]  # fmt: skip


def check_invariants(text: str, question: str) -> None:
    """What holds for any reply at all."""
    answer = read_number(text, question)
    assert answer.rule
    assert (answer.key is None) == (answer.value is None) == (answer.span is None)
    if answer.value is not None and answer.span is not None:
        assert answer.key == answer.value == canonical(Fraction(answer.value))
        assert 0 <= answer.span[0] < answer.span[1] <= len(text)
    assert read_number(text, question) == answer


@settings(max_examples=400, deadline=None)
@given(st.lists(st.sampled_from(FRAGMENTS), max_size=40).map("".join), st.sampled_from(["", "What is 12?", "12"]))
def test_no_mixture_of_marks_breaks_the_reader(text: str, question: str) -> None:
    check_invariants(text, question)


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=200), st.text(max_size=40))
def test_no_text_breaks_the_reader(text: str, question: str) -> None:
    check_invariants(text, question)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(FRAGMENTS), min_size=1, max_size=4).map("".join),
    st.lists(st.sampled_from(FRAGMENTS), max_size=3).map("".join),
)
def test_a_loop_of_a_hundred_thousand_characters_is_read_to_the_end(unit: str, end: str) -> None:
    check_invariants((unit * (100_000 // len(unit)))[:100_000] + end, "")


@pytest.mark.parametrize("unit", ["\\boxed{", "the answer is ", "1 ", "=1", "\n", "<think>", "Q:\n", "5 or "])
def test_a_megabyte_of_one_mark_is_read_to_the_end(unit: str) -> None:
    check_invariants(unit * (1_000_000 // len(unit)), "What is 1 + 1?")


GSM8K = [SHARED / "data" / f"gsm8k_{split}.jsonl" for split in ("test", "train")]


@pytest.mark.skipif(not all(file.exists() for file in GSM8K), reason="the shared GSM8K samples are not here")
def test_the_worked_solutions_of_gsm8k_are_read_right_with_and_without_their_mark() -> None:
    rows = [json.loads(line) for file in GSM8K for line in file.read_text(encoding="utf-8").splitlines()]
    wrong = missing = 0
    for row in rows:
        gold = exact_number(row["answer"].rpartition("####")[2])
        marked = read_number(row["answer"], row["question"])
        assert marked.rule == "hash" and Fraction(str(marked.value)) == gold
        prose = read_number(re.sub(r"<<.*?>>", "", row["answer"].rpartition("####")[0]), row["question"])
        missing += prose.missing
        wrong += prose.value is not None and Fraction(prose.value) != gold
    # Where nothing is stated, a reader may find no answer; it must hardly ever find another one.
    assert wrong <= len(rows) // 100
    assert missing <= len(rows) // 25
