"""A switch that turns thinking off is checked against what came back."""

import json
from pathlib import Path
from typing import Any

import pytest

import debate_local
from debate_local.cli import main
from debate_local.sweep.store import Sweep
from debate_local.sweep.thinking import switched_off

pytestmark = pytest.mark.hazard("B21")

OBEYS = "- reply: The answer is 7.\n"
THINKS_ON = "- match: latest replies\n  reply: The answer is 7.\n- reply: <think>Is it 7?</think>The answer is 7.\n"


def overrides(tmp_path: Path, script: str, cast: str) -> list[str]:
    (tmp_path / "replies.yaml").write_text(script)
    scripted = ["engine=scripted", f"engine.replies={tmp_path / 'replies.yaml'}", "task=arithmetic", "limit=2"]
    return [*scripted, f"cast=[{cast}]", "controls=false", f"output={tmp_path / 'runs'}"]


def warnings(sweep: Sweep) -> list[str]:
    lines = [line for log in (sweep.folder / "logs").glob("*.jsonl") for line in log.read_text().splitlines()]
    return [event["text"] for event in map(json.loads, lines) if event["event"] == "warning"]


OFF, ON = "{template_args: {enable_thinking: false}}", "{template_args: {enable_thinking: true}}"


def test_thoughts_in_spite_of_the_switch_are_counted_and_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = overrides(tmp_path, THINKS_ON, OFF)
    assert main(["run", *command]) == 0
    shown = " ".join(capsys.readouterr().err.split())
    # Of 2 items, 3 agents and 2 rounds; in the second round the script obeys.
    assert "model default: 6 of 12 turns hold a thought although enable_thinking=false switches thinking off" in shown
    # Cached replies are no exception, and the switch is stored.
    sweep = debate_local.run([*command, "protocol.rounds=1"])
    assert "6 of 6 turns" in warnings(sweep)[0]
    assert sweep.runs[0].record["cast"][0]["template_args"] == {"enable_thinking": False}


@pytest.mark.parametrize(("script", "cast"), [(OBEYS, OFF), (THINKS_ON, ON), (THINKS_ON, "{}")])
def test_nothing_is_told_where_a_model_thinks_as_it_was_told(tmp_path: Path, script: str, cast: str) -> None:
    assert warnings(debate_local.run(overrides(tmp_path, script, cast))) == []


@pytest.mark.parametrize(
    ("template_args", "switch"),
    [
        ({"enable_thinking": False}, "enable_thinking=false"),
        ({"thinking": False, "date": "today"}, "thinking=false"),
        ({"thinking_budget": 0}, "thinking_budget=0"),
        ({"reasoning_effort": "none"}, "reasoning_effort=none"),
        ({"enable_thinking": True}, ""),
        ({"reasoning_effort": "low"}, ""),
        ({"thinking_budget": [0]}, ""),
        ({"tools": False}, ""),
        ({}, ""),
    ],
)
def test_the_switches_of_the_families_are_known(template_args: dict[str, Any], switch: str) -> None:
    assert switched_off(template_args) == switch
