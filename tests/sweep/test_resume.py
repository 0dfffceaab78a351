"""`resume`: what is missing and nothing else, from the frozen plan; failed requests are asked again when asked for."""

import json
import re
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

SWEEP = ["engine=scripted", "task=arithmetic", "limit=12", "protocol.rounds=1,2", "max_samples=0"]


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


@pytest.mark.hazard("C22")
@pytest.mark.parametrize("on", ["here", pytest.param("local", marks=pytest.mark.slow)])
def test_failures_of_an_unfinished_split_are_asked_again_with_what_is_missing(on: str, tmp_path: Path) -> None:
    whole = debate_local.run([*SWEEP, f"output={tmp_path / 'whole'}"], multirun=True)
    cells, how = compose([*SWEEP, f"output={tmp_path}", "engine.fail=0.2"], multirun=True)
    plan = freeze(make_plan(cells), how, [], 3)
    for number in (1, 2):
        assert main(["work", str(plan.folder), "--shard", f"{number}/3"]) == 0
    assert failures(load_sweep(plan.folder)) > 0
    cells, how = compose([*SWEEP, f"output={tmp_path}"], multirun=True)
    freeze(make_plan(cells), how, [], 3)
    assert main(["resume", str(plan.folder), "--retry-failed", "--on", on]) == 0
    assert failures(load_sweep(plan.folder)) == 0
    assert_equal_tables(whole, load_sweep(plan.folder))


def test_a_plain_resume_leaves_the_failures_of_an_unfinished_split(tmp_path: Path) -> None:
    cells, how = compose([*SWEEP, f"output={tmp_path}", "engine.fail=0.2"], multirun=True)
    plan = freeze(make_plan(cells), how, [], 3)
    assert main(["work", str(plan.folder), "--shard", "1/3"]) == 0
    before = failures(load_sweep(plan.folder))
    cells, how = compose([*SWEEP, f"output={tmp_path}"], multirun=True)
    freeze(make_plan(cells), how, [], 3)
    assert main(["resume", str(plan.folder)]) == 0
    assert failures(load_sweep(plan.folder)) == before > 0
    # And a resume of a resume has nothing to do.
    stored = {run.id: (run.folder / "turns.parquet").read_bytes() for run in load_sweep(plan.folder).runs}
    assert main(["resume", str(plan.folder)]) == 0
    assert sent(load_sweep(plan.folder)) == 0
    assert {run.id: (run.folder / "turns.parquet").read_bytes() for run in load_sweep(plan.folder).runs} == stored


@pytest.mark.hazard("C22")
def test_failed_requests_are_counted_in_the_table_with_the_way_to_ask_them_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = with_failures(tmp_path)
    assert main(["show", str(sweep.folder)]) == 0
    told = capsys.readouterr().out
    assert f"{failures(sweep)} turns that the engine failed" in told
    assert f"debate-local resume {sweep.folder} --retry-failed" in told
    silent = [
        turn for run in sweep.runs for turn in run.turns.iter_rows(named=True) if turn["finish_reason"] == "error"
    ]
    assert silent and all(turn["answer"] is None and turn["error"] for turn in silent), "no answer, and no wrong one"


@pytest.mark.hazard("C29")
def test_a_start_in_which_all_fails_is_told_whatever_was_answered_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["run", "-m", *SWEEP, f"output={tmp_path}"]
    assert main([*command, "limit=11"]) == 0
    capsys.readouterr()
    assert main([*command, "limit=12", "engine.fail=1"]) == 1
    told = capsys.readouterr().err
    found = re.search(r"all (\d+) requests that were sent in this start failed: .*--retry-failed", told)
    assert found is not None
    (folder,) = (path for path in tmp_path.glob("sweeps/*") if len(_rows(path)) == 12)
    assert main(["status", str(folder), "--log"]) == 0
    assert f"failed ({found[1]} of the {found[1]} sent now)" in " ".join(capsys.readouterr().out.split())
    assert main([*command, "limit=12"]) == 0, "they are stored, and left by a plain rerun"
    assert main(["resume", str(folder), "--retry-failed"]) == 0
    assert failures(load_sweep(folder)) == 0


def _rows(folder: Path) -> list[str]:
    (ids,) = json.loads((folder / "plan.json").read_text())["rows"].values()
    return list(ids)


@pytest.mark.slow
def test_workers_that_resume_a_stopped_sweep_go_to_its_end(tmp_path: Path) -> None:
    whole = debate_local.run([*SWEEP, f"output={tmp_path / 'whole'}"], multirun=True)
    cells, how = compose([*SWEEP, f"output={tmp_path}", "stop.tokens=200", "max_live=2"], multirun=True)
    plan = freeze(make_plan(cells), how, [], 2)
    for number in range(2):
        assert main(["work", str(plan.folder), "--shard", f"{number}/2"]) == 0
    assert not any(run.done for run in load_sweep(plan.folder).runs)
    # As on the morning after stop.at: every worker would stop before its first item.
    record = json.loads((plan.folder / "plan.json").read_text())
    record["how"]["stop"]["at"] = "2020-01-01 07:00"
    (plan.folder / "plan.json").write_text(json.dumps(record))
    assert main(["resume", str(plan.folder), "--on", "local"]) == 0
    assert_equal_tables(whole, load_sweep(plan.folder))


@pytest.mark.hazard("C17")
def test_a_worker_whose_code_changed_meanwhile_says_so_in_the_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cells, how = compose([*SWEEP, f"output={tmp_path}"], multirun=True)
    plan = freeze(make_plan(cells), how, [], 2)
    record = json.loads((plan.folder / "plan.json").read_text())
    record["made_with"]["commit"] = "an older one"
    (plan.folder / "plan.json").write_text(json.dumps(record))
    assert main(["work", str(plan.folder), "--shard", "0/2"]) == 0
    capsys.readouterr()
    assert main(["status", str(plan.folder), "--log"]) == 0
    assert "changed since the sweep was started: commit: was an older one" in capsys.readouterr().out


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
def test_config_files_edited_after_the_start_change_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "experiment").mkdir()
    preset = tmp_path / "experiment" / "mine.yaml"
    preset.write_text("# @package _global_\nprompt: {debate: 'As it was'}\nlimit: 3\nsampling: {temperature: 0.5}\n")
    config = ["--config-dir", str(tmp_path), "experiment=mine", "engine=scripted", f"output={tmp_path / 'runs'}"]
    assert main(["run", "-m", *config, "hydra/launcher=freeze", "hydra.launcher.shards=2"]) == 0
    (folder,) = (tmp_path / "runs" / "sweeps").iterdir()
    preset.write_text("# @package _global_\nprompt: {debate: 'Edited'}\nlimit: 5\nsampling: {temperature: 0.9}\n")
    assert main(["work", str(folder), "--shard", "0/2"]) == 0
    preset.unlink()
    assert main(["resume", str(folder)]) == 0, capsys.readouterr().err
    run = load_sweep(folder).runs[0]
    assert run.done and len(run.debates) == 3
    assert run.turns.filter(run.turns["round"] == 1)["prompt"].str.contains("As it was").all()
    assert set(run.turns["temperature"]) == {0.5}


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
