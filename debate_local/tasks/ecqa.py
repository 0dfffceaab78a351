"""ECQA: CommonsenseQA questions with explanations by people, 2,194 to test on.

A row (of our own making, in the original columns):
  {"q_no": "0a1b", "q_concept": "rain", "q_text": "Where would you stay dry?", "q_op1": "field", "q_op2": "house",
   "q_op3": "lake", "q_op4": "cloud", "q_op5": "street", "q_ans": "house", "taskA_pos": "A house has a roof.",
   "taskA_neg": "A field is open.\\nA lake is wet.", "taskB": "A house has a roof, which keeps the rain off."}

Source: dair-iitd/ECQA-Dataset on GitHub, CDLA-Sharing-1.0 (explanations), over CommonsenseQA, MIT; the file
cqa_data_test.csv in dinobby/ReConcile; tasksource/ecqa on the hub. `q_ans` is the text of the answer, not a letter.
Some rows have the same text at two options: these are one vote. taskB is the explanation.
"""

from debate_local.core.task import Task
from debate_local.tasks.answers.readers import ChoiceReader
from debate_local.tasks.benchmark import Draft, build
from debate_local.tasks.rows import Origin, Row, item_ids, load, text

_OPTIONS = ("q_op1", "q_op2", "q_op3", "q_op4", "q_op5")
ORIGIN = Origin(
    task="ecqa",
    title="ECQA",
    repository="dair-iitd/ECQA-Dataset",
    licence="CDLA-Sharing-1.0",
    layouts=(("q_text", *_OPTIONS, "q_ans"),),
    sizes={"test": 2194, "train": None, "validation": None},
    hub="tasksource/ecqa",
    untried="the hub's id and columns",
    download=(
        "Download dataset/ECQA/cqa_data_test.csv from the GitHub repository dinobby/ReConcile, keep it anywhere, and "
        "set task.path to it."
    ),
)


def ecqa(
    path: str | None = None, split: str = "test", shuffle_options: int | None = None, revision: str | None = None
) -> Task:
    """Load ECQA, in the order of its file.

    path: a local .csv, .jsonl, .json or .parquet file in the original columns. Without it the hub's `split` (test,
    train or validation) at `revision`. shuffle_options: a seed to shuffle the options of every item by; null: as in the
    source. Raises TaskDataError.
    """
    loaded = load(ORIGIN, path, split, revision)
    ids = item_ids(loaded.rows, ("q_text", *_OPTIONS, "q_ans"))
    drafts = [_draft(text(row.get("q_no")) or id, row) for id, row in zip(ids, loaded.rows, strict=True)]
    return build(ORIGIN, loaded, drafts, ChoiceReader(), shuffle_options=shuffle_options)


def _draft(id: str, row: Row) -> Draft:
    options = tuple(text(row[name]) for name in _OPTIONS)
    gold = text(row["q_ans"])
    return Draft(
        id,
        text(row["q_text"]),
        options.index(gold) if gold in options else gold,
        options=options,
        explanation=text(row.get("taskB")),
    )
