"""ECQA: the answer is a text, not a letter; explanations by people."""

import csv
from pathlib import Path

from debate_local.tasks.ecqa import ecqa
from tests.tasks.data import assert_every_gold_is_read, faults, jsonl, real, real_rows

ROW = {
    "q_no": "0a1b",
    "q_text": "Where would you stay dry?",
    **{f"q_op{n}": text for n, text in enumerate(["field", "house", "lake", "no", "street"], start=1)},
    "q_ans": "house",
    "taskB": "A house has a roof,\nwhich keeps the rain off.",
}


def test_the_answers_text_becomes_its_letter(tmp_path: Path) -> None:
    (item,) = ecqa(jsonl(tmp_path / "a.jsonl", [ROW])).items()
    assert (item.id, item.target, item.choices[3]) == ("0a1b", "B", "no")
    assert item.explanation == ROW["taskB"]


def test_a_csv_file_with_an_unnamed_column_and_line_breaks_gives_the_same_items(tmp_path: Path) -> None:
    path = tmp_path / "cqa_data_test.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["", *ROW])
        writer.writerow(["0", *ROW.values()])
    assert ecqa(str(path)).items() == ecqa(jsonl(tmp_path / "a.jsonl", [ROW])).items()


def test_an_answer_that_is_no_option_cannot_be_read(tmp_path: Path) -> None:
    task = ecqa(jsonl(tmp_path / "a.jsonl", [ROW, {**ROW, "q_no": "2", "q_ans": "tent"}]))
    assert faults(task)["has a gold that cannot be read"] == ("2",)


def test_every_real_gold_is_read() -> None:
    task, rows = ecqa(real("ecqa_test")), real_rows("ecqa_test")
    assert [item.choices["ABCDE".index(item.target)] for item in task.items()] == [row["q_ans"] for row in rows]
    assert all(item.explanation for item in task.items())
    assert_every_gold_is_read(task)
    doubled = [n for n, row in enumerate(rows) if [row[f"q_op{k}"] for k in range(1, 6)].count(row["q_ans"]) > 1]
    assert doubled[:2] == [28, 105]
    for number in doubled:
        item = task.items()[number]
        letters = [letter for letter, text in zip("ABCDE", item.choices, strict=True) if text == rows[number]["q_ans"]]
        assert [task.score(task.read(f"The answer is ({x}).", item), item) for x in letters] == [1.0, 1.0]
