"""A sweep from the command line or from Python, on the scripted engine."""

import json
from pathlib import Path

import polars as pl
import pytest

import debate_local
from debate_local.analysis.summary import summarise, verdict
from debate_local.cli import main
from debate_local.sweep.config import HowToRun
from debate_local.sweep.plan import make_plan
from debate_local.sweep.run import run_plan
from debate_local.sweep.store import Sweep, load_sweep

BASE = ["engine=scripted", "task=arithmetic", "task.items=40"]


def run(tmp_path: Path, *overrides: str, multirun: bool = True) -> Sweep:
    return debate_local.run([*BASE, f"output={tmp_path}", *overrides], multirun=multirun)


def sent(sweep: Sweep) -> int:
    """Requests that went to the engine in the last start of a sweep."""
    logs = sorted((sweep.folder / "logs").glob("*.jsonl"), key=lambda path: path.stat().st_mtime_ns)
    events = [json.loads(line) for line in logs[-1].read_text().splitlines()]
    return int(events[-1]["sent"])


def tables(sweep: Sweep) -> dict[str, list[pl.DataFrame]]:
    return {run.id: [run.debates, run.turns] for run in sweep.runs}


def assert_equal_tables(a: Sweep, b: Sweep) -> None:
    ours, theirs = tables(a), tables(b)
    assert ours.keys() == theirs.keys()
    for key, frames in ours.items():
        for one, other in zip(frames, theirs[key], strict=True):
            assert one.equals(other), key


def test_agents_by_rounds_sends_each_distinct_request_once(tmp_path: Path) -> None:
    sweep = run(tmp_path, "limit=3", "protocol.agents=1,2,3,4,5", "protocol.rounds=1,2,3,4", "controls=false")
    assert len(sweep.runs) == 20
    assert sum(len(run.turns) for run in sweep.runs) == 3 * 150
    assert sent(sweep) == 3 * 50


def test_each_debate_brings_its_controls_once(tmp_path: Path) -> None:
    sweep = run(tmp_path, "limit=5", "protocol.rounds=1,2", "max_samples=0")
    roles = {(control, of.rpartition("-")[0]): cell.run.label for cell in sweep.cells for control, of in cell.controls}
    one, two = (f"arithmetic-debate-agents-3-rounds-{r}-t1" for r in (1, 2))
    assert roles == {
        ("single", one): "single agents=3",
        ("vote0", one): "self_consistency samples=3",
        ("sc_calls", one): "self_consistency samples=3",
        ("single", two): "single agents=3",
        ("vote0", two): "self_consistency samples=3",
        ("sc_calls", two): "self_consistency samples=6",
        ("reflect", two): "debate agents=3 rounds=2 topology=none",
    }
    assert len(sweep.cells) == 6


def test_round_0_of_a_debate_is_its_vote0_and_its_single(tmp_path: Path) -> None:
    sweep = run(tmp_path, "limit=10", multirun=False)
    by_label = {run.label: run for run in sweep.runs}
    debate, vote, alone = (
        by_label[label] for label in ("debate agents=3 rounds=2", "self_consistency samples=3", "single agents=3")
    )
    first = debate.turns.filter(debate.turns["round"] == 0)
    assert first["text"].to_list() == vote.turns["text"].to_list() == alone.turns["text"].to_list()
    assert alone.debates["score"].to_list() == pytest.approx(
        first.group_by("item_id", maintain_order=True).agg(pl.col("score").mean())["score"].to_list()
    )


def test_costs_are_as_if_alone_and_single_costs_one_agent(tmp_path: Path) -> None:
    by_label = {s.label: s for s in summarise(run(tmp_path, "limit=10", multirun=False))}
    assert by_label["debate agents=3 rounds=2"].calls == 6
    assert by_label["self_consistency samples=6"].calls == 6
    assert by_label["debate agents=3 rounds=2 topology=none"].calls == 6
    assert by_label["single agents=3"].calls == 1


def test_the_verdict_compares_the_best_debate_with_its_equal_cost_control_in_pairs(tmp_path: Path) -> None:
    sweep = run(tmp_path, "protocol.rounds=1,2")
    found = verdict(sweep)
    assert found is not None
    assert found.best.label == "debate agents=3 rounds=2"
    assert found.control.label == "self_consistency samples=6"
    ours = found.best.cell.run.debates["score"].mean()
    theirs = found.control.cell.run.debates["score"].mean()
    assert found.difference.value == pytest.approx(ours - theirs)


def test_a_finished_sweep_calls_no_engine(tmp_path: Path) -> None:
    first = run(tmp_path, "limit=5")
    assert sent(first) > 0
    assert sent(run(tmp_path, "limit=5")) == 0


def test_a_larger_limit_asks_only_for_the_new_items(tmp_path: Path) -> None:
    half = sent(run(tmp_path, "limit=10"))
    assert sent(run(tmp_path, "limit=20")) == half
    assert sent(run(tmp_path, "limit=20", "offset=10")) == half


def test_new_seeds_and_cells_keep_what_is_there(tmp_path: Path) -> None:
    one = sent(run(tmp_path, "limit=10"))
    assert sent(run(tmp_path, "limit=10", "seed=0,1")) == one
    assert sent(run(tmp_path, "limit=10", "seed=0,1", "protocol.rounds=2,1")) == 0


