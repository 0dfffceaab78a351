"""Quirks from a person's words to runs: told everywhere, part of a run's identity, and at no further request."""

import json
from pathlib import Path

import pytest

import debate_local
from debate_local.cli import main
from debate_local.sweep.cells import cell_of
from debate_local.sweep.compose import compose
from debate_local.sweep.plan import make_plan
from debate_local.sweep.store import Run, Sweep, load
from tests.sweep.planning import planner

ROWS = Path(__file__).parent / "rows"
ON = ["engine=scripted", "task=gsm8k", f"data={ROWS}", "protocol.agents=2", "controls=false"]


planned, fault = planner(*ON)


@pytest.fixture(scope="module")
def silent(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """A plain run and its twin with a quirk, of agents who never answer."""
    folder = tmp_path_factory.mktemp("silent")
    script = folder / "script.yaml"
    script.write_text("- reply: I will not answer.\n")
    quirks = "quirks=[],[du_none_is_right,du_no_minus]"
    return debate_local.run([*ON, quirks, f"engine.replies={script}", f"output={folder}"], multirun=True)


def test_a_quirk_is_off_by_default_and_part_of_a_run_s_identity_in_whatever_order() -> None:
    (plain,), (quirky,) = planned().runs, planned("quirks=[du_no_minus,du_gold_digits]").runs
    assert not plain.cell.quirks and plain.id != quirky.id
    assert planned("quirks=[du_gold_digits,du_no_minus]").runs[0].id == quirky.id
    assert planned("quirks=[]").runs[0].id == plain.id
    assert planned("quirks=du_no_minus").runs[0].cell.quirks == ["du_no_minus"]


def test_the_label_the_folder_the_record_and_the_table_tell_of_it(
    silent: Sweep, capsys: pytest.CaptureFixture[str]
) -> None:
    plain, quirky = silent.runs
    assert plain.label == "debate agents=2 rounds=2" and plain.record["quirks"] == []
    assert quirky.label == "debate agents=2 rounds=2 quirks=du_no_minus+du_none_is_right"
    assert "quirks-du-no-minus" in quirky.id
    assert quirky.record["quirks"] == ["du_no_minus", "du_none_is_right"]
    assert make_plan([cell_of(quirky.record)]).runs[0].id == quirky.id
    assert main(["show", str(silent.folder)]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "du_none_is_right: Du et al. 2023, GSM8K: no answer that can be parsed counts as correct." in told
    assert main(["show", str(quirky.folder)]) == 0
    assert "quirks=du_no_minus+du_none_is_right" in capsys.readouterr().out


@pytest.mark.hazard("D02")
def test_silence_is_wrong_and_by_the_quirk_right_and_no_answer_all_the_same(silent: Sweep) -> None:
    plain, quirky = silent.runs
    assert plain.debates["score"].to_list() == [0.0] * 4 and quirky.debates["score"].to_list() == [1.0] * 4
    assert plain.debates["no_answer"].to_list() == quirky.debates["no_answer"].to_list() == [1.0] * 4


def test_a_twin_with_quirks_asks_nothing_of_its_own(silent: Sweep) -> None:
    (log,) = (silent.folder / "logs").glob("*.jsonl")
    end = json.loads(log.read_text().splitlines()[-1])
    assert end["event"] == "end" and end["sent"] == len(silent.runs[0].turns) == 4 * 4
    plain, quirky = silent.runs
    assert plain.turns["prompt"].to_list() == quirky.turns["prompt"].to_list()


def test_rescoring_honours_them(silent: Sweep, capsys: pytest.CaptureFixture[str]) -> None:
    for run, score in zip(silent.runs, (0.0, 1.0), strict=True):
        assert main(["rescore", str(run.folder), "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert told["before"] == told["after"] == score
        assert not told["turns"] and not told["decisions"]


def test_another_decision_of_a_run_with_quirks_is_a_run_of_its_own(
    silent: Sweep, capsys: pytest.CaptureFixture[str]
) -> None:
    plain, quirky = silent.runs
    assert main(["decide", str(plain.folder), "decision=unanimity"]) == 0
    assert main(["decide", str(quirky.folder), "decision=unanimity"]) != 0
    assert "was run with quirks=du_no_minus,du_none_is_right" in capsys.readouterr().err


def test_a_random_label_is_drawn_by_the_run_s_seed_and_again_when_it_is_rescored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "script.yaml"
    script.write_text("- reply: I will not answer.\n")
    overrides = ["engine=scripted", f"engine.replies={script}", "task=mmlu", f"data={ROWS}", "controls=false"]
    overrides += ["quirks=[chen_random_label]", "protocol.rounds=1", f"output={tmp_path}"]
    sweep = debate_local.run([*overrides, "seed=1,2,3"], multirun=True)
    drawn = [run.debates["answer"].to_list() for run in sweep.runs]
    assert len({tuple(one) for one in drawn}) > 1 and None not in {answer for one in drawn for answer in one}
    assert main(["rescore", str(sweep.runs[2].folder), "--json"]) == 0
    assert not json.loads(capsys.readouterr().out)["turns"]


def test_what_a_quirk_leaves_out_is_no_item_of_the_run(tmp_path: Path) -> None:
    on = ["engine=scripted", "task=arithmetic", "task.items=60", "task.operands=2", "task.operators='+'", "task.low=1"]
    on += ["task.high=5", "controls=false"]
    plain, quirky = (make_plan(compose([*on, *more])[0]).runs[0] for more in ([], ["quirks=[du_keyed_by_question]"]))
    assert len(plain.task.items) == 60 and len({item.question for item in plain.task.items}) < 26
    assert len(quirky.task.items) == len({item.question for item in plain.task.items})
    (run,) = debate_local.run([*on, "quirks=[du_keyed_by_question]", f"output={tmp_path}"]).runs
    assert isinstance(load(run.folder), Run) and len(run.debates) == len(quirky.task.items)


def test_what_cannot_be_is_refused_before_anything_runs() -> None:
    told = fault("quirks=[du_none_is_rigt]")
    assert "there is no quirk 'du_none_is_rigt'. Did you mean 'du_none_is_right'?" in told
    assert "chen_random_label  Chen et al. 2024: an answer that cannot be read becomes a random label." in told
    assert "quirk du_first_row_eaten is for task mmlu, and changes nothing here" in fault("quirks=[du_first_row_eaten]")
    assert "quirks must be a list" in fault("quirks=5")
    assert "du_comma_is_point is for task arithmetic" in fault("quirks=[du_no_minus,du_comma_is_point]")
