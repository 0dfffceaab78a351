"""CommonsenseQA: questions of everyday knowledge with five options, 1,221 to develop with.

A row (of our own making, in the original columns):
  {"id": "0a1b", "answerKey": "B", "question": {"question_concept": "rain", "stem": "Where would you stay dry?",
   "choices": [{"label": "A", "text": "field"}, {"label": "B", "text": "house"}]}}
The hub's form has the stem in `question` and {"label": [...], "text": [...]} in `choices`.

Source: jonathanherzig/commonsenseqa on GitHub, MIT by its card on the hub (dev_rand_split.jsonl in
kojima-takeshi188/zero_shot_cot); tau/commonsense_qa on the hub. The test set has no answers.
"""

from debate_local.core.task import Task
from debate_local.tasks.answers.readers import ChoiceReader
from debate_local.tasks.benchmark import Draft, build, labelled
from debate_local.tasks.rows import Origin, Row, load, text

ORIGIN = Origin(
    task="commonsenseqa",
    title="CommonsenseQA",
    repository="jonathanherzig/commonsenseqa",
    licence="MIT",
    layouts=(("id", "question", "answerKey"),),
    sizes={"validation": 1221, "train": None},
    hub="tau/commonsense_qa",
    untried="the hub's id and columns",
    download=(
        "Download dataset/CommonsenseQA/dev_rand_split.jsonl from the GitHub repository kojima-takeshi188/"
        "zero_shot_cot, keep it anywhere, and set task.path to it."
    ),
)


def commonsenseqa(
    path: str | None = None, split: str = "validation", shuffle_options: int | None = None, revision: str | None = None
) -> Task:
    """Load CommonsenseQA, in the order of its file.

    path: a local .jsonl, .json or .parquet file in the original columns or the hub's. Without it the hub's `split`
    (validation or train) at `revision`. shuffle_options: a seed to shuffle the options of every item by; null: as in
    the source. Raises TaskDataError.
    """
    loaded = load(ORIGIN, path, split, revision)
    return build(ORIGIN, loaded, [_draft(row) for row in loaded.rows], ChoiceReader(), shuffle_options=shuffle_options)


def _draft(row: Row) -> Draft:
    question = row["question"] if isinstance(row["question"], dict) else {"stem": row["question"], **row}
    labels, options = labelled(question.get("choices"))
    key = text(row["answerKey"])
    gold = labels.index(key) if key in labels else key
    return Draft(text(row["id"]), text(question.get("stem")), gold, options=options)
