"""SVAMP: a body and a question make one problem; golds are decimals of whole numbers."""

from pathlib import Path

import pytest

from debate_local.tasks.svamp import svamp
from tests.tasks.data import assert_every_gold_is_read, faults, jsonl, real, real_rows

ROW = {
    "ID": "chal-0",
    "Body": "A tray holds 12 rolls",
    "Question": "How many rolls do 3 trays hold?",
    "Equation": "( 12.0 * 3.0 )",
    "Answer": 36.0,
    "Type": "Multiplication",
}


def test_the_body_gets_the_full_stop_that_it_lacks_and_no_second_one(tmp_path: Path) -> None:
    rows = [ROW, {**ROW, "ID": "b", "Body": "A tray holds 12 rolls."}, {**ROW, "ID": "c", "Body": ""}]
    told = [item.question for item in svamp(jsonl(tmp_path / "a.jsonl", rows)).items()]
    assert told[0] == told[1] == "A tray holds 12 rolls. How many rolls do 3 trays hold?"
    assert told[2] == "How many rolls do 3 trays hold?"


def test_a_decimal_gold_is_the_number_and_ids_and_types_are_the_sources(tmp_path: Path) -> None:
    rows = [ROW, {**ROW, "ID": "chal-7", "Answer": "2.50"}]
    first, second = svamp(jsonl(tmp_path / "a.jsonl", rows)).items()
    assert (first.id, first.target, first.group) == ("chal-0", "36", "Multiplication")
    assert second.target == "2.5"


@pytest.mark.hazard("A40")
def test_the_known_wrong_gold_is_suspect(tmp_path: Path) -> None:
    rows = [ROW, {**ROW, "ID": "chal-680", "Answer": 1.0}]
    task = svamp(jsonl(tmp_path / "a.jsonl", rows))
    assert [item.suspect for item in task.items()] == ["", "its equation gives 5"]
    assert faults(task)["has a doubted gold: its equation gives 5"] == ("chal-680",)


def test_every_real_gold_is_read() -> None:
    task, rows = svamp(real("svamp")), real_rows("svamp")
    assert [float(item.target) for item in task.items()] == [row["Answer"] for row in rows]
    assert_every_gold_is_read(task)
    assert not set(faults(task)) - {"200 rows were loaded; as published: all 1,000, train 700, test 300"}
