"""AQuA: options with their letters before them, the same text at two letters, the known wrong golds."""

from pathlib import Path

import pytest

from debate_local.tasks.aqua import SUSPECT, aqua
from tests.tasks.data import assert_every_gold_is_read, faults, jsonl, real, real_rows

ROW = {
    "question": "A car goes 90 km in 2 hours. How fast is it?",
    "options": ["A)40", "B) 45", "C)50", "D)E) 60", "E)none of these"],
    "rationale": "90 / 2 = 45",
    "correct": "B",
}


def test_labels_go_and_everything_else_of_an_option_stays(tmp_path: Path) -> None:
    (item,) = aqua(jsonl(tmp_path / "a.jsonl", [ROW])).items()
    assert item.choices == ("40", "45", "50", "E) 60", "none of these")
    assert (item.target, item.explanation) == ("B", "90 / 2 = 45")


def test_none_of_these_stays_the_last_option_when_they_are_shuffled(tmp_path: Path) -> None:
    rows = [{**ROW, "question": f"{ROW['question']} {n}"} for n in range(20)]
    items = aqua(jsonl(tmp_path / "a.jsonl", rows), shuffle_options=1).items()
    assert {item.choices[4] for item in items} == {"none of these"}
    assert len({item.target for item in items}) == 4


@pytest.mark.parametrize("split", ["test", "dev"])
def test_every_real_gold_is_read(split: str) -> None:
    task, rows = aqua(real(f"aqua_{split}")), real_rows(f"aqua_{split}")
    for item, row in zip(task.items(), rows, strict=True):
        keyed = row["options"]["ABCDE".index(row["correct"])]
        assert item.choices["ABCDE".index(item.target)] == keyed.partition(")")[2].strip()
    assert_every_gold_is_read(task)
    assert "has a gold that cannot be read" not in faults(task)


@pytest.mark.hazard("A40")
def test_the_known_faults_of_the_real_test_set_are_listed() -> None:
    task = aqua(real("aqua_test"))
    assert sorted(item.id for item in task.items() if item.suspect) == sorted(SUSPECT)
    found = faults(task)
    twice = [n for n, item in enumerate(task.items()) if item.id in found["has options with the same text"]]
    assert twice == [117, 120, 124, 126, 185, 193, 198]
    # Its keyed text stands at A and C: C is right as well.
    item = task.items()[117]
    assert [task.score(task.read(f"The answer is ({letter}).", item), item) for letter in "ABC"] == [1.0, 0.0, 1.0]
