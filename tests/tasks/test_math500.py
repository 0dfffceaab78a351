"""MATH-500: golds in LaTeX, compared by meaning."""

from pathlib import Path

import pytest

from debate_local.tasks.math500 import math500
from tests.tasks.data import assert_every_gold_is_read, faults, jsonl, real, real_rows

ROWS = [
    {
        "problem": "Compute $\\frac{1}{2} + \\frac{1}{3}$.",
        "solution": "The sum is $\\boxed{\\frac{5}{6}}$.",
        "answer": "\\frac{5}{6}",
        "subject": "Prealgebra",
        "level": 2,
        "unique_id": "test/prealgebra/0.json",
    },
    {"problem": "Which point?", "solution": "It is $\\boxed{(3,4]}$.", "answer": "(3,4]", "subject": "Algebra"},
]


def test_an_item_has_the_sources_id_its_subject_and_its_solution(tmp_path: Path) -> None:
    first, second = math500(jsonl(tmp_path / "a.jsonl", ROWS)).items()
    assert (first.id, first.group, first.target) == ("test/prealgebra/0.json", "Prealgebra", "\\frac{5}{6}")
    assert "The sum is" in first.explanation
    assert len(second.id) == 12


def test_another_spelling_of_the_gold_is_right_and_a_rounded_value_is_not(tmp_path: Path) -> None:
    task = math500(jsonl(tmp_path / "a.jsonl", ROWS))
    item = task.items()[0]
    said = ["\\boxed{\\frac56}", "\\boxed{5/6}", "\\boxed{\\frac{10}{12}}", "\\boxed{0.83}", "\\boxed{6/5}"]
    assert [task.score(task.read(text, item), item) for text in said] == [1.0, 1.0, 1.0, 0.0, 0.0]


def test_rows_without_an_answer_take_the_last_box_of_the_solution(tmp_path: Path) -> None:
    row = {
        "problem": "?",
        "solution": "First $\\boxed{1}$, then $\\boxed{\\sqrt{2}}$.",
        "level": "Level 5",
        "type": "Algebra",
    }
    (item,) = math500(jsonl(tmp_path / "a.jsonl", [row])).items()
    assert item.target == "\\sqrt{2}" and item.group == "Algebra"


def test_a_solution_without_a_box_has_no_gold(tmp_path: Path) -> None:
    rows = [{"problem": "?", "solution": "$\\boxed{3}$"}, {"problem": "??", "solution": "Cut off in $\\boxed{3"}]
    task = math500(jsonl(tmp_path / "a.jsonl", rows))
    assert faults(task)["has a gold that cannot be read"] == (task.items()[1].id,)


@pytest.mark.slow
def test_every_real_gold_is_read_and_every_real_solution_is_right() -> None:
    task, rows = math500(real("math500_test")), real_rows("math500_test")
    assert [item.id for item in task.items()] == [row["unique_id"] for row in rows]
    assert list(faults(task)) == ["200 rows were loaded; as published: test 500"]
    for item, row in zip(task.items(), rows, strict=True):
        assert item.target == row["answer"]
        assert task.score(task.read(f"So \\boxed{{{item.target}}}.", item), item) == 1.0
        assert task.score(task.read(row["solution"], item), item) == 1.0
        assert task.read(item.question, item).missing
    plain = [item for item in task.items() if item.target.lstrip("-").isdecimal()]
    assert len(plain) > 100
    assert_every_gold_is_read(math500_of(plain))


def math500_of(items: list) -> object:  # type: ignore[type-arg]
    """The task with these items only."""
    task = math500(real("math500_test"))
    task.all_items = items
    return task
