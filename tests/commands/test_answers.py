"""`answers` audits anybody's graded cases: a line a case, disagreements for people, clear errors."""

import json
from pathlib import Path
from typing import Any

import pytest

from debate_local.cli import main


def case(id: str, task: str, text: str, gold: Any, **fields: Any) -> dict[str, Any]:
    return {"id": id, "task": task, "text": text, "gold": gold, **fields}


CASES = [
    case("a", "gsm8k", "The answer is 65.", "65", expect_answer="65", expect_correct=True),
    case("b", "aqua", "It is 21.5.", "B", choices=["21", "21.5"], kind="by value"),
    case("c", "math", "\\boxed{\\frac12}", "0.5", expect_answer="1/2", expect_correct=True),
    case("d", "chess_move", "Nf6", ["e5", "f6"], expect_answer="f6", expect_correct=True),
    case("e", "math", "So \\boxed{\\frac{1}{2", "0.5", finish_reason="length", expect_answer=None),
    case("f", "gsm8k", "The answer is 1", "12", finish_reason="length", expect_answer=None),
    case("g", "strategyqa", "Yes, it can.", "no", expect_correct=False),
    case("h", "confidence", "Confidence: 85", "0.85", expect_answer=None, alt_answers=["0.85"]),
    case("i", "judge_json", '{"debate_answer": "B"}', "B", expect_answer="B"),
]


def written(path: Path, cases: list[Any]) -> Path:
    path.write_text("".join(f"{c if isinstance(c, str) else json.dumps(c)}\n" for c in cases), encoding="utf-8")
    return path


def test_a_line_a_case_says_id_answer_rule_and_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = written(tmp_path / "cases.jsonl", CASES), tmp_path / "out.jsonl"
    assert main(["answers", str(file), "--output", str(out)]) == 0
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert [(row["id"], row["answer"], row["correct"]) for row in rows] == [
        ("a", "65", True),
        ("b", "B", True),
        ("c", "0.5", True),
        ("d", "f6", True),
        ("e", None, False),
        ("f", None, False),
        ("g", "yes", False),
        ("h", "0.85", True),
        ("i", "B", True),
    ]
    assert all(set(row) == {"id", "answer", "rule", "correct"} and row["rule"] for row in rows)
    assert "disagreements with what was expected: 0" in capsys.readouterr().out
    assert set(tmp_path.iterdir()) == {file, out}


def test_without_output_the_lines_go_to_standard_output_and_the_rest_to_standard_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["answers", str(written(tmp_path / "cases.jsonl", CASES))]) == 0
    told = capsys.readouterr()
    assert [json.loads(line)["id"] for line in told.out.splitlines()] == [one["id"] for one in CASES]
    assert "disagreements" in told.err


def test_disagreements_are_printed_with_what_was_read_and_what_was_expected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = [
        {**CASES[0], "id": "other answer", "expect_answer": "66", "kind": "made up", "why": "A made-up reason."},
        {**CASES[0], "id": "other verdict", "expect_correct": False},
        {**CASES[4], "id": "an answer expected", "expect_answer": "1/2"},
    ]
    out = tmp_path / "out.jsonl"
    assert main(["answers", str(written(tmp_path / "cases.jsonl", [*CASES, *wrong])), "--output", str(out)]) == 0
    told = capsys.readouterr().out
    assert "disagreements with what was expected: 3" in told
    for part in (
        "other answer (made up)",
        "other verdict",
        "an answer expected",
        "A made-up reason.",
        "no answer",
        "66",
    ):
        assert part in told
    assert "gsm8k a" not in told


def test_without_expectations_verdicts_are_held_against_the_gold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = [{"id": "x", "task": "gsm8k", "text": "The answer is 5.", "gold": gold} for gold in ("5", "6")]
    assert main(["answers", str(written(tmp_path / "c.jsonl", cases)), "--output", str(tmp_path / "o.jsonl")]) == 0
    assert "disagreements with the gold: 1" in capsys.readouterr().out


@pytest.mark.hazard("C19", "C25")
def test_blank_lines_are_skipped_and_torn_ones_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path / "cases.jsonl", [CASES[0], "", "   ", CASES[1], '{"id": "q7", "an'])
    out = tmp_path / "out.jsonl"
    assert main(["answers", str(file), "--output", str(out)]) == 1
    assert len(out.read_text(encoding="utf-8").splitlines()) == 2
    assert "not read: line 5" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ({**CASES[0], "task": "chess"}, ["line 2", "unknown task 'chess'", "gsm8k", "judge_json"]),
        ({"id": "x", "text": "5", "gold": "5"}, ["line 2", "lacks task", "found gold, id, text", "gsm8k"]),
        ({"id": "x", "task": "gsm8k", "gold": "5"}, ["line 2", "lacks text", "found gold, id, task"]),
        ({"id": "x", "task": "mmlu", "text": "B", "gold": "B"}, ["line 2", "needs choices"]),
        ("[1, 2]", ["line 2", "expected an object"]),
    ],
)
def test_what_is_no_case_is_a_clear_error_and_leaves_no_file(
    line: Any, parts: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path / "cases.jsonl", [CASES[0], line])
    assert main(["answers", str(file), "--output", str(tmp_path / "out.jsonl")]) == 2
    told = capsys.readouterr().err
    assert all(part in told for part in parts), told
    assert list(tmp_path.iterdir()) == [file]


def test_a_file_that_is_missing_empty_or_its_own_output_is_a_clear_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["answers", str(tmp_path / "nowhere.jsonl")]) == 2
    assert "does not exist" in capsys.readouterr().err
    assert main(["answers", str(tmp_path)]) == 2
    assert "is a folder" in capsys.readouterr().err
    assert main(["answers", str(written(tmp_path / "empty.jsonl", [""]))]) == 2
    assert "holds no case" in capsys.readouterr().err
    file = written(tmp_path / "cases.jsonl", CASES)
    assert main(["answers", str(file), "--output", str(file)]) == 2
    assert "is the file that is read" in capsys.readouterr().err
    assert len(file.read_text(encoding="utf-8").splitlines()) == len(CASES)
