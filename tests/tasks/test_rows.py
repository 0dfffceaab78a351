"""Rows from the hub, from folders and from CSV files: parts, pins, commits, and what is said of wrong ones."""

import json
from pathlib import Path
from typing import Any

import pytest

from debate_local.tasks.aqua import aqua
from debate_local.tasks.bbh import bbh
from debate_local.tasks.gsm8k import gsm8k
from debate_local.tasks.mmlu import mmlu
from debate_local.tasks.mmlu_redux import mmlu_redux
from debate_local.tasks.rows import TaskDataError, distinct, is_lost, text
from debate_local.tasks.svamp import svamp
from tests.tasks.data import jsonl

COMMIT, OTHER = "0123456789abcdef" * 2 + "01234567", "f" * 40
GSM8K = [{"question": "2 + 2?", "answer": "#### 4"}]


class Hub:
    """Stands for `datasets.load_dataset`: gives rows by configuration, and remembers what it was asked for."""

    def __init__(self, rows: dict[str | None, list[dict[str, Any]]], commits: dict[str | None, str]) -> None:
        self.rows, self.commits = rows, commits
        self.asked: list[tuple[str, str | None, str, str | None]] = []

    def __call__(self, hub: str, config: str | None, split: str, revision: str | None) -> "Data":
        self.asked.append((hub, config, split, revision))
        folder = f"/cache/x___y/{config}/0.0.0/{self.commits[config]}" if config in self.commits else "/cache/memory"
        return Data(self.rows[config], [{"filename": f"{folder}/x-{split}.arrow"}])


class Data(list[dict[str, Any]]):
    """Rows with the paths of their cached files, as `datasets.Dataset` has them."""

    def __init__(self, rows: list[dict[str, Any]], cache_files: list[dict[str, str]]) -> None:
        super().__init__(rows)
        self.cache_files = cache_files


def install(monkeypatch: pytest.MonkeyPatch, hub: Hub) -> Hub:
    import datasets

    monkeypatch.setattr(datasets, "load_dataset", hub)
    return hub


def test_the_commit_that_the_hub_gave_is_stored_beside_the_revision_that_was_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hub = install(monkeypatch, Hub({"main": GSM8K}, {"main": COMMIT}))
    source = gsm8k(revision="v1").source
    assert hub.asked == [("openai/gsm8k", "main", "test", "v1")]
    assert (source["revision"], source["commit"], source["split"]) == ("v1", COMMIT, "test")


def test_a_commit_that_is_not_told_is_not_made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Hub({"main": GSM8K}, {}))
    assert gsm8k().source["commit"] is None


@pytest.mark.hazard("B18")
def test_a_pinned_commit_that_the_cache_does_not_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Hub({"main": GSM8K}, {"main": OTHER}))
    with pytest.raises(TaskDataError, match=f"local cache holds commit {OTHER}, and the hub could not be reached"):
        gsm8k(revision=COMMIT)


def test_a_benchmark_of_parts_is_loaded_part_by_part_and_each_row_knows_its_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = {"snarks": [{"input": "Which?\nOptions:\n(A) a\n(B) b", "target": "(B)"}]}
    rows["navigate"] = [{"input": "Back?\nOptions:\n- Yes\n- No", "target": "No"}]
    hub = install(monkeypatch, Hub({**rows}, dict.fromkeys(rows, COMMIT)))
    task = bbh(subsets=["snarks", "navigate"])
    assert [config for _, config, _, _ in hub.asked] == ["navigate", "snarks"]
    assert [(item.group, item.target) for item in task.items()] == [("navigate", "no"), ("snarks", "B")]
    assert task.source["commit"] == COMMIT and task.source["parts"] == ["navigate", "snarks"]


def test_parts_of_different_commits_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"input": "Back?", "target": "No"}]
    install(monkeypatch, Hub({"navigate": rows, "web_of_lies": rows}, {"navigate": COMMIT, "web_of_lies": OTHER}))
    with pytest.raises(TaskDataError, match=r"cached in several versions .* pin one with task\.revision="):
        bbh(subsets=["navigate", "web_of_lies"])


def test_an_unknown_split_or_part_is_answered_with_those_there_are() -> None:
    with pytest.raises(TaskDataError, match="gsm8k has no split 'dev'; its splits: test, train"):
        gsm8k(split="dev")
    with pytest.raises(TaskDataError, match=r"mmlu has no subject 'anatomi'; the 57 that it has: abstract_algebra, "):
        mmlu(subjects=["anatomi"])
    with pytest.raises(TaskDataError, match=r"bbh has no task 'snark', 'x'; the 27 that it has: boolean_expressions, "):
        bbh(subsets=["snark", "x"])
    with pytest.raises(TaskDataError, match="no subject of mmlu was asked for"):
        mmlu(subjects=[])


def test_a_file_of_another_task_is_recognised_by_its_columns(tmp_path: Path) -> None:
    row = {"question": "?", "options": ["A)1", "B)2"], "rationale": "", "correct": "A"}
    path = jsonl(tmp_path / "a.jsonl", [row])
    with pytest.raises(TaskDataError, match=r"missing: answer; found: question, .*the columns of task=aqua\."):
        gsm8k(path)
    with pytest.raises(TaskDataError, match=r"missing: options, correct; .*the columns of task=gsm8k\."):
        aqua(jsonl(tmp_path / "b.jsonl", GSM8K))


