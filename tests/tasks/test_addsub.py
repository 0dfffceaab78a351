"""AddSub: solutions are a list of one decimal as text."""

import json
from pathlib import Path

import pytest

from debate_local.tasks.addsub import addsub
from debate_local.tasks.rows import TaskDataError
from tests.tasks.data import assert_every_gold_is_read, faults

ROWS = [
    {"iIndex": 1, "sQuestion": " Ada has 7 pens and buys 5. How many has she now? ", "lSolutions": ["12.0"]},
    {"iIndex": 2, "sQuestion": "A rod of 2.5 m loses 0.75 m. How long is it?", "lSolutions": ["1.75"]},
    {"iIndex": 3, "sQuestion": "Which two?", "lSolutions": ["1.0", "2.0"]},
]


def test_golds_are_numbers_and_several_solutions_are_none(tmp_path: Path) -> None:
    path = tmp_path / "AddSub.json"
    path.write_text(json.dumps(ROWS))
    task = addsub(str(path))
    assert [item.target for item in task.items()] == ["12", "1.75", "2 solutions"]
    assert task.items()[0].question == "Ada has 7 pens and buys 5. How many has she now?"
    assert faults(task)["has a gold that cannot be read"] == (task.items()[2].id,)
    task.all_items = task.items()[:2]
    assert_every_gold_is_read(task)


def test_no_licence_is_claimed_where_none_is_stated(tmp_path: Path) -> None:
    path = tmp_path / "AddSub.json"
    path.write_text(json.dumps(ROWS))
    assert "licence" not in addsub(str(path)).source


def test_without_a_file_it_says_that_there_is_no_hub_and_what_to_download() -> None:
    with pytest.raises(TaskDataError, match=r"on no hub that we know: give task\.path=FILE\. Download dataset/AddSub"):
        addsub()
