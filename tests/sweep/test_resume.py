"""`resume`: what is missing and nothing else, from the frozen plan; failed requests are asked again when asked for."""

import json
from pathlib import Path

import pytest

import debate_local
from debate_local.cli import main
from debate_local.sweep.compose import compose
from debate_local.sweep.frozen import freeze
from debate_local.sweep.plan import make_plan
from debate_local.sweep.run import run_plan
from debate_local.sweep.store import Run, Sweep, load_sweep
from tests.sweep.test_run import assert_equal_tables, sent

pytestmark = pytest.mark.slow

SWEEP = ["engine=scripted", "task=arithmetic", "limit=12", "protocol.rounds=1,2"]


def with_failures(output: Path) -> Sweep:
    return debate_local.run([*SWEEP, f"output={output}", "engine.fail=0.2"], multirun=True)


def failures(sweep: Sweep) -> int:
    return int(sum(run.debates["failed"].sum() for run in sweep.runs))


@pytest.mark.hazard("C22")
def test_failed_requests_are_asked_again_only_when_asked_for_and_nothing_is_overwritten(tmp_path: Path) -> None:
    first = with_failures(tmp_path)
    assert failures(first) > 0
    whole = debate_local.run([*SWEEP, f"output={tmp_path / 'whole'}"], multirun=True)
    # The same sweep on an engine that does not fail: a plain rerun leaves the failures.
    again = debate_local.run([*SWEEP, f"output={tmp_path}"], multirun=True)
    assert sent(again) == 0 and failures(again) == failures(first)
    bad = [run for run in again.runs if run.debates["failed"].sum()]
    before = {run.id: (run.folder / "turns.parquet").read_bytes() for run in bad}
    assert main(["resume", str(again.folder), "--retry-failed"]) == 0
    retried = load_sweep(again.folder)
    assert failures(retried) == 0
    assert_equal_tables(whole, retried)
    assert 0 < sent(retried) < sent(whole)
    for run in bad:
        assert (run.folder / "earlier-1" / "turns.parquet").read_bytes() == before[run.id]
    assert not any((run.folder / "earlier-1").exists() for run in retried.runs if run.id not in before)


def test_failed_requests_are_asked_again_shard_by_shard_too(tmp_path: Path) -> None:
    with_failures(tmp_path)
    whole = debate_local.run([*SWEEP, f"output={tmp_path / 'whole'}"], multirun=True)
    cells, how = compose([*SWEEP, f"output={tmp_path}"], multirun=True)
    plan = freeze(make_plan(cells), how, [], 3)
    for number in range(3):
        assert main(["work", str(plan.folder), "--shard", f"{number}/3", "--retry-failed"]) == 0
    retried = load_sweep(plan.folder)
    assert failures(retried) == 0
    assert_equal_tables(whole, retried)


def test_what_changed_is_told_and_needs_anyway(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = debate_local.run([*SWEEP, f"output={tmp_path}"], multirun=True)
    record = json.loads((sweep.folder / "plan.json").read_text())
    record["made_with"]["commit"] = "an older one"
    record["made_with"]["version of polars"] = "0.0.1"
    (sweep.folder / "plan.json").write_text(json.dumps(record))
    assert main(["resume", str(sweep.folder)]) == 2
    told = capsys.readouterr()
    assert "commit: was an older one" in told.out and "version of polars: was 0.0.1" in told.out
    assert "--anyway" in told.err
    assert main(["resume", str(sweep.folder), "--anyway"]) == 0


@pytest.mark.hazard("C07", "C17")
def test_a_worker_whose_rows_changed_meanwhile_refuses_and_leaves_its_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rows.jsonl"
    rows = [{"question": f"What is {n} + 1?", "answer": f"#### {n + 1}"} for n in range(4)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    cells, how = compose(["engine=scripted", "task=gsm8k", f"task.path={file}", f"output={tmp_path / 'runs'}"])
    plan = freeze(make_plan(cells), how, [], 2)
    file.write_text("".join(json.dumps({**row, "question": "Changed?" + row["question"]}) + "\n" for row in rows))
    assert main(["work", str(plan.folder), "--shard", "0/2"]) == 2
    assert "rows of task gsm8k" in capsys.readouterr().err
    (log,) = plan.folder.glob("logs/events*")
    end = json.loads(log.read_text().splitlines()[-1])
    assert "rows of task gsm8k" in end["problems"][0] and "Traceback" in end["trace"]
    assert main(["status", str(plan.folder)]) == 1
    assert "rows of task gsm8k" in capsys.readouterr().out
    # The new rows make a sweep of their own.
    assert main(["resume", str(plan.folder), "--anyway"]) == 0
    assert len(list((tmp_path / "runs" / "sweeps").iterdir())) == 2


@pytest.mark.hazard("C07")
def test_config_files_edited_after_the_start_change_nothing(tmp_path: Path) -> None:
    cells, how = compose(["engine=scripted", "task=arithmetic", "limit=3", f"output={tmp_path}"])
    plan = freeze(make_plan(cells), how, [])
    record = json.loads((plan.folder / "plan.json").read_text())
    assert record["cells"][0]["protocol"] == {"name": "debate", **dict(cells[0].protocol.options)}
    assert record["cells"][0]["cast"][0]["sampling"]["temperature"] == cells[0].cast[0].sampling.temperature
    # Nothing of a worker's start reads conf/: the frozen cells are all it needs.
    assert [run.id for run in plan.plan().runs] == [run["id"] for run in record["runs"]]


@pytest.mark.parametrize(
    "content, told", [(None, "does not exist"), ("{torn", "cannot be read"), ("{}", "cannot be read")]
)
def test_a_plan_that_is_gone_or_torn_is_told(
    content: str | None, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = debate_local.run([*SWEEP, f"output={tmp_path}"], multirun=True)
    path = sweep.folder / "plan.json"
    path.unlink() if content is None else path.write_text(content)
    for command in ("resume", "status", "work"):
        assert main([command, str(sweep.folder)]) == 2
        assert told in capsys.readouterr().err


def test_a_sweep_of_a_newer_version_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = debate_local.run([*SWEEP, f"output={tmp_path}"], multirun=True)
    record = json.loads((sweep.folder / "plan.json").read_text())
    (sweep.folder / "plan.json").write_text(json.dumps(record | {"schema_version": 99}))
    assert main(["resume", str(sweep.folder)]) == 2
    assert "Update debate-local" in capsys.readouterr().err


def test_a_larger_limit_and_new_seeds_reuse_a_stopped_sweep(tmp_path: Path) -> None:
    cells, how = compose([*SWEEP, f"output={tmp_path}", "stop.tokens=200", "max_live=4"], multirun=True)
    result = run_plan(make_plan(cells), how)
    assert result.stopped and result.sent > 0
    larger = debate_local.run([*SWEEP, f"output={tmp_path}", "limit=20", "seed=0,1"], multirun=True)
    fresh = debate_local.run([*SWEEP, f"output={tmp_path / 'fresh'}", "limit=20", "seed=0,1"], multirun=True)
    assert_equal_tables(fresh, larger)
    assert sent(larger) == sent(fresh) - result.sent
    assert all(isinstance(run, Run) and run.done for run in larger.runs)
