"""StrategyQA: yes or no, and facts that may be shown as evidence."""

from pathlib import Path

import pytest

from debate_local.core.transcript import Evidence
from debate_local.tasks.rows import TaskDataError
from debate_local.tasks.strategyqa import strategyqa
from tests.tasks.data import assert_every_gold_is_read, faults, jsonl, real, real_rows

ROW = {
    "qid": "0a1b",
    "question": "Could an oak be older than a king?",
    "answer": True,
    "facts": ["Oaks live for centuries.", "Kings are people."],
}


def test_facts_are_evidence_that_is_correct_and_the_explanation(tmp_path: Path) -> None:
    (item,) = strategyqa(jsonl(tmp_path / "a.jsonl", [ROW])).items()
    assert (item.id, item.target) == ("0a1b", "yes")
    assert item.evidence == (
        Evidence("0a1b-1", "StrategyQA, facts", "Oaks live for centuries.", True),
        Evidence("0a1b-2", "StrategyQA, facts", "Kings are people.", True),
    )
    assert item.explanation == "Oaks live for centuries. Kings are people."


def test_a_label_that_is_no_boolean_is_no_gold(tmp_path: Path) -> None:
    rows = [{**ROW, "answer": False}, {**ROW, "qid": "2", "question": "Other?", "answer": 1}]
    task = strategyqa(jsonl(tmp_path / "a.jsonl", rows))
    assert [item.target for item in task.items()] == ["no", "no true or false: 1"]
    assert faults(task)["has a gold that cannot be read"] == ("2",)
    with pytest.raises(TaskDataError, match="no gold can be read"):
        strategyqa(jsonl(tmp_path / "b.jsonl", [{**ROW, "answer": "yes"}]))


@pytest.mark.parametrize("split", ["dev", "train"])
def test_every_real_gold_is_read(split: str) -> None:
    task, rows = strategyqa(real(f"strategyqa_{split}")), real_rows(f"strategyqa_{split}")
    assert [item.target == "yes" for item in task.items()] == [row["answer"] for row in rows]
    assert [[one.text for one in item.evidence] for item in task.items()] == [row["facts"] for row in rows]
    assert task.metric.chance == 0.5
    assert_every_gold_is_read(task)
    for item in task.items():
        assert task.read(item.question, item).missing
