"""Exact subsets: ids, shuffle, offset and limit; doubted golds; presets that set them; what plan says of the rows."""

import json
from pathlib import Path

import pytest

import debate_local
from debate_local.cli import main
from debate_local.sweep.cells import cell_json, cell_of
from debate_local.sweep.compose import compose
from debate_local.sweep.options import OptionFault
from debate_local.sweep.plan import make_plan
from debate_local.sweep.presets import presets
from tests.tasks.data import jsonl

pytestmark = pytest.mark.slow

ROWS = [{"id": f"q{n}", "question": f"What is {n} + 1?", "target": n + 1} for n in range(20)]
ALL = [str(row["id"]) for row in ROWS]


def planned(tmp_path: Path, *overrides: str, rows: list[dict[str, object]] = ROWS) -> list[str]:
    """The ids of the items that a cell runs on, in their order."""
    path = jsonl(tmp_path / "own.jsonl", rows)
    cells, _ = compose(["task=jsonl", f"task.path={path}", "engine=scripted", "controls=false", *overrides])
    return [item.id for item in make_plan(cells).runs[0].task.items]


def test_without_a_word_all_items_come_in_the_order_of_the_source(tmp_path: Path) -> None:
    assert planned(tmp_path) == ALL
    assert planned(tmp_path, "offset=3", "limit=2") == ["q3", "q4"]


def test_ids_pick_items_whatever_their_order_and_slices_count_within_them(tmp_path: Path) -> None:
    assert planned(tmp_path, "ids=[q7,q2,q11]") == ["q2", "q7", "q11"]
    assert planned(tmp_path, "ids=[q7,q2,q11]", "offset=1", "limit=1") == ["q7"]
    assert planned(tmp_path, "ids=q5") == ["q5"]


def test_a_shuffle_is_by_its_seed_and_smaller_limits_are_contained_in_larger_ones(tmp_path: Path) -> None:
    whole = planned(tmp_path, "shuffle=0")
    assert sorted(whole) == sorted(ALL) and whole != ALL
    assert planned(tmp_path, "shuffle=0", "limit=7") == whole[:7]
    assert planned(tmp_path, "shuffle=1") != whole


def test_an_items_place_in_a_shuffle_does_not_depend_on_the_others(tmp_path: Path) -> None:
    whole = planned(tmp_path, "shuffle=0")
    assert planned(tmp_path, "shuffle=0", rows=ROWS[::-2]) == [id for id in whole if id in ALL[1::2]]


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["ids=[q3,q99]"], "ids: task 'jsonl' has no item 'q99'. Did you mean 'q9'?"),
        (["ids=[]"], "ids names no item: give some, or null for all"),
        (["ids=[12e45]"], "an id that looks like a number needs quotes: ids=['12e45']"),
        (["suspects=[x]"], "suspects: task 'jsonl' has no item 'x'"),
        (["ids=[q1,q2]", "offset=2"], "offset=2 leaves nothing: task 'jsonl' has 2 items"),
        (["shuffle=yes"], "shuffle must be a whole number or null"),
    ],
)
def test_what_cannot_be_picked_is_refused(tmp_path: Path, overrides: list[str], says: str) -> None:
    with pytest.raises(OptionFault) as error:
        planned(tmp_path, *overrides)
    assert says in str(error.value)


@pytest.mark.hazard("C26")
def test_ids_that_look_like_numbers_are_taken_as_they_are_written(tmp_path: Path) -> None:
    rows = [{**ROWS[0], "id": id} for id in ("00123", "123", "12e45", "no")]
    assert planned(tmp_path, "ids=[00123,123]", rows=rows) == ["00123", "123"]
    assert planned(tmp_path, "ids=['12e45','no']", rows=rows) == ["12e45", "no"]


def test_a_doubted_item_keeps_its_score_and_is_another_run(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "own.jsonl", ROWS)
    base = ["task=jsonl", f"task.path={path}", "engine=scripted", "controls=false", "limit=3"]
    runs = [make_plan(compose([*base, *more])[0]).runs[0] for more in ([], ["suspects=[q1]"])]
    assert [item.suspect for item in runs[1].task.items] == ["", "named in suspects=", ""]
    assert runs[0].id != runs[1].id


