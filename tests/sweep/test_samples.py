"""Files of samples: what they must be, whose they must be, and what they make of a run."""

import json
from pathlib import Path
from typing import Any

import pytest

from debate_local.core.samples import Sample
from debate_local.sweep.cells import cell_json, cell_of
from debate_local.sweep.compose import compose
from debate_local.sweep.options import OptionFault
from debate_local.sweep.plan import Plan, make_plan
from debate_local.sweep.samples import SampleFile, read_samples, write_samples
from tests.tasks.data import jsonl

pytestmark = pytest.mark.slow

ROWS = [{"id": f"q{n}", "question": f"What is {n} and one?", "target": str(n + 1)} for n in range(1, 4)]
HEAD = {"samples_of": {"task": "jsonl"}}


def rows(*models: str, count: int = 2, **changed: str) -> list[dict[str, str]]:
    return [
        {
            "kind": kind,
            "model": model,
            "item": f"{kind}-{model}-{n}",
            "question": f"What is {n} of {model}?",
            "answer": str(n),
            "explanation": "Think.",
            **changed,
        }
        for model in models
        for kind in ("convincing", "random")
        for n in range(count)
    ]


def planned(tmp_path: Path, samples: list[Any], *overrides: str, multirun: bool = False) -> Plan:
    """A round table of models a and b with these samples."""
    given = [
        *("engine=scripted", "task=jsonl", f"task.path={jsonl(tmp_path / 'rows.jsonl', ROWS)}", "protocol=reconcile"),
        *("engine.models.a=A", "engine.models.b=B", "cast=[{model: a}, {model: b}]"),
        f"convincing={jsonl(tmp_path / 'samples.jsonl', samples)}",
    ]
    cells, _ = compose([*given, *overrides], multirun)
    return make_plan(cells)


SHOWN = ["protocol.samples=convincing", "controls=false"]


def fault(tmp_path: Path, samples: list[Any], *overrides: str) -> str:
    with pytest.raises(OptionFault) as caught:
        planned(tmp_path, samples, *SHOWN, *overrides)
    return str(caught.value)


@pytest.mark.parametrize(
    ("samples", "says"),
    [
        ([], "holds no sample"),
        ([HEAD], "holds no sample"),
        (rows("a", "b"), 'line 1: the first line says whose samples these are: {"samples_of": {"task": "..."}}'),
        ([{"samples_of": {}}, *rows("a", "b")], "line 1: the first line says whose samples these are"),
        ([HEAD, 3], "line 2: a sample has the fields kind, model, item, question, answer, explanation; got 3"),
        ([HEAD, *rows("a", gold="x")], "line 2: a sample has the fields"),
        ([HEAD, *rows("a", explanation=" ")], "line 2: explanation must be a text that is not empty, got ' '"),
        ([HEAD, *rows("a", kind="best")], "line 2: kind must be one of: convincing, random; got 'best'"),
        ([{"samples_of": {"task": "gsm8k"}}, *rows("a", "b")], "are of task 'gsm8k', and the task is 'jsonl'"),
        ([HEAD, *rows("a", "b", "d")], "are of model 'd', which the engine does not have. It has: a, b"),
        ([HEAD, *rows("a")], "some convincing samples of each model are to be shown, and of model 'b' there are 0"),
        ([HEAD, *rows("a", "b", item="q2")], "item q2 is to be answered and is among the samples"),
        ([HEAD, *rows("a", "b", question="What is 3 and one?")], "item q3 is to be answered and is among the samples"),
        (
            [{"samples_of": {"task": "jsonl", "models": {"a": "0" * 32}}}, *rows("a", "b")],
            "the samples of model 'a' were found with another model of that name",
        ),
    ],
)
def test_a_file_that_is_not_for_this_run_is_refused(tmp_path: Path, samples: list[Any], says: str) -> None:
    assert says in fault(tmp_path, samples)


def test_samples_that_are_to_be_shown_and_are_not_there_are_refused(tmp_path: Path) -> None:
    fine = [HEAD, *rows("a", "b")]
    assert "convincing samples are to be shown, and there are none: make such a file" in fault(
        tmp_path, fine, "convincing=null"
    )
    assert "3 convincing samples of each model are to be shown, and of model 'a' there are 2" in fault(
        tmp_path, fine, "protocol.shots=3"
    )
    gone = fault(tmp_path, fine, f"convincing={tmp_path / 'gone.jsonl'}")
    assert "gone.jsonl: the file cannot be read" in gone
    (tmp_path / "torn.jsonl").write_text('{"samples_of": {"task": "jsonl"}}\n{"kind": "conv')
    assert "torn.jsonl, line 2 is no JSON" in fault(tmp_path, fine, f"convincing={tmp_path / 'torn.jsonl'}")


