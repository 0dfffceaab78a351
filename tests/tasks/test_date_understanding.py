"""BIG-bench's date understanding: options and golds from scores, in the original's form and the hub's."""

import json
from collections import Counter
from pathlib import Path

from debate_local.tasks.date_understanding import date_understanding
from tests.tasks.data import assert_every_gold_is_read, faults, jsonl, real, real_rows

SCORES = {"05/01/2030": 1, "05/03/2030": 0, "04/30/2030": 0}
ROW = {"input": "Tomorrow is May 2, 2030. What is the date today?", "target_scores": SCORES}
HUB = {
    "inputs": ROW["input"],
    "multiple_choice_targets": list(SCORES),
    "multiple_choice_scores": list(SCORES.values()),
}


def test_both_forms_give_the_same_item_and_examples_are_found(tmp_path: Path) -> None:
    original = date_understanding(jsonl(tmp_path / "a.jsonl", [ROW])).items()
    assert original == date_understanding(jsonl(tmp_path / "b.jsonl", [HUB])).items()
    (tmp_path / "task.json").write_text(json.dumps({"name": "date", "examples": [ROW]}))
    assert original == date_understanding(str(tmp_path / "task.json")).items()
    assert original[0].choices["ABC".index(original[0].target)] == "05/01/2030"


def test_options_are_shuffled_unless_asked_otherwise(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", [{**ROW, "input": f"{n}?"} for n in range(30)])
    assert len(Counter(item.target for item in date_understanding(path).items())) == 3
    assert {item.target for item in date_understanding(path, shuffle_options=None).items()} == {"A"}


def test_two_right_dates_are_no_gold(tmp_path: Path) -> None:
    task = date_understanding(jsonl(tmp_path / "a.jsonl", [ROW, {**ROW, "target_scores": {"a": 1, "b": 1}}]))
    assert faults(task)["has a gold that cannot be read"] == (task.items()[1].id,)


def test_every_real_gold_is_read() -> None:
    task, rows = date_understanding(real("bigbench_date_understanding")), real_rows("bigbench_date_understanding")
    for item, row in zip(task.items(), rows, strict=True):
        assert row["target_scores"][item.choices["ABCDEF".index(item.target)]] == 1
        assert set(item.choices) == set(row["target_scores"])
    assert_every_gold_is_read(task)
