"""BIG-Bench Hard: 27 subsets by name, each with its reader; options taken out of the question."""

import json
from pathlib import Path

import pytest

from debate_local.tasks.bbh import FORMAT, SUBSETS, bbh
from debate_local.tasks.rows import TaskDataError
from tests.tasks.data import assert_every_gold_is_read, faults, jsonl, real, real_rows

CHOICE = {"input": "Which is odd?\nIt is new.\nOptions:\n(A) apple\n(B) pear, or plum\n(C) chair", "target": "(C)"}
# Subset -> a question, its target, replies that are right, replies that are wrong or no answer.
OTHERS = {
    "boolean_expressions": ("not ( True ) and ( True ) is", "False", ["So it is False.", "\\boxed{false}"], ["True"]),
    "causal_judgement": ("Did it?\nOptions:\n- Yes\n- No", "No", ["The answer is no."], ["Yes.", "Yes and no."]),
    "dyck_languages": (
        "Complete the rest of the sequence. Input: [ ( {",
        "} ) ]",
        ["Answer: } ) ]", "Answer: `})]`", "Answer: [ ( { } ) ]", "\\boxed{} ) ]}", "So it ends\n} ) ]"],
        ["Answer: ] ) }", "Answer: } )", "Answer: none", "It needs three brackets."],
    ),
    "formal_fallacies": (
        "Is it deductively valid or invalid?\nOptions:\n- valid \n- invalid",
        "invalid",
        ["The argument is invalid.", "It is not deductively valid.", "**Answer:** Invalid"],
        ["The argument is valid.", "It may be valid or invalid.", "It does not follow that it is invalid or valid"],
    ),
    "multistep_arithmetic_two": ("((-1 + 2) * -7) =", "-7", ["The answer is -7."], ["The answer is 7."]),
    "navigate": ("Do you return?\nOptions:\n- Yes\n- No", "Yes", ["Yes, you return."], ["No."]),
    "object_counting": ("I have two lamps. How many?", "2", ["There are two lamps."], ["3"]),
    "sports_understanding": ("Is it plausible?", "no", ["No."], ["yes"]),
    "web_of_lies": ("Does Ann tell the truth?", "Yes", ["The answer is yes."], ["The answer is no."]),
    "word_sorting": (
        "Sort the words: List: syrup oat",
        "oat syrup",
        ["The answer is oat syrup.", "\\boxed{\\text{oat, syrup}}", "Sorted:\n\nFinal answer: oat, syrup"],
        ["The answer is syrup oat.", "First oat, and then syrup."],
    ),
}


def test_there_are_27_subsets() -> None:
    assert len(SUBSETS) == 27
    assert set(OTHERS) < set(SUBSETS)


def test_options_are_taken_out_of_the_question_and_put_below_it(tmp_path: Path) -> None:
    (item,) = bbh(jsonl(tmp_path / "snarks.jsonl", [CHOICE])).items()
    assert item.choices == ("apple", "pear, or plum", "chair") and (item.target, item.group) == ("C", "snarks")
    assert item.question == "Which is odd?\nIt is new.\n\n(A) apple\n(B) pear, or plum\n(C) chair"


@pytest.mark.parametrize("subset", OTHERS)
def test_each_subset_is_read_in_its_own_way(tmp_path: Path, subset: str) -> None:
    question, target, right, wrong = OTHERS[subset]
    task = bbh(jsonl(tmp_path / f"{subset}.jsonl", [{"input": question, "target": target}]))
    (item,) = task.items()
    assert item.question == question and item.choices == ()
    assert [(reply, task.score(task.read(reply, item), item)) for reply in right] == [(reply, 1.0) for reply in right]
    assert [(reply, task.score(task.read(reply, item), item)) for reply in wrong] == [(reply, 0.0) for reply in wrong]
    assert task.answer_format != FORMAT


def test_several_kinds_together_ask_for_a_format_that_all_of_them_read(tmp_path: Path) -> None:
    rows = [{"input": q, "target": t, "task": subset} for subset, (q, t, _, _) in OTHERS.items()]
    task = bbh(jsonl(tmp_path / "a.jsonl", [*rows, {**CHOICE, "task": "snarks"}]))
    assert task.answer_format == FORMAT
    for item in task.items():
        boxed = f"Answer: {item.target}" if item.group == "dyck_languages" else f"\\boxed{{{item.target}}}"
        assert task.score(task.read(f"So it is clear.\n{boxed}", item), item) == 1.0, item.group


def test_a_folder_holds_all_subsets_and_some_may_be_picked(tmp_path: Path) -> None:
    for subset in ("snarks", "web_of_lies", "navigate"):
        row = CHOICE if subset == "snarks" else {"input": "Is it?", "target": "Yes"}
        (tmp_path / f"{subset}.json").write_text(json.dumps({"canary": "", "examples": [row]}))
    assert [item.group for item in bbh(str(tmp_path)).items()] == ["navigate", "snarks", "web_of_lies"]
    assert [item.group for item in bbh(str(tmp_path), subsets=["web_of_lies"]).items()] == ["web_of_lies"]


def test_a_file_that_does_not_say_its_subset_is_of_the_one_asked_for(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "mine.jsonl", [CHOICE])
    assert bbh(path, subsets=["hyperbaton"]).items()[0].group == "hyperbaton"
    with pytest.raises(TaskDataError, match=r"of which subset is it\? .*give task.subsets=\[NAME\]"):
        bbh(path)


def test_an_option_that_was_torn_in_two_leaves_a_gold_that_cannot_be_read(tmp_path: Path) -> None:
    torn = {"input": "Which film?\nOptions:\n(A) Up\n(B) Ants, Ltd\n(C) Us", "target": "Ants, Ltd"}
    task = bbh(jsonl(tmp_path / "movie_recommendation.jsonl", [CHOICE, torn]))
    assert faults(task)["has a gold that cannot be read"] == (task.items()[1].id,)
    assert task.score(task.read("The answer is (B).", task.items()[1]), task.items()[1]) == 0.0


def test_every_real_gold_of_all_27_subsets_is_read() -> None:
    task, rows = bbh(real("bbh_all27")), real_rows("bbh_all27")
    assert {item.group for item in task.items()} == set(SUBSETS)
    for item, row in zip(task.items(), rows, strict=True):
        assert item.group == row["task"]
        if item.choices:
            assert row["target"] == f"({item.target})" and f"({item.target}) " in row["input"]
        else:
            assert item.question == row["input"] and item.target == row["target"].lower()
    assert "has a gold that cannot be read" not in faults(task)
    assert_every_gold_is_read(task)


@pytest.mark.parametrize("subset", ["date_understanding", "penguins_in_a_table", "reasoning_about_colored_objects"])
def test_every_real_gold_of_a_whole_subset_is_read(subset: str) -> None:
    task, rows = bbh(real(f"bbh_{subset}")), real_rows(f"bbh_{subset}")
    assert [f"({item.target})" for item in task.items()] == [row["target"] for row in rows]
    assert_every_gold_is_read(task)
