"""AQuA: algebra word problems with five options, 254 to test on.

A row (of our own making, in the original columns):
  {"question": "A car goes 90 km in 2 hours. What is its speed in km/h?", "options": ["A)40", "B)45", "C)50", "D)60",
   "E)none of these"], "rationale": "90 / 2 = 45. Answer: B", "correct": "B"}

Source: google-deepmind/AQuA on GitHub, Apache-2.0 (one object a line in files called .json); deepmind/aqua_rat on the
hub. Some items have the same text at two options: these are one vote. The rationale is the explanation.
"""

import re

from debate_local.core.task import Task
from debate_local.tasks.answers.readers import ChoiceReader
from debate_local.tasks.benchmark import Draft, build, place_of
from debate_local.tasks.rows import Origin, Row, item_ids, load, text

ORIGIN = Origin(
    task="aqua",
    title="AQuA",
    repository="google-deepmind/AQuA",
    licence="Apache-2.0",
    layouts=(("question", "options", "correct"),),
    sizes={"test": 254, "validation": 254, "train": None},
    hub="deepmind/aqua_rat",
    config="raw",
    untried="the hub's id, configuration and columns",
    download=(
        "Download test.json from the GitHub repository google-deepmind/AQuA, keep it anywhere, and set task.path to it."
    ),
)
# By item id. Both were checked by hand; the first is reported in google-deepmind/AQuA#1.
SUSPECT = {
    "7acf9edf94c6": "15 bottles are right and not offered",
    "ff731e81e411": "none of the options must be true",
}


def aqua(
    path: str | None = None, split: str = "test", shuffle_options: int | None = None, revision: str | None = None
) -> Task:
    """Load AQuA, in the order of its file.

    path: a local .json, .jsonl or .parquet file in the original columns. Without it the hub's `split` (test, validation
    or train) at `revision`. shuffle_options: a seed to shuffle the options of every item by; null: as in the source.
    Raises TaskDataError.
    """
    loaded = load(ORIGIN, path, split, revision)
    ids = item_ids(loaded.rows, ORIGIN.layouts[0])
    drafts = [_draft(id, row) for id, row in zip(ids, loaded.rows, strict=True)]
    return build(ORIGIN, loaded, drafts, ChoiceReader(), shuffle_options=shuffle_options)


_LABEL = re.compile(r"\s*\(?[A-E]\)\s*")


def _draft(id: str, row: Row) -> Draft:
    options = tuple(_LABEL.sub("", text(option), count=1) for option in row["options"] or ())
    return Draft(
        id,
        text(row["question"]),
        place_of(text(row["correct"]), options),
        options=options,
        suspect=SUSPECT.get(id, ""),
        explanation=text(row.get("rationale")),
    )
