"""The yes/no reader: rules, words of other languages, the labels of a judge of facts, and fuzz."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from debate_local.tasks.answers.yes_no import FORMAT, read_yes_no

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("\\boxed{no}", "boxed"),
        ("It sinks.\n#### no", "hash"),
        ("<answer>False</answer>", "tag"),
        ("Final answer: no", "final answer"),
        ("So the answer is no.", "answer"),
        ("My verdict: no", "answer"),
        ("The answer is yes. Wait, stone sinks, so no.", "correction"),
        ("No, stone sinks.", "opening"),
        ("Stone sinks, so no.", "lenient: conclusion"),
        ("It sinks. The claim is false.", "lenient: conclusion"),
    ],
)
def test_the_rule_that_matched_is_named(text: str, rule: str) -> None:
    answer = read_yes_no(text)
    assert (answer.value, answer.key, answer.rule) == ("no", "no", rule)
    assert answer.span is not None and text[slice(*answer.span)].lower() in ("no", "false")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "empty reply"),
        ("<think>yes", "nothing outside reasoning, question and template tokens"),
        ("Yes and no.", "both"),
        ("Answer: Yes/No", "both"),
        ("If it is wet, the answer is yes. If it is dry, the answer is no.", "several candidates"),
        ("I cannot tell.", "a refusal or a question back"),
        ("Uncertain.", "uncertain"),
        ("Nothing is known.", "neither yes nor no"),
        ("The answer is \\boxed{no", "cut off in a box"),
    ],
)
def test_no_answer_says_why(text: str, why: str) -> None:
    answer = read_yes_no(text)
    assert (answer.value, answer.key, answer.span, answer.rule) == (None, None, None, why)


@pytest.mark.parametrize("text", ["I do not know.", "Nobody did.", "Notable.", "Another one.", "Eyes.", "Yesterday."])
@pytest.mark.hazard("A38")
def test_a_part_of_a_word_is_no_answer(text: str) -> None:
    assert read_yes_no(text).missing


@pytest.mark.parametrize("text", ["No rule forbids it.", "There is no doubt about it.", "No one has seen it."])
def test_a_quantifier_is_no_answer(text: str) -> None:
    assert read_yes_no(text).missing
    assert read_yes_no(f"{text} So the answer is yes.").value == "yes"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Nein.", "no"), ("Ja, das stimmt.", "yes"), ("Non", "no"), ("Oui.", "yes"), ("Sí.", "yes"), ("Não.", "no"),
        ("Sì", "yes"), ("Да", "yes"), ("Нет.", "no"), ("是的。", "yes"), ("不是。", "no"), ("はい", "yes"),
        ("いいえ。", "no"),
        ("아니요", "no"), ("نعم", "yes"), ("Die Antwort ist nein.", "no"), ("答案是：否", "no"),
    ],
)  # fmt: skip
@pytest.mark.hazard("D07")
def test_the_words_of_other_languages_are_read(text: str, value: str) -> None:
    assert read_yes_no(text).value == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Uncertain.", "uncertain"),
        ("The biography does not mention this award.", "uncertain"),
        ("Not mentioned", "uncertain"),
        ("This is consistent with the facts.", "yes"),
        ("It is not consistent with the facts.", "no"),
        ("The fact contradicts the biography.", "no"),
        ("Inconsistent", "no"),
        ("Yes. There is nothing uncertain about the year.", "yes"),
        ("No, the year is not mentioned.", "no"),
    ],
)
@pytest.mark.hazard("A39")
def test_a_judge_of_facts_may_also_be_uncertain(text: str, value: str) -> None:
    assert read_yes_no(text, uncertain=True).value == value
    plain = read_yes_no(text)
    # Without the third answer, only yes and no themselves count.
    assert plain.value == (value if text.startswith(("Yes", "No,")) else None)


def test_what_other_agents_say_is_no_answer() -> None:
    assert read_yes_no("Agent A says yes and agent B says no.").missing
    assert read_yes_no("Agent A says yes and agent B says no. I say no.").value == "no"
    assert read_yes_no("I agree with agent 2 (no) and not with agent 1 (yes).").value == "no"


def test_the_form_itself_and_the_question_are_no_answer() -> None:
    assert read_yes_no(FORMAT).missing
    question = "Is the answer to this yes?"
    assert read_yes_no(question, question).missing
    assert read_yes_no(f"{question} No.", question).value == "no"


FRAGMENTS = [
    "the answer is ", "Answer: ", "\\boxed{", "}", "yes", "No", "true", "not ", "uncertain", " ", "\n\n", "?", ".",
    ",",
    "and ", "or ", "so ", "wait ", "actually ", "that is wrong", "agent 1 ", "the others ", "if ", "Question: ",
    "<think>",
    "</think>", "<|im_end|>", "~~", "__", "**", "1. ", "是", "不是", "/", "İ", "\x00", "\ud800",
    "a" * 30, "(", '"answer": ',
]  # fmt: skip


def check_invariants(text: str, question: str) -> None:
    """What holds for any reply at all."""
    for uncertain in (False, True):
        answer = read_yes_no(text, question, uncertain)
        assert answer.rule
        assert (answer.key is None) == (answer.value is None) == (answer.span is None)
        if answer.span is not None:
            assert answer.value in (("yes", "no", "uncertain") if uncertain else ("yes", "no"))
            assert 0 <= answer.span[0] < answer.span[1] <= len(text)
        assert read_yes_no(text, question, uncertain) == answer


@settings(max_examples=400, deadline=None)
@given(st.lists(st.sampled_from(FRAGMENTS), max_size=40).map("".join), st.sampled_from(["", "Is it so?"]))
def test_no_mixture_of_marks_breaks_the_reader(text: str, question: str) -> None:
    check_invariants(text, question)


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=200), st.text(max_size=40))
def test_no_text_breaks_the_reader(text: str, question: str) -> None:
    check_invariants(text, question)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(FRAGMENTS), min_size=1, max_size=4).map("".join))
def test_a_loop_of_a_hundred_thousand_characters_is_read_to_the_end(unit: str) -> None:
    check_invariants((unit * (100_000 // len(unit)))[:100_000], "")


@pytest.mark.parametrize("unit", ["no ", "yes or no ", "\\boxed{", "the answer is ", "is it so? ", "("])
def test_a_megabyte_of_one_mark_is_read_to_the_end(unit: str) -> None:
    check_invariants(unit * (1_000_000 // len(unit)), "Is it so?")
