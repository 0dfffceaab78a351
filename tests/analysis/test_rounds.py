"""A run round by round, and what could be read of its replies."""

import json
from pathlib import Path

import pytest

import debate_local
from debate_local.analysis.reading import readable
from debate_local.analysis.rounds import SIDE_BY_SIDE, by_round, decisions_for
from debate_local.cli import main
from debate_local.sweep.store import Run
from tests.tasks.data import jsonl

pytestmark = pytest.mark.slow

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
    first, second = by_round(run(tmp_path), SIDE_BY_SIDE)
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
    assert by_round(one, ["majority"])[-1].scores["majority"] == one.debates["score"].mean()


def test_decisions_by_confidence_are_told_where_there_are_confidences(tmp_path: Path) -> None:
    assert decisions_for(run(tmp_path)) == list(SIDE_BY_SIDE)
    assert decisions_for(run(tmp_path, "protocol.confidence=none")) == ["majority"]


def test_what_could_be_read_is_counted_by_model_round_and_length_of_prompt(tmp_path: Path) -> None:
    found = {(one.model, one.round): one for one in readable(run(tmp_path))}
    assert found.keys() == {(model, round) for model in "abc" for round in (0, 1)}
    alone, discussed = found["a", 0], found["a", 1]
    assert (alone.role, alone.prompt, alone.replies) == ("debater", "<= 256", 2)
    assert (alone.answer, alone.confidence, alone.stance, alone.json) == (1.0, 1.0, None, None)
    assert (discussed.replies, discussed.answer, discussed.confidence, discussed.stance) == (1, 1.0, 0.0, 0.5)


def test_what_was_not_asked_for_is_no_share_and_what_failed_is_no_reply(tmp_path: Path) -> None:
    lines = readable(run(tmp_path, "protocol.confidence=none"))
    assert {one.confidence for one in lines} == {None}
    half = readable(run(tmp_path, "engine.fail=0.5"))
    assert 0 < sum(one.replies for one in half if one.round == 0) < 6


def test_ballots_are_read_and_helpers_are_lines_of_their_own(tmp_path: Path) -> None:
    script = tmp_path / "judge.yaml"
    script.write_text(
        "- match: You are the judge\n  reply: 'Choice: Z'\n- reply: ['The answer is 5.', 'The answer is 6.']\n"
    )
    (one,) = debate_local.run(
        [
            *("task=jsonl", "engine=scripted", f"task.path={jsonl(tmp_path / 'own.jsonl', ROWS)}"),
            *(f"engine.replies={script}", "decision=judge", "controls=false", f"output={tmp_path / 'judged'}"),
        ]
    ).runs
    by_role = {line.role: line for line in readable(one)}
    assert by_role.keys() == {"debater", "judge"}
    assert (by_role["judge"].answer, by_role["judge"].confidence) == (0.0, None)


def test_show_tells_rounds_and_what_could_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = run(tmp_path)
    capsys.readouterr()
    assert main(["show", str(one.folder)]) == 0
    told = capsys.readouterr().out
    assert "by round: accuracy %" in told and "what could be read of replies" in told and "stance %" in told
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
