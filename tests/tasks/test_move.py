"""The move reader: graded replies, notations, and fuzz."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from debate_local.tasks.answers.move import FORMAT, read_move
from tests.tasks.graded_cases import assert_read_as_expected, graded_cases


@pytest.mark.hazard("A42")
@pytest.mark.parametrize("case", graded_cases("chess_move"))
def test_a_graded_reply_is_read_as_a_careful_person_reads_it(case: dict[str, Any]) -> None:
    assert_read_as_expected(case)


@pytest.mark.parametrize(
    ("reply", "square"),
    [
        ("f6", "f6"),
        ("F6", "f6"),
        ("ｆ６", "f6"),
        ("Nf6", "f6"),
        ("♘f6", "f6"),
        ("N8f6", "f6"),
        ("Nbxd7+", "d7"),
        ("exd8=Q#", "d8"),
        ("e7e8q", "e8"),
        ("g8f6", "f6"),
        ("Ng8-f6", "f6"),
        ("from g8 to f6", "f6"),
        ('{"move": "Nf6"}', "f6"),
        ("\\boxed{\\text{Nf6}}", "f6"),
        ("14... Nf6", "f6"),
        ("A legal destination square is **f6**.", "f6"),
        ("The knight on g8 can go to f6.", "f6"),
        ("I would play Nf6, attacking e4.", "f6"),
        ("It moves to f6, because e5 is guarded.", "f6"),
        ("The legal squares are e5, f6 and h6. I choose f6.", "f6"),
        ("I choose f6. Other legal moves are e5 and h6.", "f6"),
        ("The answer is f6. No, wait, f6 is occupied, so h6.", "h6"),
        ("White's last move was e4. My move: c5", "c5"),
        ("<think>e5?</think> f6", "f6"),
        ("e2e4 e7e5 g1f3 b8\nc6", "c6"),
        ("1. e4 e5 2. Nf3 Nc6\nAnswer: f6", "f6"),
    ],
)
def test_a_move_in_any_notation_is_the_square_it_goes_to(reply: str, square: str) -> None:
    answer = read_move(reply)
    assert answer.value == answer.key == square
    start, end = answer.span or (0, 0)
    assert read_move(reply[start:end]).key == square


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ("", "empty reply"),
        ("i9", "no square"),
        ("Answer: e9", "stated, but no square of the board"),
        ("f6 or e4", "several candidates"),
        ("It can go to d5, f6 or h6.", "several candidates"),
        ("It could be g4. It could just as well be b6.", "several candidates"),
        ("\\boxed{c8} \\text{ or } \\boxed{d1}", "several candidates"),
        ("1. e4 e5 2. Nf3 Nc6", "no square"),
        ("e2e4 e7e5 g1f3 b8", "no square"),
        ("O-O", "castling names no square"),
        ("The knight on g8 is well placed.", "no square"),
        ("I cannot determine a legal move to f6.", "a refusal or a question back"),
    ],
)
def test_no_answer_says_why(reply: str, why: str) -> None:
    answer = read_move(reply)
    assert answer.missing and answer.value is None
    assert answer.rule == why


def test_the_question_repeated_is_no_answer() -> None:
    question = "The game so far is e2e4 and the piece stands on g8. Where does it go?"
    assert read_move(question, question).missing
    assert read_move(f"{question} f6", question).value == "f6"


def test_the_request_for_the_form_is_no_answer_itself() -> None:
    assert "\\boxed{}" in FORMAT
    assert read_move(FORMAT).missing


FRAGMENTS = [
    "e4", "e5", "Nf3", "g8f6", "O-O", "1. ", "12... ", " ", ", ", "or ", "and ", "to ", "from ", "on ", "knight ",
    "move ", "I play ", "the answer is ", "\\boxed{", "}", "not ", "because ", "x", "=Q", "+", "-", ".", "\n", "?",
    "i9",
    "<think>",
    "</think>", "İ", "\x00", "１", "♘", "as well ", "{", "wait ", "so ",
]  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.lists(st.sampled_from(FRAGMENTS), max_size=30).map("".join), st.text(max_size=200)))
def test_no_text_breaks_the_reader(reply: str) -> None:
    answer = read_move(reply)
    assert answer.rule
    assert (answer.key is None) == (answer.value is None) == (answer.span is None)
    if answer.value is not None and answer.span is not None:
        assert answer.value[0] in "abcdefgh" and answer.value[1] in "12345678" and len(answer.value) == 2
        assert 0 <= answer.span[0] < answer.span[1] <= len(reply)


@pytest.mark.parametrize("unit", ["e4 ", "1. e4 e5 ", "e2e4 ", "the move is ", "I play e4 ", "{", "or "])
def test_a_megabyte_of_one_mark_is_read_to_the_end(unit: str) -> None:
    assert read_move(unit * (1_000_000 // len(unit))).rule
