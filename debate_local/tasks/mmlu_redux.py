"""MMLU-Redux: 100 questions of each of MMLU's 57 subjects, checked by people; 5,700 in all.

A row (of our own making, in the original columns):
  {"question": "Which number is even?", "choices": "['3', '5', '6', '7']", "answer": "1", "error_type":
   "wrong_groundtruth", "source": "", "correct_answer": "2", "potential_reason": "6 is even", "subject":
   "elementary_mathematics"}

Source: aryopg/mmlu-redux on GitHub (one CSV file a subject), CC-BY-4.0; arXiv 2406.04127. Its files are not uniform:
some are parted by semicolons, one is in Mac-Roman, columns are in other orders, `choices` is a Python list as text, and
error types are spelt in many ways. Questions whose error type is not `ok` are suspect. The group is the subject.
"""

import ast

from debate_local.core.task import Task
from debate_local.tasks.answers.readers import ChoiceReader
from debate_local.tasks.benchmark import Draft, build
from debate_local.tasks.mmlu import SUBJECTS, keyed
from debate_local.tasks.rows import Origin, Row, item_ids, load, text

ORIGIN = Origin(
    task="mmlu_redux",
    title="MMLU-Redux",
    repository="aryopg/mmlu-redux",
    licence="CC-BY-4.0",
    layouts=(("question", "choices", "answer", "error_type"),),
    sizes={"test": 5700},
    hub="edinburgh-dawg/mmlu-redux-2.0",
    config="{part}",
    untried="the hub's id, configurations and columns; the original CSV files, of which only rows as JSON were seen",
    parts=SUBJECTS,
    part_column="subject",
    encodings=("utf-8-sig", "mac_roman"),
    download=(
        "Download the folder mmlu_redux of the GitHub repository aryopg/mmlu-redux, keep it anywhere, and set "
        "task.path to it."
    ),
)


def mmlu_redux(
    path: str | None = None,
    split: str = "test",
    subjects: list[str] | None = None,
    corrected: bool = False,
    shuffle_options: int | None = None,
    revision: str | None = None,
) -> Task:
    """Load MMLU-Redux, in the order of its file, or subject by subject.

    path: a file with all subjects, or a folder with a file a subject. Without it the hub's `split` (test) at
    `revision`. subjects: only these; null: all 57. corrected: take the checkers' gold where they give one for a wrong
    gold; such items are not suspect then. shuffle_options: a seed to shuffle the options of every item by; null: as in
    the source. Raises TaskDataError.
    """
    loaded = load(ORIGIN, path, split, revision, subjects)
    columns = [{"s": text(r.get("subject")), "q": r["question"], "c": r["choices"]} for r in loaded.rows]
    ids = item_ids(columns, ["s", "q", "c"])
    drafts = [_draft(id, row, corrected) for id, row in zip(ids, loaded.rows, strict=True)]
    return build(ORIGIN, loaded, drafts, ChoiceReader(), shuffle_options=shuffle_options)


def _draft(id: str, row: Row, corrected: bool) -> Draft:
    options = _options(row["choices"])
    fault = "_".join(text(row["error_type"]).lower().split())
    gold, better = keyed(row["answer"], options), keyed(row.get("correct_answer"), options)
    if corrected and fault == "wrong_groundtruth" and isinstance(better, int):
        gold, fault = better, "ok"
    return Draft(
        id,
        text(row["question"]),
        gold,
        options=options,
        group=text(row.get("subject")),
        suspect="" if fault == "ok" else f"MMLU-Redux says: {fault.replace('_', ' ') or 'nothing'}",
    )


def _options(choices: object) -> tuple[str, ...]:
    """The options, from a list or from a Python list as text. A literal, never evaluated; () for what is none."""
    if isinstance(choices, str):
        try:
            choices = ast.literal_eval(choices)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return ()
    return tuple(text(option) for option in choices) if isinstance(choices, list) else ()
