"""SVAMP: short word problems with one or two steps, varied to catch shallow reading; 1,000 in all.

A row (of our own making, in the original columns):
  {"ID": "chal-0", "Body": "A tray holds 12 rolls", "Question": "How many rolls do 3 trays hold?",
   "Equation": "( 12.0 * 3.0 )", "Answer": 36.0, "Type": "Multiplication"}

Source: arkilpatel/SVAMP on GitHub, MIT. Golds are decimals of whole numbers (51.0); a body often lacks its last full
stop. The group is the type. chal-680 has a wrong gold (its equation gives 5, its answer is 1.0).
"""

from debate_local.core.task import Task
from debate_local.tasks.answers.readers import NumberReader
from debate_local.tasks.benchmark import Draft, build
from debate_local.tasks.rows import Origin, Row, load, text

ORIGIN = Origin(
    task="svamp",
    title="SVAMP",
    repository="arkilpatel/SVAMP",
    licence="MIT",
    layouts=(("ID", "Body", "Question", "Answer"),),
    # The 1,000 are one file; the hub parts them into 700 to train and 300 to test on.
    sizes={"all": 1000, "train": 700, "test": 300},
    hub="ChilleD/SVAMP",
    untried="the hub's id, its splits (another division than the original's one file) and columns",
    download=(
        "Download SVAMP.json from the GitHub repository arkilpatel/SVAMP, keep it anywhere, and set task.path to it."
    ),
)
SUSPECT = {"chal-680": "its equation gives 5"}


def svamp(path: str | None = None, split: str = "test", revision: str | None = None) -> Task:
    """Load SVAMP, in the order of its file.

    path: a local .jsonl, .json, .csv or .parquet file in the original columns. Without it the hub's `split` (test or
    train) at `revision`. Raises TaskDataError.
    """
    loaded = load(ORIGIN, path, split, revision)
    return build(ORIGIN, loaded, [_draft(row) for row in loaded.rows], NumberReader(), PROMPT)


def _draft(row: Row) -> Draft:
    id, body = text(row["ID"]), text(row["Body"]).strip()
    joined = f"{body}{'' if body.endswith(('.', '?', '!', ',')) or not body else '.'} {text(row['Question']).strip()}"
    return Draft(id, joined.strip(), text(row["Answer"]), group=text(row.get("Type")), suspect=SUSPECT.get(id, ""))


PROMPT = """\
Solve this problem. Explain your reasoning step by step.

{question}

{answer_format}"""
