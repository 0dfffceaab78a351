"""AddSub: word problems of additions and subtractions, 395 in all.

A row (of our own making, in the original columns):
  {"iIndex": 0, "sQuestion": "Ada has 7 pens and buys 5. How many has she now?", "lEquations": ["X=7+5"],
   "lSolutions": ["12.0"]}

Source: kojima-takeshi188/zero_shot_cot on GitHub (dataset/AddSub/AddSub.json); no licence is stated there or upstream.
Solutions are texts with decimals (12.0), in a list of one.
"""

from debate_local.core.task import Task
from debate_local.tasks.answers.readers import NumberReader
from debate_local.tasks.benchmark import Draft, build
from debate_local.tasks.rows import Origin, Row, item_ids, load, text

ORIGIN = Origin(
    task="addsub",
    title="AddSub",
    repository="kojima-takeshi188/zero_shot_cot",
    licence="",
    layouts=(("sQuestion", "lSolutions"),),
    sizes={"all": 395},
    untried="the original file: no sample of it was at hand; its columns are known by description",
    download=(
        "Download dataset/AddSub/AddSub.json from the GitHub repository kojima-takeshi188/zero_shot_cot, keep it "
        "anywhere, and set task.path to it."
    ),
)


def addsub(path: str | None = None) -> Task:
    """Load AddSub, in the order of its file.

    path: a local .json, .jsonl or .parquet file with the columns sQuestion and lSolutions; it is on no hub that we
    know. Raises TaskDataError.
    """
    loaded = load(ORIGIN, path, "all", None)
    ids = item_ids(loaded.rows, ORIGIN.layouts[0])
    drafts = [_draft(id, row) for id, row in zip(ids, loaded.rows, strict=True)]
    return build(ORIGIN, loaded, drafts, NumberReader(), PROMPT)


def _draft(id: str, row: Row) -> Draft:
    solutions = row["lSolutions"] if isinstance(row["lSolutions"], list) else [row["lSolutions"]]
    gold = text(solutions[0]) if len(solutions) == 1 else f"{len(solutions)} solutions"
    return Draft(id, text(row["sQuestion"]).strip(), gold)


PROMPT = """\
Solve this problem. Explain your reasoning step by step.

{question}

{answer_format}"""
