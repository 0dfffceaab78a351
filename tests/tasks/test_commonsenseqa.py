"""CommonsenseQA: the original's nested form and the hub's flat one."""

from pathlib import Path

from debate_local.tasks.commonsenseqa import commonsenseqa
from tests.tasks.data import assert_every_gold_is_read, faults, jsonl, real, real_rows

TEXTS = ["field", "house", "lake"]
NESTED = {
    "id": "0a1b",
    "answerKey": "B",
    "question": {
        "stem": "Where would you stay dry?",
        "choices": [{"label": label, "text": told} for label, told in zip("ABC", TEXTS, strict=True)],
    },
}
FLAT = {
    "id": "0a1b",
    "answerKey": "B",
    "question": "Where would you stay dry?",
    "choices": {"label": ["A", "B", "C"], "text": TEXTS},
}


def test_both_forms_give_the_same_item(tmp_path: Path) -> None:
    nested = commonsenseqa(jsonl(tmp_path / "a.jsonl", [NESTED])).items()
    assert nested == commonsenseqa(jsonl(tmp_path / "b.jsonl", [FLAT])).items()
    assert (nested[0].id, nested[0].target, nested[0].choices) == ("0a1b", "B", tuple(TEXTS))


def test_a_row_of_the_test_set_has_no_gold(tmp_path: Path) -> None:
    task = commonsenseqa(jsonl(tmp_path / "a.jsonl", [FLAT, {**FLAT, "id": "2", "answerKey": ""}]))
    assert faults(task)["has a gold that cannot be read"] == ("2",)


def test_every_real_gold_is_read() -> None:
    task, rows = commonsenseqa(real("commonsenseqa_dev")), real_rows("commonsenseqa_dev")
    for item, row in zip(task.items(), rows, strict=True):
        keyed = {choice["label"]: choice["text"] for choice in row["question"]["choices"]}
        assert item.id == row["id"] and item.choices["ABCDE".index(item.target)] == keyed[row["answerKey"]]
    assert_every_gold_is_read(task)
