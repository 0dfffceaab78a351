"""Date understanding of BIG-bench: which date is meant, with a handful of options; 369 rows.

A row (of our own making, in the original columns):
  {"input": "Tomorrow is May 2, 2030. What is the date today in MM/DD/YYYY?",
   "target_scores": {"05/01/2030": 1, "05/03/2030": 0, "04/30/2030": 0}}
The hub's form: {"inputs", "multiple_choice_targets": [...], "multiple_choice_scores": [...]}

Source: BIG-bench, Apache-2.0; dataset/Bigbench_Date/task.json in kojima-takeshi188/zero_shot_cot on GitHub (an object
with the rows under `examples`); tasksource/bigbench on the hub. BBH's date_understanding is a choice of 250 from
elsewhere, in another form: task=bbh task.subsets=[date_understanding]. The gold is often the first option, so shuffle
them. The rows carry BIG-bench's canary; they should never appear in training corpora.
"""

from debate_local.core.task import Task
from debate_local.tasks.answers.readers import ChoiceReader
from debate_local.tasks.benchmark import Draft, build
from debate_local.tasks.rows import Origin, Row, item_ids, load, text

ORIGIN = Origin(
    task="date_understanding",
    title="BIG-bench date understanding",
    repository="kojima-takeshi188/zero_shot_cot",
    licence="Apache-2.0",
    layouts=(("input", "target_scores"), ("inputs", "multiple_choice_targets", "multiple_choice_scores")),
    sizes={"all": 369, "train": None, "validation": None},
    hub="tasksource/bigbench",
    config="date_understanding",
    untried="the hub's id, configuration, its splits (another division than the original's one file) and columns",
    download=(
        "Download dataset/Bigbench_Date/task.json from the GitHub repository kojima-takeshi188/zero_shot_cot, keep it "
        "anywhere, and set task.path to it."
    ),
)


def date_understanding(
    path: str | None = None, split: str = "validation", shuffle_options: int | None = 0, revision: str | None = None
) -> Task:
    """Load BIG-bench's date understanding, in the order of its file.

    path: a local .json, .jsonl or .parquet file in the original columns or the hub's. Without it the hub's `split`
    (validation or train) at `revision`. shuffle_options: the seed that the options of every item are shuffled by; null:
    as in the source, where most golds are A. Raises TaskDataError.
    """
    loaded = load(ORIGIN, path, split, revision)
    told = [(text(row.get("input", row.get("inputs"))).strip(), _scores(row)) for row in loaded.rows]
    ids = item_ids([{"input": question, "scores": scores} for question, scores in told], ("input", "scores"))
    drafts = [_draft(id, question, scores) for id, (question, scores) in zip(ids, told, strict=True)]
    return build(ORIGIN, loaded, drafts, ChoiceReader(), shuffle_options=shuffle_options)


def _scores(row: Row) -> dict[str, int]:
    if "target_scores" in row:
        # Parquet files have null for the options of other rows.
        return {option: score for option, score in (row["target_scores"] or {}).items() if score is not None}
    return dict(zip(row["multiple_choice_targets"], row["multiple_choice_scores"], strict=True))


def _draft(id: str, question: str, scores: dict[str, int]) -> Draft:
    golds = [place for place, score in enumerate(scores.values()) if score == 1]
    gold = golds[0] if len(golds) == 1 else f"{len(golds)} options with score 1"
    return Draft(id, question, gold, options=tuple(scores))
