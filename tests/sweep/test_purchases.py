"""The votes that a debate's tokens pay for: a second phase. Run: pytest tests/sweep/test_purchases.py"""

import json
from pathlib import Path

import polars as pl
import pytest

import debate_local
from debate_local.analysis.summary import verdict
from debate_local.cli import main
from debate_local.sweep.store import Run, Sweep, load_sweep

pytestmark = pytest.mark.slow

BASE = ["engine=scripted", "task=arithmetic", "limit=6", "protocol.rounds=2"]


def run(tmp_path: Path, *overrides: str, multirun: bool = True) -> Sweep:
    return debate_local.run([*BASE, f"output={tmp_path}", *overrides], multirun=multirun)


def bill(run: Run, *columns: str) -> float:
    total = run.debates.select(pl.sum_horizontal(*columns).alias("all"))["all"].mean()
    assert isinstance(total, float)
    return total


def control(sweep: Sweep, name: str, number: int = 0) -> Run:
    asked = [cell.run.id for cell in sweep.cells if cell.asked]
    (found,) = [cell.run for cell in sweep.cells if (name, asked[number]) in cell.controls]
    return found


CURRENCIES = {"sc_tokens_out": ["generated_tokens"], "sc_tokens_all": ["generated_tokens", "prompt_tokens"]}


@pytest.mark.parametrize("name", CURRENCIES)
def test_as_many_samples_as_the_mean_bill_pays_for(tmp_path: Path, name: str) -> None:
    sweep = run(tmp_path)
    debate = next(cell.run for cell in sweep.cells if cell.asked)
    samples = control(sweep, name).record["protocol"]["samples"]
    price = bill(control(sweep, "sc_calls"), *CURRENCIES[name]) / 6
    paid = bill(debate, *CURRENCIES[name])
    assert samples * price <= paid < (samples + 1) * price


def test_prompts_are_paid_for_in_the_second_currency_only(tmp_path: Path) -> None:
    sweep = run(tmp_path)
    out, all_tokens = (control(sweep, name).record["protocol"]["samples"] for name in CURRENCIES)
    assert all_tokens > out


def test_a_cap_holds_and_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = run(tmp_path, "max_samples=7")
    assert control(sweep, "sc_tokens_all").record["protocol"]["samples"] == 7
    told = json.loads((sweep.folder / "sweep.json").read_text())["notes"]
    assert any("bills of 1 debate cells would pay for more samples than max_samples=7" in note for note in told)


def test_the_second_phase_takes_the_engine_that_is_open(tmp_path: Path) -> None:
    sweep = run(tmp_path)
    (log,) = (sweep.folder / "logs").glob("events*")
    events = [json.loads(line) for line in log.open()]
    kinds = [event["event"] for event in events]
    assert kinds.count("engine") == 1 and kinds.index("more") < kinds.index("engine")
    (more,) = [event for event in events if event["event"] == "more"]
    assert more["debates"] == 6 * more["runs"]


def test_a_finished_sweep_buys_nothing_again_and_a_killed_one_buys_the_same(tmp_path: Path) -> None:
    first = run(tmp_path)
    assert {cell.run.id for cell in run(tmp_path).cells} == {cell.run.id for cell in first.cells}
    events = [json.loads(line) for log in (first.folder / "logs").glob("events*") for line in log.open()]
    assert sorted(event["sent"] for event in events if event["event"] == "end")[0] == 0


def test_shards_buy_once_all_of_them_have_ended(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole")
    arguments = ["run", "-m", *BASE, f"output={tmp_path / 'parts'}"]
    assert main([*arguments, "hydra/launcher=local", "hydra.launcher.shards=3", "hydra.launcher.workers=2"]) == 0
    (folder,) = (tmp_path / "parts").glob("sweeps/*")
    sweep = load_sweep(folder)
    assert [cell.controls for cell in sweep.cells] == [cell.controls for cell in whole.cells]
    for mine, theirs in zip(sweep.runs, whole.runs, strict=True):
        assert mine.done
        assert (mine.folder / "turns.parquet").read_bytes() == (theirs.folder / "turns.parquet").read_bytes()


def test_what_is_left_of_the_second_phase_is_missing_until_resumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "-m", *BASE, f"output={tmp_path}", "hydra/launcher=freeze", "hydra.launcher.shards=2"]) == 0
    (folder,) = tmp_path.glob("sweeps/*")
    for shard in ("0/2", "1/2"):
        assert main(["work", str(folder), "--shard", shard]) == 0
    capsys.readouterr()
    assert main(["status", str(folder)]) == 0
    assert "all done" not in capsys.readouterr().out
    assert main(["resume", str(folder)]) == 0
    assert all(cell.run.done for cell in load_sweep(folder).cells)
    assert main(["status", str(folder)]) == 0
    assert "all done" in capsys.readouterr().out


