"""MMLU: its three layouts, its subjects, its damaged questions."""

from pathlib import Path

import pytest

from debate_local.tasks.mmlu import SUBJECTS, mmlu
from tests.tasks.data import assert_every_gold_is_read, faults, jsonl, real, real_rows

ROW = {"question": "Which of these is prime?", "subject": "elementary_mathematics", "choices": ["9", "15", "17", "21"]}


def test_there_are_57_subjects() -> None:
    assert len(SUBJECTS) == len(set(SUBJECTS)) == 57


@pytest.mark.parametrize("answer", [2, "2", "C"])
def test_a_key_is_a_place_or_a_letter(tmp_path: Path, answer: object) -> None:
    (item,) = mmlu(jsonl(tmp_path / "a.jsonl", [{**ROW, "answer": answer}])).items()
    assert (item.target, item.group) == ("C", "elementary_mathematics")


def test_a_key_beyond_the_options_cannot_be_read(tmp_path: Path) -> None:
    rows = [
        {**ROW, "answer": 2},
        {**ROW, "question": "Other?", "answer": 4},
        {**ROW, "question": "Third?", "answer": "E"},
    ]
    task = mmlu(jsonl(tmp_path / "a.jsonl", rows))
    assert faults(task)["has a gold that cannot be read"] == tuple(item.id for item in task.items()[1:])


@pytest.mark.hazard("A40")
def test_questions_whose_stem_was_lost_are_suspect_in_their_subject_only(tmp_path: Path) -> None:
    bare = {**ROW, "choices": ["1,2,3", "1, 2", "2,3", "1,2,3,4"], "answer": 0}
    rows = [{**bare, "subject": "business_ethics"}, {**bare, "question": "Primes?"}, {**ROW, "answer": 2}]
    doubts = [item.suspect for item in mmlu(jsonl(tmp_path / "a.jsonl", rows)).items()]
    assert doubts == ["its stem was lost (hendrycks/test#5)", "", ""]


def test_an_item_is_the_same_in_every_layout(tmp_path: Path) -> None:
    one = mmlu(jsonl(tmp_path / "a.jsonl", [{**ROW, "answer": 2}])).items()
    cells = dict(zip(("choice0", "choice1", "choice2", "choice3"), ROW["choices"], strict=True))
    row = {"question": ROW["question"], **cells, "answer": "2"}
    assert mmlu(jsonl(tmp_path / "elementary_mathematics_test.jsonl", [row])).items() == one


@pytest.mark.parametrize("name", ["mmlu_test", "mmlu_test_57subjects", "mmlu_dev"])
def test_every_real_gold_is_read(name: str) -> None:
    task, rows = mmlu(real(name)), real_rows(name)
    assert [item.choices["ABCD".index(item.target)] for item in task.items()] == [
        row["choices"][row["answer"]] for row in rows
    ]
    assert [item.group for item in task.items()] == [row["subject"] for row in rows]
    assert_every_gold_is_read(task)


def test_the_real_rows_show_their_known_faults() -> None:
    found = faults(mmlu(real("mmlu_test")))
    assert found.pop("8 of 57 subjects are there") == ()
    assert {fault: len(items) for fault, items in found.items()} == {
        "repeats an earlier item": 1,
        "has options with the same text": 1,
        "has a doubted gold: its stem was lost (hendrycks/test#5)": 1,
    }
    assert "repeats an earlier item" in faults(mmlu(real("mmlu_dev")))


def test_shuffled_real_rows_keep_their_gold() -> None:
    plain, shuffled = mmlu(real("mmlu_test")), mmlu(real("mmlu_test"), shuffle_options=1)
    for before, after in zip(plain.items(), shuffled.items(), strict=True):
        assert before.choices["ABCD".index(before.target)] == after.choices["ABCD".index(after.target)]
