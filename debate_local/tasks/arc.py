"""ARC: science questions of school examinations; the challenge set has 1,172 to test on, the easy one 2,376.

A row (of our own making, in the hub's columns):
  {"id": "Example_7_1", "question": "What do plants need to grow?", "answerKey": "B",
   "choices": {"text": ["salt", "light", "sand", "smoke"], "label": ["A", "B", "C", "D"]}}
As first published: {"id", "question": {"stem", "choices": [{"text", "label"}]}, "answerKey"}
As in AGI-Edgerunners/LLM-Adapters: {"instruction": "Please choose the correct answer to the question: STEM\\n\\n
   Answer1: salt Answer2: light ...\\n\\nAnswer format: answer1/answer2", "output": ..., "answer": "answer2"}

Source: AI2, CC-BY-SA-4.0; allenai/ai2_arc on the hub; dataset/ARC-Challenge/test.json in AGI-Edgerunners/LLM-Adapters
on GitHub. A few questions have 3 or 5 options, and labels may be 1 to 4.
"""

import re
from typing import Literal

from debate_local.core.task import Task
from debate_local.tasks.answers.readers import ChoiceReader
from debate_local.tasks.benchmark import Draft, build, labelled
from debate_local.tasks.rows import Origin, Row, item_ids, load, text

Subset = Literal["ARC-Challenge", "ARC-Easy"]
ORIGIN = Origin(
    task="arc",
    title="ARC",
    repository="AGI-Edgerunners/LLM-Adapters",
    licence="CC-BY-SA-4.0",
    layouts=(("question", "answerKey"), ("instruction", "answer")),
    sizes={"test": None, "validation": None, "train": None},
    hub="allenai/ai2_arc",
    config="{part}",
    untried="the hub's id, configurations and columns; the form as first published",
    parts=("ARC-Challenge", "ARC-Easy"),
    part_column="subset",
    download=(
        "Download dataset/ARC-Challenge/test.json from the GitHub repository AGI-Edgerunners/LLM-Adapters, or a "
        "Parquet file of allenai/ai2_arc from the hub, keep it anywhere, and set task.path to it."
    ),
)


def arc(
    path: str | None = None,
    split: str = "test",
    subset: Subset = "ARC-Challenge",
    shuffle_options: int | None = None,
    revision: str | None = None,
) -> Task:
    """Load ARC, in the order of its file.

    path: a local .jsonl, .json or .parquet file in any of the three forms, of whatever subset. Without it the hub's
    `subset` and `split` (test, validation or train) at `revision`. shuffle_options: a seed to shuffle the options of
    every item by; null: as in the source. Raises TaskDataError.
    """
    loaded = load(ORIGIN, path, split, revision, [subset])
    columns = ("question", "answerKey") if "answerKey" in loaded.rows[0] else ("instruction", "answer")
    ids = item_ids(loaded.rows, columns)
    drafts = [_draft(text(row.get("id")) or id, row) for id, row in zip(ids, loaded.rows, strict=True)]
    return build(ORIGIN, loaded, drafts, ChoiceReader(), shuffle_options=shuffle_options)


def _draft(id: str, row: Row) -> Draft:
    if "instruction" in row:
        return _of_instruction(id, text(row["instruction"]), text(row["answer"]))
    question = row["question"] if isinstance(row["question"], dict) else {"stem": row["question"], **row}
    labels, options = labelled(question.get("choices"))
    key = text(row["answerKey"])
    return Draft(id, text(question.get("stem")), labels.index(key) if key in labels else key, options=options)


_INSTRUCTION = re.compile(
    r"\s*Please choose the correct answer to the question: ?(?P<stem>.*?)\s*(?P<options>\bAnswer1: .*?)"
    r"\s*Answer format: [^\n]*\s*",
    re.DOTALL,
)


def _of_instruction(id: str, instruction: str, answer: str) -> Draft:
    parts = _INSTRUCTION.fullmatch(instruction)
    if parts is None:
        return Draft(id, instruction, f"options not found, {answer}")
    options = tuple(option.strip() for option in re.split(r"\bAnswer\d: ", parts["options"])[1:])
    number = answer.strip().removeprefix("answer")
    gold = int(number) - 1 if number.isdecimal() and 1 <= int(number) <= len(options) else answer
    return Draft(id, parts["stem"], gold, options=options)
