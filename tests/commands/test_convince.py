"""Samples are found on training rows and written to a file that a later run names."""

import json
from pathlib import Path
from typing import Any

import pytest

import debate_local
from debate_local.cli import main
from debate_local.sweep.samples import read_samples
from debate_local.sweep.store import Run
from tests.tasks.data import jsonl

pytestmark = pytest.mark.slow

# From the explanation of q0 the answer can be read, and q1 has none.
EXPLAINED = ["The answer is 10.", "", *(f"Count on from {n}." for n in range(2, 12))]
ROWS = [
    {"id": f"q{n}", "question": f"What is {n} and ten?", "target": str(n + 10), "explanation": explanation}
    for n, explanation in enumerate(EXPLAINED)
]


def scripts(tmp_path: Path) -> list[str]:
    """Model a: wrong alone, and right when shown an explanation. Model b: so on even numbers only, else right alone."""

    def right(n: int) -> str:
        return f"The answer is {n + 10}."

    def entries(model: str) -> list[dict[str, str]]:
        explained = [{"match": f"A person has explained[\\s\\S]*is {n} and", "reply": right(n)} for n in range(12)]
        alone = [{"match": f"is {n} and", "reply": right(n)} for n in range(12) if model == "b" and n % 2]
        return [*explained, *alone, {"reply": "The answer is 99."}]

    overrides = []
    for model in "ab":
        path = tmp_path / f"{model}.yaml"
        path.write_text(json.dumps(entries(model)))
        overrides.append(f"engine.models.{model}.replies={path}")
    return [*overrides, "cast=[{model: a}, {model: b}, {model: a}]"]


def convince(tmp_path: Path, *more: str, output: str = "samples.jsonl") -> int:
    given = [
        *("task=jsonl", "task.reader=number", f"task.path={jsonl(tmp_path / 'train.jsonl', ROWS)}", "engine=scripted"),
        *(*scripts(tmp_path), f"output={tmp_path / 'runs'}", "protocol=reconcile"),
    ]
    return main(["convince", "--output", str(tmp_path / output), *given, *more])


def written(tmp_path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (tmp_path / "samples.jsonl").read_text().splitlines()]


def test_it_finds_what_an_explanation_turned_and_as_many_at_random(tmp_path: Path) -> None:
    assert convince(tmp_path, "--shots", "2") == 0
    head, *rows = written(tmp_path)
    found = {(row["model"], row["kind"]): [] for row in rows}
    for row in rows:
        found[row["model"], row["kind"]].append(row["item"])
    assert found["a", "convincing"] == ["q2", "q3"] and found["b", "convincing"] == ["q2", "q4"]
    # Random ones are of the same rows, and no two models share one; none gives the answer away.
    drawn = [*found["a", "random"], *found["b", "random"]]
    assert len(set(drawn)) == 4 and not {"q0", "q1"} & set(drawn)
    assert rows[0] == {
        "kind": "convincing",
        "model": "a",
        "item": "q2",
        "question": "What is 2 and ten?",
        "answer": "12",
        "explanation": "Count on from 2.",
    }
    about = head["samples_of"]
    assert (about["task"], about["items"], about["usable"], about["seed"]) == ("jsonl", 12, 10, 0)
    assert about["models"].keys() == {"a", "b"} and "path" not in about["source"]
    # As prompts will be: round tables ask to think step by step, and for a confidence.
    assert about["protocol"] == {"name": "explained", "agents": 2, "cot": True, "confidence": "verbal"}
    assert "explanation" in about["templates"]["explained"] and about["rows"] and about["run"]


def test_the_file_is_shown_to_a_later_run_of_the_same_models_and_no_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert convince(tmp_path) == 0
    told = capsys.readouterr().out
    assert "4 convincing and 4 random samples for each of: a, b" in told and "convincing=" in told
    test = [{"id": "t", "question": "What is 50 and ten?", "target": "60"}]
    given = [
        *("task=jsonl", "task.reader=number", f"task.path={jsonl(tmp_path / 'test.jsonl', test)}", "engine=scripted"),
        *(*scripts(tmp_path), f"output={tmp_path / 'runs'}", "protocol=reconcile", "protocol.samples=convincing"),
        *(f"convincing={tmp_path / 'samples.jsonl'}", "controls=false"),
    ]
    (run,) = debate_local.run(given).runs
    assert isinstance(run, Run)
    assert len(run.record["convincing"]["samples"]) == 16
    # The third agent is model a again, so the first is shown what convinced a and b: q2 and q4 both of them.
    first = run.turns["prompt"][0]
    assert "Count on from 2." in first and first.count("Sample ") == 6
    # Another model of that name is another model.
    changed = [one.replace("engine.models.a.replies", "engine.models.a.seed=1 x") for one in given]
    changed = [one if " x=" not in one else "engine.models.a={seed: 1}" for one in changed]
    assert main(["plan", *changed]) == 2
    assert "were found with another model of that name" in capsys.readouterr().err
    # The rows that samples were taken from are no test.
    assert main(["plan", *given, f"task.path={tmp_path / 'train.jsonl'}"]) == 2
    assert "item q2 is to be answered and is among the samples" in capsys.readouterr().err


def test_the_same_again_asks_nothing_and_more_items_ask_only_what_is_new(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert convince(tmp_path, "limit=6", "--shots", "2") == 0
    # Two models alone; a again on q2..q5, b on q2 and q4.
    assert "18 requests in these cells, 18 sent" in capsys.readouterr().out
    assert convince(tmp_path, "limit=6", "--shots", "2") == 0
    assert convince(tmp_path, "limit=7", "--shots", "2", output="more.jsonl") == 0
    assert "22 requests in these cells, 4 sent" in capsys.readouterr().out
    # One kind of sample does not change when there are more rows to look at: the first that are found.
    fewer, more = (read_samples(str(tmp_path / name)).samples for name in ("samples.jsonl", "more.jsonl"))
    assert [one for one in fewer if one.kind == "convincing"] == [one for one in more if one.kind == "convincing"]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--shots", "0"], "--shots must be at least 1, got 0"),
        (
            ["--shots", "6"],
            "12 explanations are needed, and 10 of 12 items have one that can be used: 1 have none, and",
        ),
        (["--shots", "5", "limit=12"], ""),
        (["limit=7", "--shots", "2", "seed=x"], "seed must be a whole number"),
        (["--shots", "3", "ids=[q2,q3,q4,q5,q7,q9]"], "2 of 3 for model 'b'"),
        (["protocol.agents=0,1"], "protocol.agents"),
    ],
)
def test_what_cannot_be_is_said_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], says: str
) -> None:
    code = convince(tmp_path, *more)
    assert code == (2 if says else 0)
    assert says in capsys.readouterr().err
    assert (tmp_path / "samples.jsonl").exists() is (not says)


def test_a_task_whose_explanations_all_state_the_answer_has_no_samples(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{**row, "explanation": f"So the answer is {row['target']}."} for row in ROWS]
    given = ["engine=scripted", "task=jsonl", f"task.path={jsonl(tmp_path / 'all.jsonl', rows)}"]
    assert main(["convince", "--output", str(tmp_path / "x.jsonl"), *given, f"output={tmp_path / 'runs'}"]) == 2
    assert "0 of 12 items have one that can be used: 0 have none, and from those of 12 the answer can be read" in (
        capsys.readouterr().err
    )
    # It was known before anything was asked.
    assert not (tmp_path / "runs").exists()
