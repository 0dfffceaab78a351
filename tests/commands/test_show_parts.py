"""`show` prints what only some tasks have: groups, doubted golds, tempting wrong answers."""

import json
from pathlib import Path

import pytest

import debate_local
from debate_local.cli import main


def test_traps_are_told_by_round(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"question": f"A bat and a ball cost {n + 1}.{n}?", "answer": [str(n)], "explanation": "x",
         "incorrect answer": [str(n + 1)], "incorrect explanation": "y"}
        for n in range(1, 7)
    ]  # fmt: skip
    file = tmp_path / "ciar.json"
    file.write_text(json.dumps(rows))
    overrides = ["task=ciar", f"task.path={file}", "engine=scripted", f"output={tmp_path / 'runs'}"]
    sweep = debate_local.run(overrides)
    capsys.readouterr()
    assert main(["show", str(sweep.folder)]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "gave the tempting wrong answer: debate agents=3 rounds=2: round 0 " in told and "round 1 " in told


def test_groups_are_a_table_under_the_items(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"question": f"Which is number {n}?", "choices": ["one", "two", "three", "four"], "answer": n % 4,
         "subject": "anatomy" if n < 3 else "virology"}
        for n in range(5)
    ]  # fmt: skip
    file = tmp_path / "mmlu.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    sweep = debate_local.run(["task=mmlu", f"task.path={file}", "engine=scripted", f"output={tmp_path / 'runs'}"])
    capsys.readouterr()
    assert main(["show", str(sweep.runs[0].folder)]) == 0
    told = capsys.readouterr().out
    assert "by group" in told and "anatomy" in told and "virology" in told
