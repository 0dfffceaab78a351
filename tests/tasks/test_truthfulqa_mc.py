"""TruthfulQA, multiple choice: golds stand first, so options are shuffled; the trap is the best wrong one."""

from collections import Counter
from pathlib import Path

from debate_local.tasks.truthfulqa_mc import truthfulqa_mc
from tests.tasks.data import assert_every_gold_is_read, faults, jsonl, real, real_rows


def row(number: int) -> dict[str, object]:
    true, tempting = f"It passes through you, {number}", f"A plant grows in you, {number}"
    return {
        "question": f"What happens if you swallow seed {number}?",
        "mc0_targets": {true: 1, tempting: 0},
        "mc1_targets": {true: 1, "You die": 0, tempting: 0},
    }


def test_options_are_shuffled_unless_asked_otherwise(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", [row(n) for n in range(30)])
    assert len(Counter(item.target for item in truthfulqa_mc(path).items())) == 3
    assert {item.target for item in truthfulqa_mc(path, shuffle_options=None).items()} == {"A"}


def test_the_trap_is_the_best_wrong_answer_wherever_it_stands(tmp_path: Path) -> None:
    for item in truthfulqa_mc(jsonl(tmp_path / "a.jsonl", [row(n) for n in range(30)])).items():
        (trap,) = item.trap
        assert item.choices["ABC".index(trap)].startswith("A plant grows")


def test_mc0_has_the_true_and_the_best_wrong_answer_only(tmp_path: Path) -> None:
    (item,) = truthfulqa_mc(jsonl(tmp_path / "a.jsonl", [row(1)]), targets="mc0").items()
    assert len(item.choices) == 2 and {item.target, *item.trap} == {"A", "B"}


def test_the_hubs_form_gives_the_same_choices_and_has_no_trap(tmp_path: Path) -> None:
    one = row(1)
    targets: dict[str, int] = one["mc1_targets"]  # type: ignore[assignment]
    hub = {"question": one["question"], "mc1_targets": {"choices": list(targets), "labels": list(targets.values())}}
    (ours,) = truthfulqa_mc(jsonl(tmp_path / "a.jsonl", [one])).items()
    (theirs,) = truthfulqa_mc(jsonl(tmp_path / "b.jsonl", [hub])).items()
    assert (ours.question, ours.target) == (theirs.question, theirs.target) and theirs.trap == ()


def test_a_parquet_files_nulls_are_no_options(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [row(n) for n in range(3)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    for one, item in zip(rows, truthfulqa_mc(str(tmp_path / "a.parquet")).items(), strict=True):
        assert sorted(item.choices) == sorted(one["mc1_targets"])  # type: ignore[call-overload]
        assert item.choices["ABC".index(item.target)].startswith("It passes")


def test_two_true_options_are_no_gold(tmp_path: Path) -> None:
    task = truthfulqa_mc(jsonl(tmp_path / "a.jsonl", [row(1), {**row(2), "mc1_targets": {"a": 1, "b": 1}}]))
    assert faults(task)["has a gold that cannot be read"] == (task.items()[1].id,)


def test_every_real_gold_is_read() -> None:
    task, rows = truthfulqa_mc(real("truthfulqa_mc")), real_rows("truthfulqa_mc")
    letters = "ABCDEFGHIJKLM"
    for item, one in zip(task.items(), rows, strict=True):
        assert one["mc1_targets"][item.choices[letters.index(item.target)]] == 1
        assert all(one["mc0_targets"][item.choices[letters.index(trap)]] == 0 for trap in item.trap)
    # Some of the best wrong answers stand in no other list.
    assert sum(bool(item.trap) for item in task.items()) > 190
    assert_every_gold_is_read(task)
