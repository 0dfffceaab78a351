"""ARC: three layouts, labels that are letters or numbers, three to five options."""

from pathlib import Path

import pytest

from debate_local.tasks.arc import arc
from tests.tasks.data import assert_every_gold_is_read, faults, jsonl, real, real_rows

TEXTS = ["salt", "light", "sand"]
HUB = {
    "id": "Example_7_1",
    "question": "What do plants need?",
    "choices": {"text": TEXTS, "label": ["1", "2", "3"]},
    "answerKey": "2",
}
FIRST = {
    "id": "Example_7_1",
    "question": {
        "stem": "What do plants need?",
        "choices": [{"text": told, "label": label} for told, label in zip(TEXTS, "ABC", strict=True)],
    },
    "answerKey": "B",
}
INSTRUCTION = {
    "instruction": "Please choose the correct answer to the question: What do plants need?\n\n"
    "Answer1: salt Answer2: light Answer3: sand\n\nAnswer format: answer1/answer2/answer3",
    "output": "the correct answer is answer2",
    "answer": "answer2",
}


@pytest.mark.parametrize("row", [HUB, FIRST, INSTRUCTION], ids=["hub", "first", "instruction"])
def test_every_layout_gives_the_same_question(tmp_path: Path, row: dict[str, object]) -> None:
    (item,) = arc(jsonl(tmp_path / "a.jsonl", [row])).items()
    assert item.question == "What do plants need?\n\n(A) salt\n(B) light\n(C) sand"
    assert (item.target, item.choices) == ("B", tuple(TEXTS))


def test_an_instruction_of_another_form_or_a_wrong_key_cannot_be_read(tmp_path: Path) -> None:
    rows = [INSTRUCTION, {**INSTRUCTION, "answer": "answer4"}, {"instruction": "Choose: a or b", "answer": "answer1"}]
    task = arc(jsonl(tmp_path / "a.jsonl", rows))
    assert faults(task)["has a gold that cannot be read"] == tuple(item.id for item in task.items()[1:])


def test_every_real_gold_is_read() -> None:
    task, rows = arc(real("arc_challenge_test")), real_rows("arc_challenge_test")
    for item, row in zip(task.items(), rows, strict=True):
        assert item.target == "ABCDE"[int(row["answer"][-1]) - 1]
        for letter, told in zip("ABCDE", item.choices, strict=False):
            assert f"Answer{'ABCDE'.index(letter) + 1}: {told}" in row["instruction"]
        assert "Answer format" not in item.question and "Please choose" not in item.question
    assert {len(item.choices) for item in task.items()} == {3, 4}
    assert_every_gold_is_read(task)
