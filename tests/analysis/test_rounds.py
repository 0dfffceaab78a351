"""A run round by round, and what could be read of its replies."""

import json
from pathlib import Path

import pytest

import debate_local
from debate_local.analysis.readable import readable, unread_confidences
from debate_local.analysis.rounds import SIDE_BY_SIDE, decisions_for, round_by_round
from debate_local.cli import main
from debate_local.sweep.store import Run
from tests.tasks.data import jsonl

pytestmark = pytest.mark.slow

SHARES = ("answers", "confidences", "stances", "json")
# Three models with a question each: `one` is agreed on at once, on `two` agents 2 and 3 come over to the first.
ROWS = [{"id": name, "question": f"Question {name}?", "target": "5"} for name in ("one", "two")]
FIRST = {"a": "The answer is 5.\nConfidence: 1", "b": "The answer is 6.\nConfidence: 0.7"}
SCRIPT = """\
- match: 'Question two[\\s\\S]*were asked this'
  reply: "Group 1: agree\\nGroup 2: well\\nI see. The answer is 5.\\nConfidence: high"
- match: 'Question one'
  reply: "The answer is 5.\\nConfidence: 0.9"
- reply: "{}"
"""


def run(tmp_path: Path, *overrides: str) -> Run:
    """A round table whose first model says 5 and is certain, and the others 6 and are fairly sure."""
    models = []
    for name, first in (("a", "a"), ("b", "b"), ("c", "b")):
        script = tmp_path / f"{name}.yaml"
        script.write_text(SCRIPT.replace("{}", FIRST[first].replace("\n", "\\n")))
        models.append(f"engine.models.{name}.replies={script}")
    options = ["protocol=reconcile", "cast=[{model: a}, {model: b}, {model: c}]", "controls=false"]
    sweep = debate_local.run(
        [
            *("task=jsonl", "engine=scripted", f"task.path={jsonl(tmp_path / 'own.jsonl', ROWS)}"),
            *(*models, *options, f"output={tmp_path / 'runs'}", *overrides),
        ]
    )
    return sweep.runs[0]


def test_each_round_has_the_scores_of_several_decisions_side_by_side(tmp_path: Path) -> None:
    first, second = round_by_round(run(tmp_path), SIDE_BY_SIDE)
    assert (first.round, first.spoke, first.agreed) == (0, 1.0, 0.5)
    # On `two` 1.0 stands against 0.3 + 0.3, and one vote against two.
    assert first.scores == {"weighted:rescaled": 1.0, "majority": 0.5, "most_confident:verbal": 1.0}
    assert first.by_agent == (1.0, 0.5, 0.5)
    # `one` has ended and keeps its answers; on `two` nobody says how sure it is any more.
    assert (second.round, second.spoke, second.agreed) == (1, 0.5, 1.0)
    assert second.scores == {"weighted:rescaled": 0.5, "majority": 1.0, "most_confident:verbal": 0.5}
    assert second.by_agent == (1.0, 1.0, 1.0)


def test_the_last_round_is_what_the_run_would_be_decided_as(tmp_path: Path) -> None:
    one = run(tmp_path, "decision=majority")
    assert round_by_round(one, ["majority"])[-1].scores["majority"] == one.debates["score"].mean()


def test_decisions_by_confidence_are_told_where_there_are_confidences(tmp_path: Path) -> None:
    assert decisions_for(run(tmp_path)) == list(SIDE_BY_SIDE)
    assert decisions_for(run(tmp_path, "protocol.confidence=none")) == ["majority"]


def test_what_could_be_read_is_counted_by_model_and_round_stances_among_it(tmp_path: Path) -> None:
    found = {(row["model"], row["round"]): row for row in readable(run(tmp_path)).iter_rows(named=True)}
    assert found.keys() == {(model, round) for model in "abc" for round in (0, 1)}
    alone, discussed = found["a", 0], found["a", 1]
    assert (alone["role"], alone["prompt"], alone["replies"]) == ("debater", 256, 2)
    assert [alone[share] for share in SHARES] == [1.0, 1.0, None, None]
    # One of its two stances, and no confidence in words.
    assert (discussed["replies"], [discussed[share] for share in SHARES]) == (1, [1.0, 0.0, 0.5, None])


def test_what_was_not_asked_for_is_no_share(tmp_path: Path) -> None:
    table = readable(run(tmp_path, "protocol.confidence=none", "protocol.rounds=1"))
    assert set(table["confidences"]) == set(table["stances"]) == {None}


def test_replies_without_a_readable_confidence_are_told_in_the_sweeps_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = run(tmp_path)
    # Three of nine: those of the second round, in words.
    assert unread_confidences(one) == pytest.approx(1 / 3)
    capsys.readouterr()
    (sweep,) = one.folder.parent.glob("sweeps/*")
    assert main(["show", str(sweep)]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "replies in which no confidence could be read: reconcile agents=3 rounds=4 33.3 %" in told
    assert unread_confidences(run(tmp_path, "protocol.confidence=none")) is None


def test_show_tells_rounds_and_what_could_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = run(tmp_path)
    capsys.readouterr()
    assert main(["show", str(one.folder)]) == 0
    told = capsys.readouterr().out
    assert "by round: accuracy %" in told and "--readable" in told
    assert main(["show", str(one.folder), "--readable"]) == 0
    assert "stances %" in capsys.readouterr().out
    assert main(["show", str(one.folder), "--item", "two"]) == 0
    told = capsys.readouterr().out
    assert "the team after round 0: weighted:rescaled: 5; majority: 6; most_confident:verbal: 5" in told
    assert "the team after round 1: weighted:rescaled: no answer; majority: 5" in told
    assert "confidence 0.7" in told and "6: agree  5: no stance" in told


def test_decide_tells_each_decision_after_every_round(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = run(tmp_path)
    capsys.readouterr()
    assert main(["decide", str(one.folder), "decision=majority,weighted:rescaled", "--by-round", "--json"]) == 0
    told = {line["rule"]: line["by_round"] for line in json.loads(capsys.readouterr().out)}
    assert told == {"majority": [0.5, 1.0], "weighted:rescaled": [1.0, 0.5]}
    assert main(["decide", str(one.folder), "decision=majority", "--by-round"]) == 0
    assert "by round: accuracy %" in capsys.readouterr().out
