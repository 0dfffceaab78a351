"""Faults of released code, each wrong value beside the right one."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from debate_local.core.chat import ChatRequest, Completion
from debate_local.core.protocol import facts_of
from debate_local.core.scheduler import ask_in_turn
from debate_local.core.setting import Setting
from debate_local.core.task import Task
from debate_local.core.transcript import Item
from debate_local.protocols.debate import debate
from debate_local.tasks.answers.answer_task import AnswerTask
from debate_local.tasks.arithmetic import arithmetic
from debate_local.tasks.gsm8k import gsm8k
from debate_local.tasks.jsonl import jsonl as own
from debate_local.tasks.mmlu import mmlu
from debate_local.tasks.quirks import QUIRKS, checked, kept_items, told, with_quirks
from tests.fakes import Sums
from tests.protocols.scene import defaults
from tests.tasks.data import jsonl, real


def gsm(tmp_path: Path, *golds: str) -> AnswerTask:
    rows = [{"question": f"How many are {n}?", "answer": f"Some.\n#### {gold}"} for n, gold in enumerate(golds)]
    task = gsm8k(jsonl(tmp_path / "gsm8k.jsonl", rows))
    assert isinstance(task, AnswerTask)
    return task


def options(tmp_path: Path, *questions: tuple[str, str]) -> AnswerTask:
    rows = [
        {"question": text, "choices": ["a wolf", "a bear", "a fox", "an owl"], "answer": 1, "subject": subject}
        for text, subject in questions
    ]
    task = mmlu(jsonl(tmp_path / "mmlu.jsonl", rows))
    assert isinstance(task, AnswerTask)
    return task


def yes_or_no(tmp_path: Path) -> AnswerTask:
    task = own(jsonl(tmp_path / "own.jsonl", [{"question": "Is it?", "target": "no"}]), reader="yes_no")
    assert isinstance(task, AnswerTask)
    return task


def score(task: Task, replies: Sequence[str], item: Item | None = None) -> float:
    """The score of one round of a debate in which these replies are given, agent by agent."""
    setting = Setting(task, templates=facts_of(debate).checked_templates({}))

    def say(requests: list[ChatRequest]) -> list[Completion]:
        return [Completion(replies[int(request.id.partition(".")[0])]) for request in requests]

    item = item or task.items()[0]
    transcript = ask_in_turn(debate(item, setting, **defaults(debate, agents=len(replies), rounds=1)), say)
    return ask_in_turn(task.grade(transcript, item), say).score


def read(task: Task, text: str) -> str | None:
    return task.read(text, task.items()[0]).value


@pytest.mark.hazard("D02")
def test_no_answer_at_all_is_wrong_and_by_the_quirk_right(tmp_path: Path) -> None:
    plain = gsm(tmp_path, "72")
    quirky = with_quirks(plain, ["du_none_is_right"], 0)
    silence = ["I will not answer."] * 3
    assert (score(plain, silence), score(quirky, silence)) == (0.0, 1.0)
    for replies in (["The answer is 71.", *silence[1:]], ["The answer is 72."] * 3):
        assert score(plain, replies) == score(quirky, replies)


@pytest.mark.hazard("A05", "A08")
@pytest.mark.parametrize(
    ("gold", "says", "right", "by_quirk"),
    [
        ("1,234", "1,234", 1.0, 0.0),
        ("1,234", "234", 0.0, 1.0),
        ("-5", "-5", 1.0, 0.0),
        ("-5", "5", 0.0, 1.0),
        ("$2.50", "2.5", 1.0, 1.0),
        ("72", "72", 1.0, 1.0),
    ],
)
def test_a_gold_is_all_of_its_number_and_by_the_quirk_its_last_digits(
    gold: str, says: str, right: float, by_quirk: float, tmp_path: Path
) -> None:
    plain = gsm(tmp_path, gold)
    quirky = with_quirks(plain, ["du_gold_digits"], 0)
    replies = [f"The answer is \\boxed{{{says}}}."]
    assert (score(plain, replies), score(quirky, replies)) == (right, by_quirk)
    assert quirky.items()[0].target == plain.items()[0].target, "what is shown as the gold is the gold"


def test_of_real_golds_the_quirk_gets_those_wrong_that_have_a_comma_or_a_minus() -> None:
    plain = gsm8k(real("gsm8k_test"))
    assert isinstance(plain, AnswerTask)
    quirky = with_quirks(plain, ["du_gold_digits"], 0)
    says = {item: plain.read(f"\\boxed{{{item.target}}}", item) for item in plain.items()}
    wrong = {item.id for item, answer in says.items() if quirky.score(answer, item) == 0.0}
    assert wrong == {id for id, gold in plain.golds.items() if "," in gold or "-" in gold}
    assert 0 < len(wrong) < len(says) / 20


@pytest.mark.hazard("A05")
def test_a_prediction_keeps_its_sign_and_by_the_quirk_loses_it(tmp_path: Path) -> None:
    plain = gsm(tmp_path, "-5")
    quirky = with_quirks(plain, ["du_no_minus"], 0)
    assert (read(plain, "The answer is -5."), read(quirky, "The answer is -5.")) == ("-5", "5")
    assert read(quirky, "The answer is 5.") == "5" and read(quirky, "I do not know.") is None
    both = with_quirks(plain, ["du_no_minus", "du_gold_digits"], 0)
    replies = ["The answer is 5."]
    assert (score(plain, replies), score(both, replies)) == (0.0, 1.0), "the sign is dropped on both sides"


@pytest.mark.parametrize(
    ("says", "right", "by_quirk"),
    [
        ("1,000", "1000", "1"),
        ("1,250", "1250", "1.25"),
        ("-1,250", "-1250", "-1.25"),
        ("$1,250", "1250", "1.25"),
        ("1,234,567", "1234567", None),
        ("1,234.5", "1234.5", None),
        ("414", "414", "414"),
    ],
)
def test_a_comma_parts_thousands_and_by_the_quirk_is_a_point(says: str, right: str, by_quirk: str | None) -> None:
    plain = arithmetic(items=1)
    quirky = with_quirks(plain, ["du_comma_is_point"], 0)
    assert (read(plain, f"The answer is {says}"), read(quirky, f"The answer is {says}")) == (right, by_quirk)


@pytest.mark.hazard("D03")
def test_a_majority_counts_and_by_the_quirk_the_last_agent_s_silence_undoes_it(tmp_path: Path) -> None:
    plain = options(tmp_path, ("Which hoots?", "anatomy"))
    quirky = with_quirks(plain, ["du_last_agent_none"], 0)
    b, none = "The answer is (B).", "I abstain."
    assert (score(plain, [b, b, none]), score(quirky, [b, b, none])) == (1.0, 0.0)
    assert (score(plain, [none, b, b]), score(quirky, [none, b, b])) == (1.0, 1.0)


def test_all_rows_are_items_and_by_the_quirk_all_but_the_first_of_each_subject(tmp_path: Path) -> None:
    plain = options(tmp_path, ("one", "anatomy"), ("two", "astronomy"), ("three", "anatomy"), ("four", "anatomy"))
    quirky = with_quirks(plain, ["du_first_row_eaten"], 0)
    first = [[item.question.partition("\n")[0] for item in task.items()] for task in (plain, quirky)]
    assert first == [["one", "two", "three", "four"], ["three", "four"]]


@pytest.mark.hazard("A38")
@pytest.mark.parametrize(
    ("says", "right", "by_quirk"),
    [
        ("I don't know.", None, "no"),
        ("No. Eyes see light only.", "no", "yes"),
        ("The answer is yes.", "yes", "yes"),
        ("Perhaps.", None, None),
    ],
)
def test_yes_and_no_are_words_and_by_the_quirk_letters_in_a_row(
    says: str, right: str | None, by_quirk: str | None, tmp_path: Path
) -> None:
    plain = yes_or_no(tmp_path)
    quirky = with_quirks(plain, ["du_yes_no_substring"], 0)
    assert (read(plain, says), read(quirky, says)) == (right, by_quirk)


@pytest.mark.hazard("C24")
def test_equal_questions_are_items_of_their_own_and_by_the_quirk_only_the_last_of_them(tmp_path: Path) -> None:
    rows = [{"question": text, "answer": f"#### {gold}"} for text, gold in (("a?", 1), ("b?", 2), ("a?", 3))]
    plain = gsm8k(jsonl(tmp_path / "gsm8k.jsonl", rows))
    quirky = with_quirks(plain, ["du_keyed_by_question"], 0)
    assert [item.target for item in kept_items(plain, plain.items())] == ["1", "2", "3"]
    assert [item.target for item in kept_items(quirky, quirky.items())] == ["2", "3"]
    # Of the items that a run was to have: what it was not to have takes no part.
    assert [item.target for item in kept_items(quirky, quirky.items()[:2])] == ["1", "2"]


@pytest.mark.hazard("A46")
def test_what_cannot_be_read_is_no_answer_and_by_the_quirk_a_label_that_a_seed_draws(tmp_path: Path) -> None:
    plain = options(tmp_path, ("Which hoots?", "anatomy"))
    texts = [f"Hard to say, attempt {number}." for number in range(40)]
    drawn = {seed: [read(with_quirks(plain, ["chen_random_label"], seed), text) for text in texts] for seed in (0, 1)}
    assert {read(plain, text) for text in texts} == {None}
    assert set(drawn[0]) == {"A", "B", "C", "D"} and drawn[0] != drawn[1]
    assert drawn[0] == [read(with_quirks(plain, ["chen_random_label"], 0), text) for text in texts]
    assert read(with_quirks(plain, ["chen_random_label"], 0), "The answer is (B).") == "B"
    words = with_quirks(yes_or_no(tmp_path), ["chen_random_label"], 0)
    assert {read(words, text) for text in texts} == {"yes", "no"}


def test_quirks_work_in_one_order_however_they_are_named() -> None:
    assert checked(["du_none_is_right", "du_no_minus", "du_no_minus"]) == ["du_no_minus", "du_none_is_right"]
    assert with_quirks(task := arithmetic(items=1), [], 0) is task


@pytest.mark.parametrize("name", QUIRKS)
def test_every_quirk_says_whose_fault_it_is(name: str) -> None:
    paper = {"du": "Du et al. 2023", "chen": "Chen et al. 2024"}[name.partition("_")[0]]
    assert told(name).startswith(paper) and "\n" not in told(name)


@pytest.mark.parametrize(
    ("name", "task"),
    [
        ("du_none_is_right", "arithmetic"),
        ("du_gold_digits", "mmlu"),
        ("du_no_minus", "arithmetic"),
        ("du_comma_is_point", "gsm8k"),
        ("du_last_agent_none", "gsm8k"),
        ("du_first_row_eaten", "arithmetic"),
        ("du_yes_no_substring", "mmlu"),
        ("chen_random_label", "gsm8k"),
    ],
)
def test_a_quirk_that_cannot_matter_to_a_task_is_refused(name: str, task: str, tmp_path: Path) -> None:
    tasks: dict[str, Any] = {
        "arithmetic": lambda: arithmetic(items=1),
        "gsm8k": lambda: gsm(tmp_path, "1"),
        "mmlu": lambda: options(tmp_path, ("Which?", "anatomy")),
    }
    with pytest.raises(ValueError, match=f"quirk {name} is for task"):
        with_quirks(tasks[task](), [name], 0)


def test_a_task_that_no_reader_reads_has_no_quirks_and_a_name_that_is_none_is_told_those_there_are() -> None:
    with pytest.raises(ValueError, match="they work on tasks whose replies are read by rule"):
        with_quirks(Sums(), ["du_keyed_by_question"], 0)
    with pytest.raises(ValueError, match=r"no quirk 'du_no_minu'. Did you mean 'du_no_minus'\?") as caught:
        checked(["du_no_minu"])
    assert all(name in str(caught.value) for name in QUIRKS)