@pytest.mark.parametrize("how", ["schedule=continuous", "max_live=3", "cache=off", "engine.latency=0.001"])
def test_tables_do_not_depend_on_how_a_sweep_is_run(tmp_path: Path, how: str) -> None:
    plain = run(tmp_path / "plain", "limit=12", "protocol.agents=2,3")
    other = run(tmp_path / "other", "limit=12", "protocol.agents=2,3", how)
    assert_equal_tables(plain, other)


@pytest.mark.hazard("B09", "B10")
def test_failed_truncated_and_empty_replies_are_counted_outcomes(tmp_path: Path) -> None:
    sweep = run(tmp_path, "engine.fail=0.1", "engine.cut_off=0.1", "engine.empty=0.1", "engine.too_long=0.05")
    summary = next(s for s in summarise(sweep) if s.label.startswith("debate agents=3 rounds=2"))
    assert summary.failed and summary.truncated and summary.empty and summary.too_long
    turns = summary.cell.run.turns
    silent = turns.filter(pl.col("finish_reason").is_in(["error", "too_long"]))
    assert silent["answer"].null_count() == len(silent)
    assert (silent["score"] == 0.0).all()


def test_an_engine_that_dies_is_started_again_and_the_sweep_goes_on(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", "limit=10")
    mended = run(tmp_path / "mended", "limit=10", "engine.dead_after=20")
    assert_equal_tables(whole, mended)
    log = next((mended.folder / "logs").glob("*.jsonl")).read_text()
    assert '"event": "restart"' in log


@pytest.mark.hazard("B13")
def test_an_engine_that_only_dies_ends_its_cells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["run", *BASE, "limit=3", f"output={tmp_path}", "engine.dead_after=0"])
    assert code == 1
    assert "died" in capsys.readouterr().err


def test_cells_of_two_engines_run_after_each_other_in_one_command(tmp_path: Path) -> None:
    sweep = run(tmp_path, "limit=5", "engine.seed=0,1")
    assert {run.record["engine"]["seed"] for run in sweep.runs} == {0, 1}
    assert all(run.done for run in sweep.runs)


def test_a_debate_whose_own_code_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    from debate_local.sweep.compose import compose

    cells, _ = compose([*BASE, "limit=4", "controls=false"])
    plan = make_plan(cells)
    (planned,) = plan.runs
    bad = planned.task.items[1].id
    sound = planned.protocol

    def faulty(item, setting, **options):
        if item.id == bad:
            raise KeyError("a bug")
        return (yield from sound(item, setting, **options))

    planned.protocol = faulty
    result = run_plan(plan, HowToRun(output=tmp_path))
    (stored,) = result.sweep.runs
    assert "KeyError" in result.problems[0] and bad in result.problems[0]
    assert not stored.done
    assert stored.debates["error"].null_count() == 3
    # Mended, the same command completes the run.
    planned.protocol = sound
    again = run_plan(plan, HowToRun(output=tmp_path))
    assert not again.problems and again.sweep.runs[0].done


def test_the_command_line_prints_the_table_and_the_way_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "-m", *BASE, "limit=6", f"output={tmp_path}", "protocol.rounds=1,2"]) == 0
    shown = capsys.readouterr().out
    for part in (
        "accuracy",
        "no answer",
        "calls",
        "best debate:",
        "equal-cost control:",
        "debate-local show",
        "sweep:",
    ):
        assert part in shown
    (folder,) = (tmp_path / "sweeps").iterdir()
    assert main(["show", str(folder)]) == 0
    assert load_sweep(folder).record["command"][:3] == ["debate-local", "run", "-m"]


@pytest.mark.hazard("C06")
def test_hydra_leaves_no_files_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["run", "-m", *BASE, "limit=2", "protocol.rounds=1,2"]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["runs"]


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["protocol.agents=0"], "protocol.agents must be at least 1, got 0"),
        (["protocol.rounds=0"], "protocol.rounds must be at least 1"),
        (["limit=0"], "limit must be at least 1"),
        (["offset=1000"], "offset=1000 leaves nothing"),
        (["prompt.debate='{{ peeers }}'"], "template 'debate' uses peeers; it may use: answer_format, peers, question"),
        (["cast=[{model: other}]"], "cast[0].model is 'other', which engine 'scripted' does not have"),
        (["engine.context_length=100", "sampling.max_tokens=100"], "sampling.max_tokens=100 leaves no room"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_is_written(
    tmp_path: Path, overrides: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *BASE, f"output={tmp_path}", *overrides]) == 2
    assert says in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_prompt_override_changes_what_is_asked_and_the_runs_id(tmp_path: Path) -> None:
    plain = run(tmp_path, "limit=2", "controls=false")
    reworded = run(tmp_path, "limit=2", "controls=false", "prompt.debate='Others said: {{ peers[0].text }} Now you.'")
    assert plain.runs[0].id != reworded.runs[0].id
    prompt = reworded.runs[0].turns.filter(pl.col("round") == 1)["prompt"][0]
    assert "Others said: " in prompt
