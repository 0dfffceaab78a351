"""The generated task: its golds, its ids, its options, and how it grades."""

import re
from fractions import Fraction
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from debate_local.core.chat import ChatRequest, Completion, Message, Sampling
from debate_local.core.task import Grade, Task
from debate_local.core.transcript import Answer, Decision, Transcript, Turn
from debate_local.core.voting import each, majority
from debate_local.tasks.arithmetic import arithmetic


def expressions(task: Task) -> list[str]:
    """What is between `What is ` and the question mark."""
    return [item.question.removeprefix("What is ").removesuffix("?") for item in task.items()]


def value_by_terms(text: str) -> int:
    """Another way to the value: cut the text into signed products."""
    terms = re.findall(r"([+-]?)([\d*]+)", text)
    return sum((-1 if sign == "-" else 1) * prod(int(n) for n in product.split("*")) for sign, product in terms)


def test_the_defaults_are_the_released_codes_a_plus_b_times_c_plus_d_minus_e_times_f() -> None:
    task = arithmetic()
    assert len(task.items()) == 100
    operands = set()
    for text in expressions(task):
        found = re.fullmatch(r"(\d+)\+(\d+)\*(\d+)\+(\d+)-(\d+)\*(\d+)", text)
        assert found is not None, text
        operands |= {int(number) for number in found.groups()}
    assert operands == set(range(30))


def test_products_come_first_in_the_gold() -> None:
    for item, text in zip(arithmetic(items=200).items(), expressions(arithmetic(items=200)), strict=True):
        a, b, c, d, e, f = (int(number) for number in re.findall(r"\d+", text))
        assert int(item.target) == a + b * c + d - e * f


@settings(deadline=None)
@given(st.text("+-*", min_size=1, max_size=7), st.integers(0, 10**6))
def test_any_row_of_operators_is_worked_out_with_precedence(operators: str, seed: int) -> None:
    task = arithmetic(items=3, operands=len(operators) + 1, operators=operators, low=0, high=40, seed=seed)
    for item, text in zip(task.items(), expressions(task), strict=True):
        assert int(item.target) == value_by_terms(text), text


def test_a_negative_operand_stands_in_brackets() -> None:
    task = arithmetic(items=20, operands=2, operators="-", low=-3, high=-1)
    for item, text in zip(task.items(), expressions(task), strict=True):
        a, b = (int(number) for number in re.fullmatch(r"\((-\d)\)-\((-\d)\)", text).groups())  # type: ignore[union-attr]
        assert int(item.target) == a - b


def test_more_items_begin_with_the_fewer() -> None:
    few, many = arithmetic(items=16).items(), arithmetic(items=32).items()
    assert list(many[:16]) == list(few)


def test_ids_are_unique_and_belong_to_the_row_not_to_its_place() -> None:
    sums = arithmetic(items=300, operands=2, operators="+", low=1, high=9).items()
    assert len({item.id for item in sums}) == 300
    questions = {item.id.partition("-")[0]: item.question for item in sums}
    # There are 81 such sums, so most of the 300 repeat one: the same hash, another ordinal.
    assert len(questions) <= 81
    assert all(questions[item.id.partition("-")[0]] == item.question for item in sums)
    other_seed = arithmetic(items=300, operands=2, operators="+", low=1, high=9, seed=1).items()
    by_question = {item.question: item.id.partition("-")[0] for item in sums}
    assert all(by_question.get(i.question, i.id.partition("-")[0]) == i.id.partition("-")[0] for i in other_seed)


def test_the_seed_chooses_the_items_and_nothing_else_does() -> None:
    assert arithmetic(seed=3).items() == arithmetic(seed=3).items()
    assert arithmetic(seed=3).items() != arithmetic(seed=4).items()


def test_distinct_operands_are_distinct() -> None:
    for text in expressions(arithmetic(low=10, high=99, distinct=True)):
        numbers = re.findall(r"\d+", text)
        assert len(set(numbers)) == 6 and all(len(number) == 2 for number in numbers)
    # As many integers as operands: every expression uses all of them.
    for text in expressions(arithmetic(items=20, operands=3, operators="++", low=1, high=3, distinct=True)):
        assert sorted(re.findall(r"\d", text)) == ["1", "2", "3"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"items": 0}, "task.items must be at least 1, got 0"),
        ({"operands": 1, "operators": ""}, "task.operands must be at least 2, got 1"),
        ({"operands": 3}, "give 2 operators or operands=6"),
        ({"operators": "+++"}, "give 5 operators or operands=4"),
        ({"operators": "+*/-*"}, "task.operators may hold + - *"),
        ({"low": 5, "high": 4}, "task.low must not be above task.high, got 5 and 4"),
        ({"distinct": True, "low": 1, "high": 5}, "needs 6 different integers, but 1..5 holds 5"),
    ],
)
def test_options_that_cannot_be_are_refused_with_what_to_do(options: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        arithmetic(**options)  # type: ignore[arg-type]


def test_the_prompt_ends_with_the_sentence_that_asks_for_the_format() -> None:
    task = arithmetic(items=1)
    prompt = task.ask(task.items()[0])
    assert prompt.startswith(task.items()[0].question)
    assert prompt.endswith(task.answer_format)
    assert task.read(prompt, task.items()[0]).missing


def transcript(item_id: str, decision: Decision) -> Transcript:
    request = ChatRequest("0.0", "default", (Message("user", "?"),), Sampling())
    return Transcript(item_id, (Turn(0, 0, request, Completion(""), Answer.none("empty reply")),), decision)


def grade(task: Task, answers: list[str], rule: str) -> Grade:
    """The grade of the first item when the agents reply with these texts; grading asks no model."""
    item = task.items()[0]
    read = [task.read(text, item) for text in answers]
    grading = task.grade(transcript(item.id, majority(read) if rule == "majority" else each(read)), item)
    with pytest.raises(StopIteration) as stop:
        next(grading)
    grade = stop.value.value
    assert isinstance(grade, Grade)
    return grade


def test_the_gold_in_other_words_is_right_and_no_answer_never_is() -> None:
    task = arithmetic(items=1, operands=2, operators="+", low=20, high=20)
    assert grade(task, ["\\boxed{40.0}", "forty", "41"], "majority").score == 1.0
    assert grade(task, ["41", "41", "40"], "majority").score == 0.0
    assert grade(task, ["I agree.", "", "How many?"], "majority").score == 0.0
    assert grade(task, ["40", "41", "I agree.", "forty"], "each") == Grade(0.5, (1.0, 0.0, 0.0, 1.0))
    assert task.same(task.read("40", task.items()[0]), task.read("40.00", task.items()[0]))
    assert task.votable and task.metric.name == "accuracy" and task.metric.chance is None


def test_every_item_is_graded_right_when_its_gold_is_the_reply() -> None:
    task = arithmetic()
    for item in task.items():
        answer = task.read(f"The answer is \\boxed{{{item.target}}}.", item)
        assert task.score(answer, item) == 1.0
        assert task.score(task.read(f"\\boxed{{{int(Fraction(item.target)) + 1}}}", item), item) == 0.0
        # An echo of the question gives no answer, not even by coincidence.
        assert task.read(item.question, item).missing and task.read(expressions(task)[0], item).missing
