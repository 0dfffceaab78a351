"""What tests of tasks share: files of rows, real samples where they are at hand, replies that give an answer."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from debate_local.core.transcript import Item
from debate_local.tasks.answers.answer_task import AnswerTask

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"


def jsonl(path: Path, rows: Sequence[Any]) -> str:
    """The rows, one a line, in a file of this name; its path."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def real(name: str) -> str:
    """The path of a sample of a real benchmark; the test is skipped where it is not at hand."""
    path = SHARED / f"{name}.jsonl"
    if not path.exists():
        pytest.skip(f"the shared sample {path.name} is not here")
    return str(path)


def real_rows(name: str) -> list[dict[str, Any]]:
    """The rows of a sample as they are in the file."""
    return [json.loads(line) for line in Path(real(name)).read_text(encoding="utf-8").splitlines()]


def faults(task: AnswerTask) -> dict[str, tuple[str, ...]]:
    """The task's table: what is odd -> the items."""
    return {oddity.fault: oddity.items for oddity in task.oddities}


def replies(item: Item, answer: str | None = None) -> list[str]:
    """Replies that give an answer (the target), as models put it."""
    given = item.target if answer is None else answer
    stated = f"({given})" if item.choices else given
    return [
        f"I go through it step by step. The answer is {stated}.",
        f"Therefore \\boxed{{{given}}}",
        f"Some reasoning first.\n\n**Final answer:** {stated}",
    ]


def assert_every_gold_is_read(task: AnswerTask) -> None:
    """A reply that gives an item's target is right, whatever the wording, and every wording is the same vote."""
    for item in task.items():
        for reply in replies(item):
            answer = task.read(reply, item)
            assert task.score(answer, item) == 1.0, (item.id, reply, answer)
        assert len({task.read(reply, item).key for reply in replies(item)}) == 1, item.id
