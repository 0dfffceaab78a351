"""Options of choice tasks: their order, their shuffling by a seed, and options with the same text."""

from pathlib import Path

import pytest

from debate_local.tasks.answers.answer_task import AnswerTask
from debate_local.tasks.mmlu import mmlu
from tests.tasks.data import faults, jsonl

ROWS = [
    {
        "question": f"What is {n} + 1?",
        "subject": "anatomy",
        "choices": [f"{n}", f"{n + 1}", f"{n + 2}", "0"],
        "answer": 1,
    }
    for n in range(10, 60)
]


def task(tmp_path: Path, rows: list[dict[str, object]], shuffle_options: int | None = None) -> AnswerTask:
    loaded = mmlu(jsonl(tmp_path / "a.jsonl", rows), shuffle_options=shuffle_options)
    assert isinstance(loaded, AnswerTask)
    return loaded


def test_options_are_in_the_order_of_the_source_unless_a_seed_is_given(tmp_path: Path) -> None:
    item = task(tmp_path, ROWS).items()[0]
    assert item.question == "What is 10 + 1?\n\n(A) 10\n(B) 11\n(C) 12\n(D) 0"
    assert item.target == "B" and {i.target for i in task(tmp_path, ROWS).items()} == {"B"}


def test_a_seed_shuffles_every_item_its_own_way_and_the_gold_goes_with_its_text(tmp_path: Path) -> None:
    plain, shuffled = task(tmp_path, ROWS), task(tmp_path, ROWS, shuffle_options=0)
    assert {item.target for item in shuffled.items()} == {"A", "B", "C", "D"}
    for before, after in zip(plain.items(), shuffled.items(), strict=True):
        assert before.id == after.id and sorted(before.choices) == sorted(after.choices)
        assert before.choices[1] == after.choices["ABCD".index(after.target)]
        assert after.question.splitlines()[2 + "ABCD".index(after.target)].endswith(f") {before.choices[1]}")


def test_the_order_depends_on_seed_and_item_and_on_nothing_else(tmp_path: Path) -> None:
    whole = {item.id: item.choices for item in task(tmp_path, ROWS, 3).items()}
    assert {item.id: item.choices for item in task(tmp_path, ROWS[20:10:-1], 3).items()}.items() <= whole.items()
    assert [item.choices for item in task(tmp_path, ROWS, 4).items()] != list(whole.values())


def test_options_that_speak_of_the_others_keep_their_place(tmp_path: Path) -> None:
    last = ["None of the above", "all of these", "Both of the above are right", "Neither of them"]
    rows = [{**row, "choices": [*row["choices"][:3], last[n % 4]]} for n, row in enumerate(ROWS)]  # type: ignore[index]
    for item in task(tmp_path, rows, 0).items():
        assert item.choices[3] in last
    assert len({item.target for item in task(tmp_path, rows, 0).items()}) == 3


def test_items_whose_options_name_letters_are_not_shuffled_and_are_listed(tmp_path: Path) -> None:
    rows = [{**ROWS[0], "choices": ["x", "y", "z", named]} for named in ("Both A and B", "A and C only", "(A) or (B)")]
    loaded = task(tmp_path, [*rows, *ROWS], 0)
    for item in loaded.items()[:3]:
        assert item.choices[:3] == ("x", "y", "z")
    assert faults(loaded)["has options that name others by letter"] == tuple(item.id for item in loaded.items()[:3])


def test_options_with_the_same_text_are_one_vote_and_one_gold(tmp_path: Path) -> None:
    loaded = task(tmp_path, [{**ROWS[0], "choices": ["7", "8", "7", "9"], "answer": 2}, ROWS[1]])
    item = loaded.items()[0]
    assert item.target == "A"
    said = [loaded.read(f"The answer is ({letter}).", item) for letter in "ACB"]
    assert said[0].key == said[1].key != said[2].key and said[1].value == "C"
    assert loaded.same(said[0], said[1])
    assert [loaded.score(answer, item) for answer in said] == [1.0, 1.0, 0.0]
    assert faults(loaded)["has options with the same text"] == (item.id,)


def test_repeats_are_found_whatever_the_order_of_their_options(tmp_path: Path) -> None:
    turned = {**ROWS[0], "choices": ["12", "0", "11", "10"], "answer": 2}
    loaded = task(tmp_path, [ROWS[0], ROWS[1], turned], 5)
    assert faults(loaded)["repeats an earlier item"] == (loaded.items()[2].id,)


def test_the_chance_of_guessing_is_known(tmp_path: Path) -> None:
    assert task(tmp_path, ROWS).metric.chance == pytest.approx(0.25)


def test_an_empty_question_is_listed(tmp_path: Path) -> None:
    loaded = task(tmp_path, [ROWS[0], {**ROWS[1], "question": " "}])
    assert faults(loaded)["has no question"] == (loaded.items()[1].id,)


@pytest.mark.hazard("C27")
def test_an_option_that_is_null_is_shown_as_empty_and_listed(tmp_path: Path) -> None:
    loaded = task(tmp_path, [ROWS[0], {**ROWS[1], "choices": ["1", None, float("nan"), "None"]}])
    assert loaded.items()[1].choices == ("1", "(empty)", "(empty)", "None")
    assert faults(loaded)["has an option without text"] == (loaded.items()[1].id,)
