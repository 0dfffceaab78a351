"""GSM8K: grade-school word problems, 1,319 to test and 7,473 to train on.

A row (of our own making, in the original columns):
  {"question": "A bus holds 40 people and 4 buses are full. How many people is that?",
   "answer": "There are 40 * 4 = <<40*4=160>>160 people.\\n#### 160"}

Source: Cobbe et al. 2021 (arXiv 2110.14168), MIT; openai/grade-school-math on GitHub, openai/gsm8k on the hub. The
target is what follows `####`, thousands commas and minus signs included; never the `<<...>>` notes, which differ from
it in places. What comes before it is the explanation.
"""

import re

from debate_local.core.task import Task
from debate_local.tasks.answers.readers import NumberReader
from debate_local.tasks.benchmark import Draft, build
from debate_local.tasks.rows import Origin, Row, item_ids, load, text

ORIGIN = Origin(
    task="gsm8k",
    title="GSM8K",
    repository="openai/grade-school-math",
    licence="MIT",
    layouts=(("question", "answer"),),
    sizes={"test": 1319, "train": 7473},
    hub="openai/gsm8k",
    config="main",
    untried="the hub's id, configuration and columns",
    download=(
        "Download test.jsonl from the GitHub repository openai/grade-school-math (folder grade_school_math/data), or a "
        "Parquet file of openai/gsm8k (folder main) from the hub, keep it anywhere, and set task.path to it."
    ),
)
# Reported as wrong in openai/grade-school-math#25; the four others that it counts are not named there.
SUSPECT = {"three times more points than Sara": "reported as wrong in openai/grade-school-math#25"}


def gsm8k(path: str | None = None, split: str = "test", revision: str | None = None) -> Task:
    """Load GSM8K, in the order of its file.

    path: a local .jsonl, .json, .csv or .parquet file with the columns question and answer. Without it the hub's
    `split` (test or train) at `revision` (a commit or tag; None: the newest) is loaded; a file has neither.
    Raises TaskDataError, a ValueError.
    """
    loaded = load(ORIGIN, path, split, revision)
    ids = item_ids(loaded.rows, ORIGIN.layouts[0])
    drafts = [_draft(id, row) for id, row in zip(ids, loaded.rows, strict=True)]
    return build(ORIGIN, loaded, drafts, NumberReader(), PROMPT)


_NOTES = re.compile(r"<<[^>]*>>")


def _draft(id: str, row: Row) -> Draft:
    question = text(row["question"])
    solution, mark, gold = text(row["answer"]).rpartition("####")
    return Draft(
        id,
        question,
        gold.strip() if mark else f"no `####` in {text(row['answer'])[-60:]!r}",
        suspect=next((reason for part, reason in SUSPECT.items() if part in question), ""),
        explanation=_NOTES.sub("", solution).strip(),
    )


PROMPT = """\
Solve this problem. Explain your reasoning step by step.

{question}

{answer_format}"""
