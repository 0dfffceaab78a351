"""Examples before a question. Run: pytest tests/tasks/test_few_shot.py"""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from debate_local.core.chat import ChatRequest, Completion
from debate_local.core.scheduler import ask_in_turn
from debate_local.sweep.compose import compose
from debate_local.sweep.config import Choice
from debate_local.sweep.options import check, names
from debate_local.sweep.plan import make_plan
from debate_local.sweep.tasks import task_of


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return str(path)


def sums(*numbers: int) -> list[dict[str, Any]]:
    told = {n: f"{n} + {n} = {2 * n}\n#### {2 * n}" for n in numbers}
    return [{"question": f"What is {n} more than {n}?", "answer": solution} for n, solution in told.items()]


def made(name: str = "gsm8k", **options: Any) -> Any:
    (cell,), _ = compose(["engine=scripted"])
    return task_of(replace(cell, task=Choice(name, check("task", name, options))))


@pytest.fixture
def rows(tmp_path: Path) -> dict[str, str]:
    asked, training = write(tmp_path / "test.jsonl", sums(1, 2)), write(tmp_path / "train.jsonl", sums(*range(2, 9)))
    return {"path": asked, "shots_path": training}


def test_a_question_comes_after_examples_that_answer_as_the_task_asks(rows: dict[str, str]) -> None:
    plain, task = made(path=rows["path"]), made(**rows, shots=2)
    item = task.items()[0]
    text = task.ask(item)
    assert text.endswith(plain.ask(item)) and text.count("Question: ") == 2
    for part in text.split("Question: ")[1:]:
        number = int(part.split()[2])
        reply = part.split("Reply: ")[1].split("\n\nQuestion")[0].split("\n\nThe next")[0].strip()
        assert reply == f"{number} + {number} = {2 * number}\n\n\\boxed{{{2 * number}}}"


def test_what_is_asked_is_never_an_example(rows: dict[str, str]) -> None:
    task = made(**rows, shots=6)
    shown = task.ask(task.items()[0]).split("The next question is yours.")[0]
    assert all(item.question not in shown for item in task.items())
    with pytest.raises(ValueError, match=r"task\.shots=7, and only 6 of 7 rows can be shown"):
        made(**rows, shots=7)


def test_an_example_whose_own_solution_is_read_otherwise_is_left_out(tmp_path: Path, rows: dict[str, str]) -> None:
    wrong = {"question": "Is this right?", "answer": "It is 3, or else 4. \\boxed{3}\n#### 4}}"}
    unread = [*sums(5), wrong]
    with pytest.raises(ValueError, match="only 1 of 2 rows"):
        made(path=rows["path"], shots_path=write(tmp_path / "odd.jsonl", unread), shots=2)


def test_the_seed_chooses_and_further_rows_change_no_order(tmp_path: Path, rows: dict[str, str]) -> None:
    def chosen(path: str, seed: int) -> list[str]:
        found: list[str] = made(path=rows["path"], shots_path=path, shots=5, shots_seed=seed).source["shots"]
        return found

    assert chosen(rows["shots_path"], 0) == chosen(rows["shots_path"], 0) != chosen(rows["shots_path"], 1)
    more = write(tmp_path / "more.jsonl", sums(*range(2, 15)))
    known = set(chosen(rows["shots_path"], 0))
    kept = [id for id in chosen(more, 0) if id in known]
    assert kept == [id for id in chosen(rows["shots_path"], 0) if id in kept]


def test_an_item_is_shown_examples_of_its_own_subject_where_there_are_enough(tmp_path: Path) -> None:
    def row(subject: str, number: int) -> dict[str, Any]:
        question = f"{subject} question {number}: which is {number}?"
        return {"question": question, "subject": subject, "choices": [str(number), "x", "y", "z"], "answer": 0}

    asked = write(tmp_path / "test.jsonl", [row("anatomy", 1), row("virology", 2)])
    pool = write(tmp_path / "dev.jsonl", [*(row("anatomy", n) for n in (3, 4)), row("virology", 5)])
    task = made("mmlu", path=asked, shots_path=pool, shots=2)
    of_anatomy, of_virology = (task.ask(item).split("The next")[0] for item in task.items())
    assert of_anatomy.count("anatomy question") == 2
    assert of_virology.count("anatomy question") >= 1
    assert "The answer is (A)." in of_anatomy


def test_generated_tasks_take_their_examples_from_another_seed() -> None:
    task = made("arithmetic", items=5, operands=2, operators="+", shots=3)
    plain = made("arithmetic", items=5, operands=2, operators="+", seed=1)
    ids = {item.id for item in plain.items()}
    assert set(task.source["shots"]) <= ids


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"shots": -1}, "task.shots must be 0 or more, got -1"),
        ({"shots": 2, "shots_path": None}, "task.path is a file without splits: give a file of training rows"),
        ({"shots": 2, "shots_path": "nowhere.jsonl"}, "its rows cannot be had: .*nowhere.jsonl"),
    ],
)
def test_shots_that_cannot_be_are_refused(rows: dict[str, str], options: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        made(**{**rows, **options})


@pytest.mark.parametrize("name", names("task"))
def test_every_task_takes_shots(name: str) -> None:
    assert check("task", name, {"shots": 3})["shots"] == 3


@pytest.mark.parametrize("protocol", ["debate", "roles", "reflection", "self_refine", "mad", "reconcile"])
def test_examples_stand_in_each_debaters_prompts_of_every_protocol(protocol: str, rows: dict[str, str]) -> None:
    overrides = [f"protocol={protocol}", "controls=false", *(f"task.{name}={path}" for name, path in rows.items())]
    cells, _ = compose(["engine=scripted", "task=gsm8k", "task.shots=2", *overrides])
    (planned,) = make_plan(cells).runs
    asked: list[ChatRequest] = []

    def answer(requests: Sequence[ChatRequest]) -> list[Completion]:
        asked.extend(requests)
        return [Completion(f"\\boxed{{{len(asked)}}} and so on") for _ in requests]

    transcript = ask_in_turn(planned.debate(planned.task.items[0]), answer)
    debaters = [turn.request for turn in transcript.turns if turn.votes]
    assert debaters
    for request in debaters:
        text = "\n".join(message.content for message in request.messages)
        assert text.count("Some questions with good replies:") == 1