def test_models_of_the_engine_that_the_cast_does_not_use_may_have_samples(tmp_path: Path) -> None:
    (run,) = planned(tmp_path, [HEAD, *rows("a", "b")], *SHOWN, "cast=[{model: a}]").runs
    first = next(run.debate(run.task.items[0]))[0].messages[0].content
    assert "What is 1 of a?" in first and "of b?" not in first


def test_a_run_is_what_is_shown_and_not_where_it_lies_or_came_from(tmp_path: Path) -> None:
    samples = rows("a", "b")
    (one,) = planned(tmp_path, [HEAD, *samples], *SHOWN).runs
    told = {"samples_of": {"task": "jsonl", "seed": 7}}
    elsewhere = jsonl(tmp_path / "elsewhere.jsonl", [told, *samples])
    assert planned(tmp_path, [HEAD, *samples], *SHOWN, f"convincing={elsewhere}").runs[0].id == one.id
    (other,) = planned(tmp_path, [HEAD, *rows("a", "b", explanation="Count.")], *SHOWN).runs
    assert other.id != one.id


def test_what_is_not_shown_is_no_part_of_a_run(tmp_path: Path) -> None:
    samples = [HEAD, *rows("a", "b")]
    with_file = planned(tmp_path, samples, "controls=false").runs[0]
    without = planned(tmp_path, samples, "controls=false", "convincing=null").runs[0]
    assert with_file.id == without.id and with_file.cell.convincing is None


def test_a_run_with_samples_is_planned_again_from_its_record_without_the_file(tmp_path: Path) -> None:
    (run,) = planned(tmp_path, [HEAD, *rows("a", "b")], *SHOWN).runs
    (tmp_path / "samples.jsonl").unlink()
    record = json.loads(json.dumps(cell_json(run.cell)))
    assert make_plan([cell_of(record)]).runs[0].id == run.id
    # A record of a time without samples has none.
    assert cell_of({key: value for key, value in record.items() if key != "convincing"}).convincing is None


def test_controls_are_asked_as_round_0_is_and_each_model_is_asked_alone_without_samples(tmp_path: Path) -> None:
    plan = planned(tmp_path, [HEAD, *rows("a", "b")], "protocol.samples=convincing", "protocol.agents=2")
    table, *controls = plan.runs
    first = [request.messages for request in next(table.debate(table.task.items[0]))]
    roles = {role: run for run in controls for role, _ in run.controls if not role.endswith(("shot", "member"))}
    assert roles.keys() == {"single", "vote0", "sc_calls", "reflect"}
    for run in roles.values():
        assert [request.messages for request in next(run.debate(run.task.items[0]))][:2] == first
    zero = [run for run in controls if "zero_shot" in dict(run.controls)]
    assert [[member.model for member in run.cell.cast] for run in zero] == [["a"], ["b"]]
    assert [run.label for run in zero] == ["single agents=1 cot=True model=a", "single agents=1 cot=True model=b"]
    for run in zero:
        (request,) = next(run.debate(run.task.items[0]))
        assert "What is 1 and one?" in request.messages[0].content and "Sample" not in request.messages[0].content


def test_files_of_samples_are_told_apart_in_tables(tmp_path: Path) -> None:
    other = jsonl(tmp_path / "other.jsonl", [HEAD, *rows("a", "b", explanation="Count.")])
    plan = planned(
        tmp_path, [HEAD, *rows("a", "b")], *SHOWN, f"convincing={tmp_path / 'samples.jsonl'},{other}", multirun=True
    )
    assert len({run.label for run in plan.runs}) == 2 and all("convincing=" in run.label for run in plan.runs)


def test_what_is_written_is_read_again_and_nothing_else_is_overwritten(tmp_path: Path) -> None:
    found = SampleFile(
        {"task": "jsonl", "seed": 0}, (Sample("convincing", "a", "é1", "Q?\n(A) {x}", "A", "It\u2028is."),)
    )
    path = tmp_path / "new" / "samples.jsonl"
    write_samples(path, found)
    assert read_samples(str(path)) == found
    write_samples(path, found)
    with pytest.raises(OptionFault, match="is there already and holds something else"):
        write_samples(path, SampleFile({"task": "other"}, found.samples))
    assert read_samples(str(path)) == found