def test_a_file_of_another_task_with_the_same_columns_has_no_gold_that_can_be_read(tmp_path: Path) -> None:
    row = {"question": "Is it?", "answer": True, "facts": []}
    with pytest.raises(TaskDataError, match=r"no gold can be read.*Is it a file of another task"):
        gsm8k(jsonl(tmp_path / "a.jsonl", [row]))


def test_a_row_that_lacks_a_column_is_named_and_one_whose_cell_is_null_is_kept(tmp_path: Path) -> None:
    row = {"ID": "1", "Body": "A has 2", "Question": "How many?", "Answer": 2.0}
    with pytest.raises(TaskDataError, match=r"row 2: svamp needs .*; missing: Body; found: ID, Question, Answer"):
        svamp(jsonl(tmp_path / "a.jsonl", [row, {k: v for k, v in row.items() if k != "Body"}]))
    kept = svamp(jsonl(tmp_path / "b.jsonl", [row, {**row, "ID": "2", "Body": None}])).items()
    assert [item.question for item in kept] == ["A has 2. How many?", "How many?"]


@pytest.mark.hazard("C27")
def test_words_that_libraries_take_for_missing_values_stay_words() -> None:
    assert [text(cell) for cell in ("None", "NA", "nan", "no", "", None, float("nan"), 2.0)] == [
        *("None", "NA", "nan", "no", "", "", "", "2.0")
    ]
    assert is_lost(None) and is_lost(float("nan")) and not is_lost("") and not is_lost(0)


# Folders and CSV files


def write(path: Path, content: str, encoding: str = "utf-8") -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(content, encoding=encoding, newline="")


@pytest.mark.hazard("C27")
def test_a_folder_has_a_subject_a_file_and_cells_with_line_breaks_and_none_stay_whole(tmp_path: Path) -> None:
    head = "question,choice0,choice1,choice2,choice3,answer\n"
    write(tmp_path / "mmlu" / "virology_test.csv", head + '"Two\nlines, one cell",None,NA,x,y,0\n')
    write(tmp_path / "mmlu" / "anatomy.csv", head + "Which?,a,b,c,,3\n")
    write(tmp_path / "mmlu" / "README.md", "no data")
    first, second = mmlu(str(tmp_path / "mmlu")).items()
    assert (first.group, second.group) == ("anatomy", "virology")
    assert second.choices == ("None", "NA", "x", "y") and second.target == "A"
    assert second.question.startswith("Two\nlines, one cell\n\n(A) None\n(B) NA")
    assert first.choices[3] == "(empty)"


def test_a_csv_file_without_a_header_keeps_its_first_row(tmp_path: Path) -> None:
    write(tmp_path / "data" / "marketing_test.csv", "First?,a,b,c,d,B\nSecond?,a,b,c,d,D\n")
    items = mmlu(str(tmp_path / "data" / "marketing_test.csv")).items()
    assert [item.target for item in items] == ["B", "D"]
    assert items[0].question.startswith("First?") and items[0].group == "marketing"


def test_semicolons_other_columns_and_mac_roman_are_read(tmp_path: Path) -> None:
    head = "question;choices;answer;error_type;correct_answer\n"
    write(tmp_path / "redux" / "mmlu_anatomy.csv", head + "Which, of these?;\"['a; b', 'c']\";1;ok;\n")
    write(
        tmp_path / "redux" / "mmlu_moral_scenarios.csv",
        "error_type,answer,question,choices\nok,0,It\u2019s a caf\u00e9?,\"['a', 'b']\"\n",
        encoding="mac_roman",
    )
    anatomy, moral = mmlu_redux(str(tmp_path / "redux")).items()
    assert (anatomy.group, anatomy.target, anatomy.choices) == ("anatomy", "B", ("a; b", "c"))
    assert moral.question.startswith("It\u2019s a caf\u00e9?") and moral.group == "moral_scenarios"


def test_only_the_subjects_asked_for_are_kept_and_a_missing_one_is_named(tmp_path: Path) -> None:
    row = {"question": "Which?", "choices": ["a", "b", "c", "d"], "answer": 0}
    path = jsonl(tmp_path / "a.jsonl", [{**row, "subject": "anatomy"}, {**row, "subject": "virology"}])
    assert [item.group for item in mmlu(path, subjects=["virology"]).items()] == ["virology"]
    with pytest.raises(TaskDataError, match="no rows of subject astronomy; it has rows of: anatomy, virology"):
        mmlu(path, subjects=["virology", "astronomy"])


def test_a_folder_is_refused_where_the_task_has_no_parts_and_where_it_holds_no_data(tmp_path: Path) -> None:
    with pytest.raises(TaskDataError, match=r"is a folder\. It must name a"):
        gsm8k(str(tmp_path))
    with pytest.raises(TaskDataError, match="is a folder without"):
        mmlu(str(tmp_path))


def test_rows_under_examples_are_found_and_an_object_a_line_too(tmp_path: Path) -> None:
    row = {"input": "Not True is", "target": "False"}
    whole = tmp_path / "boolean_expressions.json"
    whole.write_text(json.dumps({"canary": "x", "examples": [row]}, indent=1))
    assert [item.target for item in bbh(str(whole)).items()] == ["false"]
    jsonl(whole, [row, {**row, "input": "Not False is", "target": "True"}])
    assert [item.target for item in bbh(str(whole)).items()] == ["false", "true"]


def test_ids_that_repeat_are_told_apart() -> None:
    assert distinct(["a", "b", "a", "a"]) == ["a", "b", "a-2", "a-3"]
