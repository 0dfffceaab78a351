"""Graded replies of a task, ours and where they are at hand the shared ones, and how a reading is held against them."""

import json
from pathlib import Path
from typing import Any

import pytest

from debate_local.tasks.answers.graded import grade_case, means

HERE = Path(__file__).parent / "cases"
SHARED = Path(__file__).resolve().parents[3] / "shared" / "cases" / "extraction.jsonl"


def graded_cases(task: str) -> list[Any]:
    """The cases of one task, one parameter each."""
    files = [file for file in (HERE / f"{task}.jsonl", SHARED) if file.exists()]
    cases = [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    return [pytest.param(case, id=f"{case['id']}-{case['kind']}") for case in cases if case["task"] == task]


def assert_read_as_expected(case: dict[str, Any]) -> None:
    """The answer is the expected one, or another that can be defended; the verdict on the expected one is right."""
    verdict = grade_case(case)
    accepted = [case["expect_answer"], *case.get("alt_answers", [])]
    assert any(means(case, verdict, answer) for answer in accepted), verdict
    if means(case, verdict, case["expect_answer"]):
        assert verdict.correct == case["expect_correct"], verdict
