"""MMLU-Redux: options as a Python list in text, error types in many spellings, corrected golds."""

from collections import Counter
from pathlib import Path

import pytest

from debate_local.tasks.mmlu_redux import mmlu_redux
from tests.tasks.data import assert_every_gold_is_read, faults, jsonl, real, real_rows

ROW = {
    "question": "Which number is even?",
    "choices": "['3', \"5\", '6', 'it\\'s 7']",
    "answer": "1",
    "error_type": "ok",
    "correct_answer": "",
    "subject": "elementary_mathematics",
}


def test_options_are_read_from_a_list_or_its_text(tmp_path: Path) -> None:
    rows = [ROW, {**ROW, "question": "Other?", "choices": ["3", "5", "6", "it's 7"], "answer": 1}]
    first, second = mmlu_redux(jsonl(tmp_path / "a.jsonl", rows)).items()
    assert first.choices == second.choices == ("3", "5", "6", "it's 7") and first.target == second.target == "B"


def test_options_are_never_evaluated(tmp_path: Path) -> None:
    evil = {**ROW, "question": "Evil?", "choices": "[__import__('os').getcwd(), 'b']"}
    task = mmlu_redux(jsonl(tmp_path / "a.jsonl", [ROW, evil]))
    assert task.items()[1].choices == ()
    assert faults(task)["has a gold that cannot be read"] == (task.items()[1].id,)


@pytest.mark.hazard("A40")
@pytest.mark.parametrize("spelling", ["OK", "Ok", "ok", " ok "])
def test_checked_questions_are_not_suspect_however_ok_is_spelt(tmp_path: Path, spelling: str) -> None:
    (item,) = mmlu_redux(jsonl(tmp_path / "a.jsonl", [{**ROW, "error_type": spelling}])).items()
    assert not item.suspect


@pytest.mark.hazard("A40")
@pytest.mark.parametrize("spelling", ["wrong_groundtruth", "Wrong Groundtruth", "wrong groundtruth "])
def test_a_wrong_gold_is_suspect_and_may_be_put_right(tmp_path: Path, spelling: str) -> None:
    path = jsonl(tmp_path / "a.jsonl", [{**ROW, "error_type": spelling, "correct_answer": "2"}])
    (as_it_is,), (corrected,) = mmlu_redux(path).items(), mmlu_redux(path, corrected=True).items()
    assert (as_it_is.target, as_it_is.suspect) == ("B", "MMLU-Redux says: wrong groundtruth")
    assert (corrected.target, corrected.suspect) == ("C", "")


def test_a_wrong_gold_without_a_better_one_stays_suspect(tmp_path: Path) -> None:
    row = {**ROW, "error_type": "no correct answer", "correct_answer": "2"}
    path = jsonl(tmp_path / "a.jsonl", [row, {**ROW, "question": "Other?", "error_type": "wrong_groundtruth"}])
    assert [item.target for item in mmlu_redux(path, corrected=True).items()] == ["B", "B"]
    assert all(item.suspect for item in mmlu_redux(path, corrected=True).items())


def test_every_real_gold_is_read_and_the_checkers_doubts_are_kept() -> None:
    task, rows = mmlu_redux(real("mmlu_redux")), real_rows("mmlu_redux")
    assert [item.target for item in task.items()] == ["ABCD"[int(row["answer"])] for row in rows]
    assert Counter(item.suspect for item in task.items()) == {
        "": 191,
        "MMLU-Redux says: bad question clarity": 7,
        "MMLU-Redux says: no correct answer": 1,
        "MMLU-Redux says: wrong groundtruth": 1,
    }
    assert_every_gold_is_read(task)
