"""A file of one's own: which reader, choices, evidence, and what is said when it is not as it should be."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from debate_local.core.transcript import Evidence
from debate_local.tasks.answers.readers import ChoiceReader, NumberReader, WordsReader, YesNoReader
from debate_local.tasks.jsonl import jsonl as own
from debate_local.tasks.rows import TaskDataError
from tests.tasks.data import assert_every_gold_is_read, faults
from tests.tasks.data import jsonl as file_of

CHOICE = {
    "id": "gas",
    "question": "Which gas do plants take in?",
    "choices": ["oxygen", "carbon dioxide", "helium"],
    "target": "carbon dioxide",
    "group": "biology",
    "trap": ["A"],
    "explanation": "They make sugar of it.",
    "evidence": [{"id": "e1", "source": "a book", "text": "Leaves take it in.", "correct": True}, "They breathe it."],
}


def load(tmp_path: Path, *rows: dict[str, Any], **options: Any) -> Any:
    return own(file_of(tmp_path / "own.jsonl", rows), **options)


def test_everything_that_a_row_may_hold_is_in_the_item(tmp_path: Path) -> None:
    task = load(tmp_path, CHOICE)
    (item,) = task.items()
    assert (item.id, item.target, item.trap, item.group) == ("gas", "B", ("A",), "biology")
    assert item.explanation == "They make sugar of it."
    assert item.evidence == (
        Evidence("e1", "a book", "Leaves take it in.", True),
        Evidence("gas-2", "", "They breathe it."),
    )
    assert_every_gold_is_read(task)


@pytest.mark.parametrize(
    ("targets", "reader"),
    [
        ([4, "4.5", "1,000"], NumberReader),
        (["yes", "No", True], YesNoReader),
        (["oat", "rye wheat"], WordsReader),
        (["yes", "4"], WordsReader),
    ],
)
def test_the_reader_is_chosen_by_all_targets(tmp_path: Path, targets: list[Any], reader: type) -> None:
    task = load(tmp_path, *({"question": f"{n}?", "target": target} for n, target in enumerate(targets)))
    assert isinstance(task.reader, reader)
    assert_every_gold_is_read(task)
    assert task.source["reader"] in ("number", "yes_no", "words")


def test_choices_make_it_a_choice_and_a_named_reader_is_taken(tmp_path: Path) -> None:
    assert isinstance(load(tmp_path, CHOICE).reader, ChoiceReader)
    row = {"question": "Compute.", "target": "\\frac{1}{2}"}
    task = load(tmp_path, row, reader="expression")
    (item,) = task.items()
    assert task.score(task.read("\\boxed{0.5}", item), item) == 1.0


def test_any_of_several_targets_is_right(tmp_path: Path) -> None:
    task = load(tmp_path, {"question": "A root of x^2 = 4?", "target": [2, -2]}, reader="number")
    (item,) = task.items()
    said = ["The answer is 2.", "The answer is -2.", "The answer is 4."]
    assert [task.score(task.read(text, item), item) for text in said] == [1.0, 1.0, 0.0]


@pytest.mark.hazard("C26", "C27")
def test_words_in_a_csv_file_stay_words_and_lists_are_json(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["question", "target", "choices"])
        writer.writerow(["Which country has the code NO?", "Norway", json.dumps(["no", "NA", "Norway", "None"])])
    (item,) = own(str(path)).items()
    assert item.choices == ("no", "NA", "Norway", "None") and item.target == "C"


def test_a_text_of_an_option_beats_a_letter(tmp_path: Path) -> None:
    (item,) = load(tmp_path, {"question": "Which vitamin?", "choices": ["C", "A", "B"], "target": "C"}).items()
    assert item.target == "A"


def test_options_are_shuffled_by_a_seed(tmp_path: Path) -> None:
    rows = [{**CHOICE, "id": str(n), "question": f"{n}?"} for n in range(20)]
    items = load(tmp_path, *rows, shuffle_options=1).items()
    assert {item.choices["ABC".index(item.target)] for item in items} == {"carbon dioxide"}
    assert len({item.target for item in items}) == 3


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"question": "?"}, "jsonl needs the columns question, target; missing: target"),
        (
            {"question": "?", "target": "x", "choices": "a, b"},
            "choices must be a list, or in a CSV file a list as JSON",
        ),
        ({"question": "?", "target": "x", "choices": {"A": "a"}}, "choices must be a list, got"),
        ({"question": "?", "target": "D", "choices": ["a", "b"]}, "no gold can be read, the first is 'D'"),
        ({"question": "?", "target": "x", "evidence": [{"source": "?"}]}, "evidence 1: it needs a text"),
        ({"question": "?", "target": "x", "evidence": [{"text": "t", "correct": "no"}]}, "must be true, false or null"),
        ({"question": "?", "target": "A", "choices": [str(n) for n in range(27)]}, "27 options are more than"),
    ],
)
def test_what_is_wrong_with_a_row_is_said(tmp_path: Path, row: dict[str, Any], says: str) -> None:
    with pytest.raises(TaskDataError) as error:
        load(tmp_path, row)
    assert says in str(error.value)


def test_a_reader_that_does_not_fit_and_a_missing_path_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TaskDataError, match="needs choices in every row"):
        load(tmp_path, {"question": "?", "target": "A"}, reader="choice")
    with pytest.raises(TaskDataError, match="no gold can be read"):
        load(tmp_path, {"question": "?", "target": "green"}, reader="number")
    with pytest.raises(TaskDataError, match=r"task=jsonl needs task\.path=FILE"):
        own()


def test_a_target_that_the_reader_cannot_read_is_listed(tmp_path: Path) -> None:
    rows = [{"question": "1?", "target": "4"}, {"question": "2?", "target": "four or five"}]
    task = load(tmp_path, *rows, reader="number")
    assert faults(task)["has a gold that cannot be read"] == (task.items()[1].id,)
