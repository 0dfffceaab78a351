"""GSM8K and the loading of rows: formats, golds, ids, and what is said when data is missing or wrong."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from debate_local.tasks.gsm8k import gsm8k
from debate_local.tasks.rows import TaskDataError
from tests.tasks.data import assert_every_gold_is_read, faults, jsonl, real, real_rows

ROWS = [
    {"question": "A bus holds 40 people. How many do 4 hold?", "answer": "40 * 4 = <<40*4=160>>160\n#### 160"},
    {"question": "A firm pays 1,100 wages of $1,500. How much is that?", "answer": "Much.\n#### 1,650,000"},
    {"question": "It was 4 degrees and fell by 9. How cold is it?", "answer": "4 - 9 = -5\n#### -5"},
    {"question": "Half of 5 metres of {rope}?", "answer": "5/2\n####  2.50"},
]


@pytest.mark.hazard("A05", "A08")
def test_golds_keep_commas_minus_signs_and_decimals(tmp_path: Path) -> None:
    task = gsm8k(jsonl(tmp_path / "test.jsonl", ROWS))
    assert [item.target for item in task.items()] == ["160", "1650000", "-5", "2.5"]
    assert [item.question for item in task.items()] == [row["question"] for row in ROWS]
    assert task.source["rows"] == 4 and task.source["licence"] == "MIT"


def test_the_prompt_holds_the_question_unchanged_and_ends_with_the_format(tmp_path: Path) -> None:
    task = gsm8k(jsonl(tmp_path / "test.jsonl", ROWS))
    prompt = task.ask(task.items()[3])
    assert "Half of 5 metres of {rope}?" in prompt
    assert prompt.endswith(task.answer_format)
    assert "{answer_format}" not in prompt


def write_parquet(path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist(ROWS), path)


def write_csv(path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, ["question", "answer"])
        writer.writeheader()
        writer.writerows(ROWS)


WRITERS = {
    "test.jsonl": lambda path: jsonl(path, ROWS),
    "lines.json": lambda path: jsonl(path, ROWS),
    "list.json": lambda path: path.write_text(json.dumps(ROWS, indent=1), encoding="utf-8"),
    "marked.jsonl": lambda path: path.write_text("\ufeff" + "\n".join(json.dumps(r) for r in ROWS), encoding="utf-8"),
    "blanks.jsonl": lambda path: path.write_text("\n\n".join(json.dumps(r) for r in ROWS) + "\n \n", encoding="utf-8"),
    "test.csv": write_csv,
    "test.PARQUET": write_parquet,
}


@pytest.mark.hazard("C25")
@pytest.mark.parametrize("name", WRITERS)
def test_every_file_format_gives_the_same_items_in_the_order_of_the_file(name: str, tmp_path: Path) -> None:
    WRITERS[name](tmp_path / name)
    assert gsm8k(str(tmp_path / name)).items() == gsm8k(jsonl(tmp_path / "plain.jsonl", ROWS)).items()


def test_an_id_is_a_hash_of_its_row_and_does_not_know_its_place(tmp_path: Path) -> None:
    there = {item.question: item.id for item in gsm8k(jsonl(tmp_path / "a.jsonl", ROWS)).items()}
    back = {item.question: item.id for item in gsm8k(jsonl(tmp_path / "b.jsonl", ROWS[:0:-1])).items()}
    assert len(set(there.values())) == 4
    assert back == {question: there[question] for question in back}
    changed = [{**ROWS[0], "answer": "#### 161"}]
    assert gsm8k(jsonl(tmp_path / "c.jsonl", changed)).items()[0].id != there[ROWS[0]["question"]]


@pytest.mark.hazard("C24")
def test_repeated_rows_stay_items_of_their_own_and_are_reported(tmp_path: Path) -> None:
    task = gsm8k(jsonl(tmp_path / "a.jsonl", [ROWS[0], ROWS[1], ROWS[0], ROWS[0]]))
    first = task.items()[0].id
    assert [item.id for item in task.items()] == [first, task.items()[1].id, f"{first}-2", f"{first}-3"]
    assert faults(task)["repeats an earlier item"] == (f"{first}-2", f"{first}-3")


def test_the_same_question_with_another_gold_is_reported_as_a_dispute(tmp_path: Path) -> None:
    other = {**ROWS[0], "answer": "#### 44"}
    task = gsm8k(jsonl(tmp_path / "a.jsonl", [ROWS[0], ROWS[1], other]))
    assert faults(task)["asks what an earlier item asks, with another gold"] == (task.items()[2].id,)
    assert "repeats an earlier item" not in faults(task)


@pytest.mark.hazard("A40")
def test_a_gold_that_is_reported_as_wrong_is_scored_and_marked(tmp_path: Path) -> None:
    doubted = {"question": "Bob has three times more points than Sara, who has 3. How many?", "answer": "#### 9"}
    task = gsm8k(jsonl(tmp_path / "a.jsonl", [ROWS[0], doubted]))
    sound, suspect = task.items()
    assert not sound.suspect and "grade-school-math#25" in suspect.suspect
    assert task.score(task.read("The answer is 9.", suspect), suspect) == 1.0
    assert task.score(task.read("The answer is 12.", suspect), suspect) == 0.0


def test_the_worked_solution_is_the_explanation_without_its_notes(tmp_path: Path) -> None:
    assert gsm8k(jsonl(tmp_path / "a.jsonl", ROWS)).items()[0].explanation == "40 * 4 = 160"


def test_a_gold_that_cannot_be_read_is_reported_and_never_right(tmp_path: Path) -> None:
    broken = {"question": "How many?", "answer": "It is five or 6."}
    task = gsm8k(jsonl(tmp_path / "a.jsonl", [ROWS[0], broken]))
    item = task.items()[1]
    assert faults(task)["has a gold that cannot be read"] == (item.id,)
    assert item.suspect == "the gold cannot be read"
    assert task.score(task.read("The answer is 5.", item), item) == 0.0


def test_a_path_may_begin_with_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    jsonl(tmp_path / "test.jsonl", ROWS)
    assert len(gsm8k("~/test.jsonl").items()) == 4


def refusal(path: Path | str) -> str:
    with pytest.raises(TaskDataError) as error:
        gsm8k(str(path))
    return str(error.value)


def test_a_missing_file_says_what_to_download_and_where_it_was_sought(tmp_path: Path) -> None:
    said = refusal(tmp_path / "test.jsonl")
    assert "does not exist" in said and str(Path.cwd()) in said
    assert "openai/grade-school-math" in said and "set task.path" in said


def test_a_folder_or_an_unknown_kind_of_file_is_refused_with_the_known_kinds(tmp_path: Path) -> None:
    assert "is a folder" in refusal(tmp_path)
    (tmp_path / "test.txt").write_text("x")
    said = refusal(tmp_path / "test.txt")
    assert "is of no known kind" in said and ".jsonl, .json, .csv, .parquet" in said


def test_a_wrong_column_is_named_with_those_that_were_found(tmp_path: Path) -> None:
    said = refusal(jsonl(tmp_path / "a.jsonl", [ROWS[0], {"problem": "?", "answer": "#### 1"}]))
    assert "row 2" in said and "missing: question" in said and "found: problem, answer" in said


@pytest.mark.hazard("C19", "C20")
@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.jsonl", "", "has no rows"),
        ("a.jsonl", "\n\n", "has no rows"),
        ("a.csv", "question,answer\n", "has no rows"),
        ("a.json", "[]", "has no rows"),
        ("a.jsonl", json.dumps(ROWS[0]) + '\n{"question": "cut', "line 2 is not JSON"),
        ("a.jsonl", json.dumps(ROWS[0]) + json.dumps(ROWS[1]) + "\n", "line 1 is not JSON"),
        ("a.jsonl", '["question"]\n', "line 1: expected an object"),
        ("a.json", '[{"question": ', "is not JSON"),
        ("a.json", "[1, 2]", "element 1: expected an object"),
        ("a.parquet", "not parquet", "is not a Parquet file"),
        ("a.jsonl", '{"question": "?", "answer": null}\n', "missing: answer"),
        ("a.jsonl", '{"question": "?", "answer": "no mark 5"}\n', 'no gold can be read, the first is "no `####`'),
        ("a.jsonl", '{"question": "?", "answer": "#### five or 6"}\n', "no gold can be read, the first is 'five or 6'"),
        ("a.csv", "question,answer\na,#### 1,2\n", "line 2: 3 cells under 2 columns"),
    ],
)
def test_a_broken_file_is_refused_with_the_place_of_the_fault(tmp_path: Path, name: str, text: str, says: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert says in refusal(tmp_path / name)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"question": "\xff\xfe"}')
    assert "cannot be read" in refusal(tmp_path / "a.jsonl")


def test_without_a_path_the_hub_is_asked_for_split_and_revision(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    asked: list[tuple[Any, ...]] = []

    def load_dataset(hub: str, config: str, split: str, revision: str | None) -> list[dict[str, str]]:
        asked.append((hub, config, split, revision))
        return ROWS

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    task = gsm8k(split="train", revision="abc")
    assert asked == [("openai/gsm8k", "main", "train", "abc")]
    assert [item.target for item in task.items()] == ["160", "1650000", "-5", "2.5"]
    assert task.source["hub"] == "openai/gsm8k" and task.source["revision"] == "abc"


@pytest.mark.slow
def test_a_hub_out_of_reach_says_how_to_go_on_without_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from debate_local.tasks.gsm8k import gsm8k; gsm8k()"],
        env={**os.environ, "HF_DATASETS_OFFLINE": "1", "HF_HUB_OFFLINE": "1", "HF_HOME": os.devnull + "/none"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode != 0
    assert "TaskDataError: openai/gsm8k (config main, split test, revision newest) could not be loaded" in done.stderr
    assert "task.path=FILE" in done.stderr and "Download test.jsonl" in done.stderr


@pytest.mark.hazard("B27")
@pytest.mark.hazard("B27")
def test_a_local_file_is_loaded_without_datasets_and_its_cache(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "test.jsonl", ROWS)
    code = (
        "import sys; from debate_local.tasks.gsm8k import gsm8k; gsm8k(sys.argv[1]);"
        "print(*{'datasets', 'pyarrow', 'polars', 'torch', 'transformers'} & set(sys.modules))"
    )
    home = tmp_path / "home"
    done = subprocess.run(
        [sys.executable, "-c", code, path],
        env={**os.environ, "HOME": str(home), "HF_HOME": str(home / "hf")},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert done.stdout.strip() == ""
    assert not home.exists()


@pytest.mark.parametrize("split", ["test", "train"])
def test_the_real_rows_load_and_their_worked_solutions_are_graded_right(split: str) -> None:
    task, rows = gsm8k(real(f"gsm8k_{split}")), real_rows(f"gsm8k_{split}")
    assert len(task.items()) == len(rows) == len({item.id for item in task.items()})
    for item, row in zip(task.items(), rows, strict=True):
        assert task.score(task.read(row["answer"], item), item) == 1.0
        assert task.read(item.question, item).missing
    assert_every_gold_is_read(task)
    assert list(faults(task)) == ["200 rows were loaded; as published: test 1,319, train 7,473"]