def test_a_stopped_sweep_buys_nothing(tmp_path: Path) -> None:
    main(["run", "-m", *BASE, "limit=40", "max_live=2", "stop.tokens=200", f"output={tmp_path}"])
    (folder,) = tmp_path.glob("sweeps/*")
    assert not any(name.startswith("sc_tokens") for cell in load_sweep(folder).cells for name, _ in cell.controls)


def test_max_samples_0_is_no_second_phase(tmp_path: Path) -> None:
    names = {name for cell in run(tmp_path, "max_samples=0").cells for name, _ in cell.controls}
    assert names == {"single", "vote0", "sc_calls", "reflect"}


def test_a_plan_counts_what_the_second_phase_will_ask(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--json", *BASE, f"output={tmp_path}"]) == 0
    estimates = [run for run in json.loads(capsys.readouterr().out)["runs"] if run["estimated"]]
    assert {name for run in estimates for name, _ in run["controls"]} == {"sc_tokens_all"}
    assert all(run["naive"] > 6 * 6 for run in estimates)
    run(tmp_path)
    capsys.readouterr()
    assert main(["plan", "--json", *BASE, f"output={tmp_path}"]) == 0
    after = json.loads(capsys.readouterr().out)
    assert after["new"] == 0 and not any(run["estimated"] for run in after["runs"])


def test_members_of_a_mixed_debate_are_held_against_it_alone(tmp_path: Path) -> None:
    models = ["engine.models={a: {accuracy: 0.9}, b: {accuracy: 0.2}}", "cast=[{model: a},{model: b}]"]
    sweep = run(tmp_path, *models, "protocol.agents=2")
    alone = [cell.run for cell in sweep.cells for name, _ in cell.controls if name == "sc_member"]
    assert [run.record["cast"][0]["model"] for run in alone] == ["a", "b"]
    assert {run.record["protocol"]["samples"] for run in alone} == {4}
    found = verdict(sweep)
    assert found is not None
    (best,) = [summary.cell.run for name, summary, _ in found.also if name == "the best member alone"]
    scores = {run.id: run.debates["score"].mean() for run in alone}
    assert scores[best.id] == max(scores.values())


def test_extra_controls_are_the_same_debate_with_one_option_otherwise(tmp_path: Path) -> None:
    sweep = run(tmp_path, "extra_controls=[noise,answers]")
    debate = next(cell.run for cell in sweep.cells if cell.asked)
    own = debate.record["protocol"]
    assert control(sweep, "noise").record["protocol"] == {**own, "noise": True}
    assert control(sweep, "answers").record["protocol"] == {**own, "peers": "answers"}


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("extra_controls=[nois]", "no protocol has such a control. Did you mean 'noise'? They are: answers, noise"),
        ("max_samples=-1", "max_samples must be 0 (no second phase) or more, got -1"),
    ],
)
def test_controls_that_cannot_be_are_refused(
    tmp_path: Path, override: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *BASE, override, f"output={tmp_path}"]) != 0
    assert told in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("protocol", ["mad", "reconcile"])
def test_a_debate_that_ends_early_is_held_against_as_many_calls_as_it_made(tmp_path: Path, protocol: str) -> None:
    sweep = run(tmp_path, f"protocol={protocol}", "protocol.rounds=3", "limit=12")
    debate = next(cell.run for cell in sweep.cells if cell.asked)
    made = bill(debate, "calls")
    assert made < debate.record["calls_at_most"]
    samples = control(sweep, "sc_calls_made").record["protocol"]["samples"]
    assert abs(samples - made) <= 0.5
    found = verdict(sweep)
    assert found is None or found.control.cell.run.record["protocol"]["samples"] == samples


def test_a_debate_that_never_ends_early_has_made_all_its_calls(tmp_path: Path) -> None:
    assert not any(name == "sc_calls_made" for cell in run(tmp_path).cells for name, _ in cell.controls)


def test_a_judge_of_another_model_is_held_against_the_debate_too(tmp_path: Path) -> None:
    models = ["engine.models={a: {}, b: {seed: 5}}", "cast=[{model: a}]", "judge={model: b}"]
    sweep = run(tmp_path, "protocol=mad", *models)
    alone = {cell.run.record["cast"][0]["model"] for cell in sweep.cells for n, _ in cell.controls if n == "sc_member"}
    assert alone == {"a", "b"}
