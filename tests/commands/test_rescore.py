"""`rescore` reads stored replies by today's rules, follows them to the decisions, and leaves the run as it was."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import debate_local
from debate_local.cli import main
from debate_local.sweep.store import Run

ARGUMENTS = ["engine=scripted", "task=arithmetic", "protocol=debate", "limit=4", "controls=false"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Run:
    (run,) = debate_local.run([*ARGUMENTS, f"output={tmp_path_factory.mktemp('runs')}"]).runs
    return run


@pytest.fixture
def stored(finished: Run, tmp_path: Path) -> Run:
    """A copy that a test may change."""
    shutil.copytree(finished.folder, tmp_path / finished.id)
    run = debate_local.load(tmp_path / finished.id)
    assert isinstance(run, Run)
    return run


def changed_turns(run: Run, change: Callable[[dict[str, Any]], dict[str, Any] | None]) -> None:
    """Write the turns table again, row by row as `change` has it; None drops a row."""
    rows = [row for old in run.turns.to_dicts() if (row := change(old)) is not None]
    pl.DataFrame(rows, schema=run.turns.schema).write_parquet(run.folder / "turns.parquet")


def rescored(run: Run, capsys: pytest.CaptureFixture[str], code: int = 0) -> dict[str, Any]:
    assert main(["rescore", str(run.folder), "--json"]) == code
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    return told


def files(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_a_run_read_by_the_same_rules_is_as_it_was_and_nothing_is_written(
    stored: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files(stored.folder.parent)
    told = rescored(stored, capsys)
    assert told["turns_read"] == len(stored.turns) and told["debates"] == len(stored.debates) == 4
    assert not told["turns"] and not told["decisions"] and not told["other_rule"] and not told["reworded"]
    assert told["before"] == told["after"] == stored.debates["score"].mean()
    assert files(stored.folder.parent) == before


def test_no_engine_is_made(stored: Run, capsys: pytest.CaptureFixture[str]) -> None:
    record = json.loads((stored.folder / "run.json").read_text())
    record["engine"] = {"name": "an engine of old", "weights": "/nowhere"}
    (stored.folder / "run.json").write_text(json.dumps(record))
    assert rescored(stored, capsys)["debates"] == 4


def test_other_readings_are_shown_and_followed_to_the_decision(stored: Run, capsys: pytest.CaptureFixture[str]) -> None:
    item = stored.debates["item_id"][0]
    target = stored.debates["target"][0]

    def change(row: dict[str, Any]) -> dict[str, Any]:
        # As if the model had said something else in its last round, and an older reader had not understood it.
        if row["item_id"] == item and row["round"] == 1:
            said = f"So it comes to \\boxed{{{target}}}."
            return {
                **row,
                "text": said,
                "raw": None,
                "answer": None,
                "answer_key": None,
                "answer_rule": "old",
                "score": 0.0,
            }
        return row

    debates = stored.debates.with_columns(
        score=pl.when(pl.col("item_id") == item).then(0.0).otherwise(pl.col("score")),
        answer=pl.when(pl.col("item_id") == item).then(None).otherwise(pl.col("answer")),
        answer_key=pl.when(pl.col("item_id") == item).then(None).otherwise(pl.col("answer_key")),
    )
    debates.write_parquet(stored.folder / "debates.parquet")
    changed_turns(stored, change)
    told = rescored(debate_local.load(stored.folder), capsys)  # type: ignore[arg-type]
    assert [(c["item"], c["agent"], c["round"]) for c in told["turns"]] == [(item, agent, 1) for agent in range(3)]
    for turn in told["turns"]:
        assert turn["before"] == {"answer": None, "rule": "old", "score": 0.0}
        assert turn["after"] == {"answer": target, "rule": "boxed", "score": 1.0}
    (decision,) = told["decisions"]
    assert (decision["before"]["answer"], decision["after"]["answer"]) == (None, target)
    assert told["after"] == told["before"] + 0.25
    assert main(["rescore", str(stored.folder)]) == 0
    text = capsys.readouterr().out
    for part in ("3 turns that are read otherwise", "1 decisions that are others", "nothing was written", target):
        assert part in text


def test_the_same_answer_by_another_rule_is_counted(stored: Run, capsys: pytest.CaptureFixture[str]) -> None:
    changed_turns(stored, lambda row: {**row, "answer_rule": "an old name"})
    told = rescored(stored, capsys)
    assert told["other_rule"] == len(stored.turns) and not told["turns"]


def test_prompts_that_are_worded_otherwise_today_are_counted(stored: Run, capsys: pytest.CaptureFixture[str]) -> None:
    record = json.loads((stored.folder / "run.json").read_text())
    record["templates"]["debate"] = "{{ peers|length }} others spoke. {{ answer_format }}"
    (stored.folder / "run.json").write_text(json.dumps(record))
    told = rescored(stored, capsys)
    assert told["reworded"] == 12 and told["debates"] == 4


def test_a_debate_that_asks_for_what_is_not_stored_is_named_and_left_out(
    stored: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    item = stored.debates["item_id"][2]
    changed_turns(stored, lambda row: None if (row["item_id"], row["agent"], row["round"]) == (item, 1, 1) else row)
    told = rescored(stored, capsys, code=1)
    assert told["debates"] == 3
    assert told["not_replayed"] == {item: "it asks for what is not stored (agent.round): 1.1"}
    assert main(["rescore", str(stored.folder)]) == 1
    assert f"not replayed: item {item}" in capsys.readouterr().out


def test_an_item_that_the_task_has_no_more_is_named(stored: Run, capsys: pytest.CaptureFixture[str]) -> None:
    stored.debates.with_columns(item_id=pl.lit("gone")).write_parquet(stored.folder / "debates.parquet")
    changed_turns(stored, lambda row: {**row, "item_id": "gone"})
    told = rescored(stored, capsys, code=1)
    assert told["not_replayed"] == {"gone": "the task has no such item today"} and told["before"] is None


def test_another_gold_counts_and_is_told(stored: Run, capsys: pytest.CaptureFixture[str]) -> None:
    stored.debates.with_columns(target=pl.lit("-1"), score=pl.lit(0.0)).write_parquet(stored.folder / "debates.parquet")
    told = rescored(stored, capsys)
    assert told["new_golds"] == 4 and told["before"] == 0.0 and told["after"] > 0.0


def test_a_sweep_is_refused_with_its_runs(finished: Run, capsys: pytest.CaptureFixture[str]) -> None:
    (sweep,) = (finished.folder.parent / "sweeps").iterdir()
    assert main(["rescore", str(sweep)]) == 2
    assert finished.id in capsys.readouterr().err
