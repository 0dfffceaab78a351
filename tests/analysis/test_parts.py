"""A run's score by subject, without doubted golds, and its trap rate by round."""

from pathlib import Path

import pytest

import debate_local
from debate_local.analysis.parts import by_group, trap_rate, without_suspects
from debate_local.sweep.store import Run
from tests.tasks.data import jsonl


def row(number: int, group: str, target: str, trap: str | None = None) -> dict[str, object]:
    told = {"id": f"{group}-{number}", "question": f"Question {number} of {group}", "target": target, "group": group}
    return {**told, "trap": trap} if trap else told


ROWS = [row(1, "b", "5"), row(2, "a", "5"), row(3, "b", "7"), row(4, "a", "5")]


def run(tmp_path: Path, rows: list[dict[str, object]], replies: str, *overrides: str) -> Run:
    (tmp_path / "replies.yaml").write_text(replies)
    sweep = debate_local.run(
        [
            *("task=jsonl", f"task.path={jsonl(tmp_path / 'own.jsonl', rows)}", "engine=scripted"),
            *(f"engine.replies={tmp_path / 'replies.yaml'}", "controls=false", f"output={tmp_path / 'runs'}"),
            *overrides,
        ]
    )
    return sweep.runs[0]


def test_the_score_of_each_subject_is_over_its_items(tmp_path: Path) -> None:
    found = by_group(run(tmp_path, ROWS, "- reply: The answer is 5.\n"))
    assert {group: (score.value, score.n) for group, score in found.items()} == {"b": (0.5, 2), "a": (1.0, 2)}
    assert list(found) == ["b", "a"]


def test_a_task_without_subjects_has_none(tmp_path: Path) -> None:
    plain = [{key: value for key, value in one.items() if key != "group"} for one in ROWS]
    assert by_group(run(tmp_path, plain, "- reply: The answer is 5.\n")) == {}


@pytest.mark.hazard("A40")
def test_the_second_score_leaves_out_items_whose_gold_is_doubted(tmp_path: Path) -> None:
    said = "- reply: The answer is 5.\n"
    one = run(tmp_path, ROWS, said, "suspects=[b-3]")
    assert one.debates["score"].mean() == 0.75
    second = without_suspects(one)
    assert second is not None and (second.value, second.n) == (1.0, 3)
    assert without_suspects(run(tmp_path, ROWS, said)) is None


def test_the_trap_rate_is_by_round_and_counts_silence_as_not_trapped(tmp_path: Path) -> None:
    rows = [row(n, "x", "5", trap="6") for n in range(1, 5)]
    # In round 1 everybody has heard the others; only then does anyone answer 6.
    said = "- match: updated answer\n  reply: The answer is 6.\n- match: Question [12]\n  reply: No idea.\n"
    found = trap_rate(run(tmp_path, rows, said + "- reply: The answer is 6.\n", "protocol.agents=3"))
    assert {round: (rate.value, rate.n) for round, rate in found.items()} == {0: (0.5, 12), 1: (1.0, 12)}
    assert trap_rate(run(tmp_path, ROWS, said + "- reply: The answer is 6.\n")) == {}
