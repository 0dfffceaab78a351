"""Words and brackets as answers: what is stated counts, and nothing is put together from prose."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from debate_local.tasks.answers.words import brackets_key, read_brackets, read_words, words_key

TRUTH = ("True", "False")


@pytest.mark.parametrize(
    ("reply", "key"),
    [
        ("\\boxed{True}", "true"),
        ("So not ( True ) and ( True ) is False.", "false"),
        ("The answer is False, because True alone would need both.", "false"),
        ("It is not true.", "false"),
        ("The answer is True. Wait, I missed a bracket, so it should be False.", "false"),
        ("It could be true or false.", None),
        ("The answer is True or False.", None),
        ("The truth is hard to tell.", None),
        ("\\boxed{Tru", None),
        ("<think>True</think> The answer is False.", "false"),
        ("<think>so True", None),
        ("", None),
    ],
)
def test_one_of_two_words_is_read_as_a_person_reads_it(reply: str, key: str | None) -> None:
    assert read_words(reply, "", TRUTH).key == key


@pytest.mark.parametrize(
    ("reply", "key"),
    [
        ("The answer is oat, Rye and wheat", "oat rye and wheat"),
        ("\\boxed{\\text{oat rye}}", "oat rye"),
        ("Sorted:\n**Final answer:** `oat`, `it&t`", "oat it&t"),
        ("<answer>oat rye</answer>", "oat rye"),
        ("oat comes before rye", None),
        ("\\boxed{oat ry", None),
    ],
)
def test_a_list_of_words_must_be_stated(reply: str, key: str | None) -> None:
    assert read_words(reply).key == key


def test_the_span_is_where_the_answer_stands() -> None:
    reply = "I think so.\nThe answer is False."
    start, end = read_words(reply, "", TRUTH).span or (0, 0)
    assert reply[start:end] == "False"


def test_a_repeated_question_gives_no_answer() -> None:
    question = "Is the argument valid or invalid?"
    assert read_words(question, question, ("valid", "invalid")).missing


def test_brackets_that_open_are_no_completion() -> None:
    assert read_brackets("Answer: ( ]", "[").missing
    assert read_brackets("Answer: ] ( )", "").missing


def test_keys_ignore_case_commas_and_markup() -> None:
    assert words_key(" **Oat**,  rye; \\text{Wheat}.") == "oat rye wheat"
    assert brackets_key("`]})`, ok") == "] } )"


@given(st.text(max_size=300), st.sampled_from([(), TRUTH, ("valid", "invalid")]))
def test_no_text_crashes_a_reader(text: str, vocabulary: tuple[str, ...]) -> None:
    answer = read_words(text, "", vocabulary)
    assert answer.missing or not vocabulary or answer.key in {word.lower() for word in vocabulary}
    read_brackets(text, "[ (")
