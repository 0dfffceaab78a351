"""GSM8K: grade-school word problems, 1,319 to test and 7,473 to train on.

A row (of our own making, in the original columns):
  {"question": "A bus holds 40 people and 4 buses are full. How many people is that?",
   "answer": "There are 40 * 4 = <<40*4=160>>160 people.\\n#### 160"}

Source: Cobbe et al. 2021 (arXiv 2110.14168), MIT; openai/grade-school-math on GitHub, openai/gsm8k on the hub. The
target is what follows `####`, thousands commas and minus signs included; never the `<<...>>` notes, which differ from
it in places.
"""

from fractions import Fraction

from debate_local.core.task import Task
from debate_local.core.transcript import Item
from debate_local.tasks.answers.number_task import NumberTask
from debate_local.tasks.answers.numerals import canonical, exact_number
from debate_local.tasks.rows import Origin, TaskDataError, item_ids, load_rows

_ORIGIN = Origin(
    task="gsm8k",
    hub="openai/gsm8k",
    config="main",
    columns=("question", "answer"),
    download=(
        "Download test.jsonl from the GitHub repository openai/grade-school-math (folder grade_school_math/data), or a "
        "Parquet file of openai/gsm8k (folder main) from the hub, keep it anywhere, and set task.path to it."
    ),
)


def gsm8k(path: str | None = None, split: str = "test", revision: str | None = None) -> Task:
    """Load GSM8K, in the order of its file.

    path: a local .jsonl, .json, .csv or .parquet file with the columns question and answer. Without it the hub's
    `split` (test or train) at `revision` (a commit or tag; None: the newest) is loaded; a file has neither.
    Raises TaskDataError, a ValueError.
    """
    rows = load_rows(_ORIGIN, path, split, revision)
    ids = item_ids(rows, _ORIGIN.columns, "gsm8k")
    found = {"path": path} if path is not None else {"hub": _ORIGIN.hub, "split": split, "revision": revision}
    return NumberTask(
        name="gsm8k",
        all_items=[
            Item(id, str(row["question"]), canonical(_gold(str(row["answer"]), number)))
            for number, (id, row) in enumerate(zip(ids, rows, strict=True), start=1)
        ],
        prompt=PROMPT,
        source={**found, "rows": len(rows), "licence": "MIT", "citation": "cobbe2021"},
    )


def _gold(answer: str, number: int) -> Fraction:
    """The number after the last `####`."""
    _, mark, gold = answer.rpartition("####")
    value = exact_number(gold) if mark else None
    if value is None:
        raise TaskDataError(
            f"gsm8k, row {number}: expected `#### ` and a number at the end of answer, got {answer[-60:]!r}"
        )
    return value


PROMPT = """\
Solve this problem. Explain your reasoning step by step.

{question}

{answer_format}"""
