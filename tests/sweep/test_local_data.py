"""data=FOLDER: rows of several tasks on a machine without a hub; and casts that are kept in files."""

import json
from pathlib import Path

import pytest

import debate_local
from debate_local.sweep.compose import compose
from debate_local.sweep.options import OptionFault
from debate_local.sweep.plan import make_plan

pytestmark = pytest.mark.slow

ROWS = Path(__file__).parent / "rows"
ON = ["engine=scripted", "controls=false"]


def paths(*overrides: str) -> list[str | None]:
    cells, _ = compose([*ON, *overrides], multirun=True)
    return [cell.task.options.get("path") for cell in cells]


def fault(*overrides: str) -> str:
    with pytest.raises(OptionFault) as caught:
        compose([*ON, *overrides])
    return str(caught.value)


def test_tasks_of_a_sweep_find_their_files_by_name_and_one_that_needs_none_is_left_alone() -> None:
    found = paths("task=gsm8k,mmlu,arithmetic", f"data={ROWS}")
    assert found == [str(ROWS / "gsm8k.jsonl"), str(ROWS / "mmlu.jsonl"), None]


def test_cells_of_several_tasks_are_told_apart_by_their_task_and_not_by_all_its_options() -> None:
    cells, _ = compose([*ON, "task=gsm8k,arithmetic_du2023", f"data={ROWS}"], True)
    assert [run.label for run in make_plan(cells).runs] == [
        f"debate agents=3 rounds=2 task={task}" for task in ("gsm8k", "arithmetic")
    ]
    cells, _ = compose([*ON, "task=arithmetic", "task.seed=1,2"], True)
    assert [run.label for run in make_plan(cells).runs] == [f"debate agents=3 rounds=2 seed={seed}" for seed in (1, 2)]


def test_a_file_with_the_split_in_its_name_goes_first_and_a_folder_may_hold_the_parts(tmp_path: Path) -> None:
    (tmp_path / "gsm8k.jsonl").write_bytes((ROWS / "gsm8k.jsonl").read_bytes())
    (tmp_path / "gsm8k_train.jsonl").write_bytes((ROWS / "gsm8k.jsonl").read_bytes())
    (tmp_path / "mmlu").mkdir()
    row = json.loads((ROWS / "mmlu.jsonl").read_text().splitlines()[0])
    (tmp_path / "mmlu" / "anatomy.jsonl").write_text(json.dumps(row))
    here = f"data={tmp_path}"
    assert paths("task=gsm8k", "task.split=train", here) == [str(tmp_path / "gsm8k_train.jsonl")]
    assert paths("task=gsm8k", here) == [str(tmp_path / "gsm8k.jsonl")]
    assert paths("task=mmlu", here) == [str(tmp_path / "mmlu")]
    assert len(make_plan(compose([*ON, "task=mmlu", here])[0]).runs[0].task.items) == 1


def test_a_path_of_the_task_s_own_counts_and_where_rows_lie_is_no_part_of_a_run(tmp_path: Path) -> None:
    other = tmp_path / "other.jsonl"
    other.write_bytes((ROWS / "gsm8k.jsonl").read_bytes())
    assert paths("task=gsm8k", f"task.path={other}", f"data={ROWS}") == [str(other)]
    ids = {
        make_plan(compose([*ON, "task=gsm8k", *where])[0]).runs[0].id
        for where in ([f"task.path={other}"], [f"data={ROWS}"])
    }
    assert len(ids) == 1


def test_a_stored_run_needs_no_data_folder_again(tmp_path: Path) -> None:
    (run,) = debate_local.run([*ON, "task=gsm8k", f"data={ROWS}", f"output={tmp_path}"]).runs
    assert run.record["task"]["path"] == str(ROWS / "gsm8k.jsonl")


def test_what_is_not_there_is_said_with_what_would_do(tmp_path: Path) -> None:
    assert f"data={tmp_path / 'gone'} is no folder" in fault("task=gsm8k", f"data={tmp_path / 'gone'}")
    told = fault("task=gsm8k", f"data={tmp_path}")
    assert "has nothing for task 'gsm8k'" in told and "gsm8k_test.jsonl" in told and "task.path=FILE" in told


def test_the_message_of_a_hub_out_of_reach_names_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    def unreachable(*_: object, **__: object) -> None:
        raise OSError("no route to host")

    monkeypatch.setattr(datasets, "load_dataset", unreachable)
    with pytest.raises(OptionFault, match=r"data=FOLDER, in which gsm8k\.jsonl lies"):
        make_plan(compose([*ON, "task=gsm8k"])[0])


def test_a_cast_is_a_word_or_a_file_and_the_run_is_what_it_holds(tmp_path: Path) -> None:
    file = tmp_path / "my cast.yaml"
    file.write_text("- {name: Ada, persona: You add.}\n- {name: Ben, persona: You build.}\n")
    cells, _ = compose([*ON, f"cast=none,experts,'{file}'"], multirun=True)
    none, experts, own = make_plan(cells).runs
    assert [agent.name for agent in own.cell.cast] == ["Ada", "Ben"]
    assert [agent.name for agent in experts.cell.cast] == ["scientist", "physician", "historian"]
    assert none.id == make_plan(compose(ON)[0]).runs[0].id
    by_hand = "cast=[{name: Ada, persona: You add.}, {name: Ben, persona: You build.}]"
    assert own.id == make_plan(compose([*ON, by_hand])[0]).runs[0].id
    assert own.label == "debate agents=3 rounds=2 cast=Ada+Ben"


def test_a_cast_that_is_none_is_answered_with_those_there_are(tmp_path: Path) -> None:
    told = fault("cast=expert")
    assert "there is no cast 'expert'. Did you mean 'experts'?" in told and "experts, none" in told
    assert "the file cannot be read" in fault("cast=gone.yaml")
    (tmp_path / "text.yaml").write_text("only a text\n")
    assert "cast must be a list of one or more agents" in fault(f"cast={tmp_path / 'text.yaml'}")
