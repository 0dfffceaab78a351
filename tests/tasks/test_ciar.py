"""CIAR: golds in mixed forms, rounded ones with a tolerance, and the trap: the tempting wrong answer, by round."""

from pathlib import Path

import pytest

import debate_local
from debate_local.core.task import trapped
from debate_local.core.transcript import Item
from debate_local.tasks.answers.answer_task import AnswerTask
from debate_local.tasks.ciar import SUSPECT, ciar
from tests.tasks.data import faults, jsonl, real, real_rows


def row(golds: list[str], traps: list[str] | None = None, question: str = "How much is it?") -> dict[str, object]:
    return {"question": question, "answer": golds, "incorrect answer": traps or ["1000"], "explanation": "So it is."}


def one(tmp_path: Path, golds: list[str], traps: list[str] | None = None) -> tuple[AnswerTask, Item]:
    task = ciar(jsonl(tmp_path / "a.jsonl", [row(golds, traps)]))
    assert isinstance(task, AnswerTask)
    return task, task.items()[0]


RIGHT = [
    (
        ["0.75", "75%", "3/4"],
        ["The answer is 3/4.", "0.75", "\\boxed{75\\%}", "\\boxed{\\frac{3}{4}}", "The answer is 75."],
    ),
    (["1.5", "3/2"], ["The answer is 3/2.", "\\boxed{1.50}"]),
    (["0.67", "66.67%", "2/3"], ["2/3", "0.67", "66.7%", "\\boxed{0.6667}", "The answer is 0.666."]),
    (["41%", "0.41"], ["41%", "0.41", "41.4%", "\\boxed{0.4138}", "The answer is 12/29."]),
    (["86.5%", "0.865"], ["86.47%", "The answer is 0.8647."]),
    (["63.15%", "0.6315"], ["63.16%", "The answer is 12/19."]),
    (["1/e", "0.3679", "36.79%"], ["\\boxed{1/e}", "\\boxed{\\frac{1}{e}}", "0.368", "36.8%", "The answer is 1/e."]),
    (["1:1", "50:50"], ["The ratio is 1:1.", "\\boxed{1:1}", "50:50", "So it is 1 to 1.", "\\boxed{2:2}"]),
    (["6 or 12"], ["6 or 12 minutes", "She needs 12 minutes or 6 minutes.", "\\boxed{6 \\text{ or } 12}"]),
    (["25000"], ["25,000", "\\boxed{25000}"]),
]
WRONG = [
    (["0.75", "75%", "3/4"], ["0.7475", "0.8", "74.9%", "3/5"]),
    (["0.5"], ["0.51", "0.45", "50"]),
    (["0.67", "66.67%", "2/3"], ["0.7", "0.5", "0.68", "66%"]),
    (["41%", "0.41"], ["40%", "0.4", "42%", "4.1"]),
    (["15"], ["14.9", "15.2", "1.5"]),
    (["1/e", "0.3679", "36.79%"], ["\\boxed{1/2}", "0.01", "e"]),
    (["1:1", "50:50"], ["2:1", "The ratio is 1:2", "\\boxed{1}"]),
    (["6 or 12"], ["6", "12", "6 or 10"]),
    (["512"], ["1024", "no idea", ""]),
]


@pytest.mark.hazard("A20", "A21")
@pytest.mark.parametrize(("golds", "said"), RIGHT, ids=lambda value: str(value)[:30])
def test_any_form_of_the_gold_is_right(tmp_path: Path, golds: list[str], said: list[str]) -> None:
    task, item = one(tmp_path, golds)
    assert {text: task.score(task.read(text, item), item) for text in said} == dict.fromkeys(said, 1.0)


@pytest.mark.hazard("A20")
@pytest.mark.parametrize(("golds", "said"), WRONG, ids=lambda value: str(value)[:30])
def test_other_values_and_coarser_roundings_are_wrong(tmp_path: Path, golds: list[str], said: list[str]) -> None:
    task, item = one(tmp_path, golds)
    assert {text: task.score(task.read(text, item), item) for text in said} == dict.fromkeys(said, 0.0)


def test_a_share_in_percent_and_as_a_decimal_is_one_vote(tmp_path: Path) -> None:
    task, item = one(tmp_path, ["0.75", "75%"])
    a, b = task.read("The answer is 75%.", item), task.read("The answer is 0.75.", item)
    assert a.key == b.key and a.value == "75%" and task.same(a, b)


def test_two_candidates_are_no_answer_where_the_gold_is_one(tmp_path: Path) -> None:
    task, item = one(tmp_path, ["6"])
    assert task.read("She needs 6 or 12 minutes.", item).missing


def test_the_trap_is_held_to_the_same_rules_as_a_gold(tmp_path: Path) -> None:
    task, item = one(tmp_path, ["41%", "0.41"], ["80%", "0.8"])
    said = {"80%": True, "0.8": True, "\\boxed{\\frac45}": True, "41.4%": False, "17%": False, "I cannot tell.": False}
    assert {text: trapped(task, task.read(text, item), item) for text in said} == said


def test_an_item_without_a_trap_cannot_be_fallen_for(tmp_path: Path) -> None:
    task = ciar(jsonl(tmp_path / "a.jsonl", [{**row(["5"]), "incorrect answer": []}]))
    item = task.items()[0]
    assert trapped(task, task.read("5", item), item) is None


def test_who_falls_for_the_trap_is_stored_for_every_turn_and_decision(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", [row(["5"], ["7"], f"How much is it, {n}?") for n in range(4)])
    said = tmp_path / "replies.yaml"
    said.write_text("- reply: [The answer is 7., The answer is 5., I cannot tell., It is 7.]\n")
    base = ["task=ciar", f"task.path={path}", "engine=scripted", f"engine.replies={said}", "controls=false"]
    sweep = debate_local.run([*base, f"output={tmp_path / 'runs'}"])
    (run,) = sweep.runs
    turns = run.turns.to_dicts()
    assert {(turn["answer"], turn["trapped"]) for turn in turns} == {("7", True), ("5", False), (None, False)}
    for debate in run.debates.to_dicts():
        assert debate["trapped"] == float(debate["answer"] == "7")
        assert debate["suspect"] is None and debate["group"] == ""


def test_every_real_gold_and_trap_is_read() -> None:
    task, rows = ciar(real("ciar")), real_rows("ciar")
    for item, one_row in zip(task.items(), rows, strict=True):
        assert [item.target, *item.also] == one_row["answer"]
        assert list(item.trap) == one_row["incorrect answer"]
        for gold in (item.target, *item.also):
            for reply in (f"The answer is {gold}.", f"\\boxed{{{gold.replace('%', chr(92) + '%')}}}"):
                answer = task.read(reply, item)
                assert task.score(answer, item) == 1.0, (reply, answer)
                assert trapped(task, answer, item) is False
        for trap in item.trap:
            answer = task.read(f"The answer is {trap}.", item)
            assert task.score(answer, item) == 0.0 and trapped(task, answer, item) is True, (item.target, trap)
        assert task.read(item.question, item).missing


@pytest.mark.hazard("A40")
def test_the_known_wrong_golds_are_suspect() -> None:
    task = ciar(real("ciar"))
    assert [n for n, item in enumerate(task.items()) if item.suspect] == [16, 20, 38, 47]
    assert {item.id for item in task.items() if item.suspect} == set(SUSPECT)
    assert sum(fault.startswith("has a doubted gold") for fault in faults(task)) == 4