def test_a_cell_comes_back_whole_from_its_record(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "own.jsonl", ROWS)
    (cell,), _ = compose(["task=jsonl", f"task.path={path}", "ids=[q1,q2]", "shuffle=3", "suspects=[q1]"])
    assert cell_of(json.loads(json.dumps(cell_json(cell)))) == cell


# What is wrong with the rows


def test_plan_and_run_json_tell_what_is_wrong_with_the_rows_that_are_run(tmp_path: Path) -> None:
    rows = [*ROWS, {**ROWS[1], "id": "again"}, {"id": "odd", "question": " ", "target": "5 or 6"}]
    path = jsonl(tmp_path / "own.jsonl", rows)
    base = ["task=jsonl", f"task.path={path}", "task.reader=number", "engine=scripted", "controls=false"]
    base.append(f"output={tmp_path / 'runs'}")
    notes = make_plan(compose(base)[0]).notes
    assert "data of jsonl: 1 item repeats an earlier item: again; kept as items of their own" in notes
    assert "data of jsonl: 1 item has no question: odd; kept; a model can only guess" in notes
    assert any("has a gold that cannot be read: odd" in note for note in notes)
    assert not any("data of" in note for note in make_plan(compose([*base, "limit=20"])[0]).notes)
    sweep = debate_local.run(base)
    (run,) = sweep.runs
    assert {oddity["fault"]: oddity["items"] for oddity in run.record["oddities"]} == {
        "repeats an earlier item": ["again"],
        "has no question": ["odd"],
        "has a gold that cannot be read": ["odd"],
        "has a doubted gold: the gold cannot be read": ["odd"],
    }
    assert len(run.debates) == len(rows)
    assert set(run.debates.filter(run.debates["suspect"].is_not_null())["item_id"]) == {"odd"}


def test_plan_prints_them_as_warnings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = jsonl(tmp_path / "own.jsonl", [*ROWS, ROWS[1]])
    arguments = ["task=jsonl", f"task.path={path}", "engine=scripted", f"output={tmp_path / 'runs'}"]
    assert main(["plan", *arguments]) == 0
    assert "repeats an earlier item: q1-2" in " ".join(capsys.readouterr().out.split())


# Presets

SIZES = {"gsm8k_du2023": 100, "mmlu_du2023": 100, "gsm8k_2508_17536": 300, "bbh_liang2024": None}
SIZES |= {f"{task}_chen2024": 100 for task in ("gsm8k", "aqua", "ecqa", "strategyqa")}


@pytest.mark.parametrize("name", sorted(SIZES))
def test_a_papers_preset_sets_its_number_of_items_and_the_command_line_may_change_it(name: str) -> None:
    (cell,), _ = compose([f"task={name}", "engine=scripted"])
    assert cell.limit == SIZES[name] and cell.task.name == name.partition("_")[0]
    assert cell.shuffle == (None if SIZES[name] is None else 0)
    (changed,), _ = compose([f"task={name}", "engine=scripted", "limit=7", "task.path=x.jsonl"])
    assert changed.limit == 7 and changed.task.options["path"] == "x.jsonl"


def test_presets_may_be_swept_and_each_brings_its_own_size() -> None:
    cells, _ = compose(["task=gsm8k_du2023,gsm8k_2508_17536,gsm8k", "engine=scripted"], multirun=True)
    assert [cell.limit for cell in cells] == [100, 300, None]


def test_every_preset_of_a_task_composes() -> None:
    assert set(SIZES) < set(presets("task"))
    for name in presets("task"):
        compose([f"task={name}", "engine=scripted"])


def test_rows_that_differ_in_what_is_shown_or_scored_are_other_rows(tmp_path: Path) -> None:
    def rows_hash(row: dict[str, object]) -> str:
        path = jsonl(tmp_path / "own.jsonl", [row])
        return make_plan(compose(["task=jsonl", f"task.path={path}", "engine=scripted"])[0]).runs[0].task.rows

    base = {**ROWS[0], "target": ["1", "one"]}
    more = [{"group": "g"}, {"trap": "2"}, {"explanation": "e"}, {"evidence": ["t"]}, {"target": ["1", "uno"]}]
    assert len({rows_hash({**base, **change}) for change in [{}, *more]}) == 6
    assert rows_hash(base) == rows_hash({**base, "unused": 1})
