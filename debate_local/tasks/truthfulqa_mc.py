"""TruthfulQA, multiple choice: questions that people often answer wrongly; 790 in the revision of 2025.

A row (of our own making, in the original columns):
  {"question": "What happens if you swallow a seed?",
   "mc0_targets": {"It passes through you": 1, "A plant grows in you": 0},
   "mc1_targets": {"It passes through you": 1, "A plant grows in you": 0, "You die": 0}, "mc2_targets": {...}}
The hub's form has {"choices": [...], "labels": [1, 0, ...]} in mc1_targets, 817 rows and no mc0_targets.

Source: sylinrl/TruthfulQA, Apache-2.0 (data/mc_task.json, read from a copy in koppula/TruthfulQA);
truthfulqa/truthful_qa on the hub. The gold is the first option of every row, so options are shuffled unless one asks
otherwise. The trap is the best wrong answer, which mc0_targets names.
"""

from typing import Any, Literal

from debate_local.core.task import Task
from debate_local.tasks.answers.readers import ChoiceReader
from debate_local.tasks.benchmark import Draft, build
from debate_local.tasks.rows import Origin, Row, item_ids, load, text

ORIGIN = Origin(
    task="truthfulqa_mc",
    title="TruthfulQA",
    repository="koppula/TruthfulQA",
    licence="Apache-2.0",
    layouts=(("question", "mc1_targets"),),
    sizes={"validation": 790},
    hub="truthfulqa/truthful_qa",
    config="multiple_choice",
    untried="the hub's id, configuration and columns (the paper's 817 rows, not the revision's 790)",
    download=(
        "Download data/mc_task.json from the GitHub repository koppula/TruthfulQA, keep it anywhere, and set task.path "
        "to it."
    ),
)


def truthfulqa_mc(
    path: str | None = None,
    split: str = "validation",
    targets: Literal["mc1", "mc0"] = "mc1",
    shuffle_options: int | None = 0,
    revision: str | None = None,
) -> Task:
    """Load TruthfulQA's multiple choice, in the order of its file.

    path: a local .json, .jsonl or .parquet file in the original columns. Without it the hub's `split` (validation) at
    `revision`. targets: mc1, one true answer among 2 to 13; mc0, the true answer and the best wrong one (not on the
    hub). shuffle_options: the seed that the options of every item are shuffled by; null: as in the source, where every
    gold is A. Raises TaskDataError.
    """
    loaded = load(ORIGIN, path, split, revision)
    ids = item_ids(loaded.rows, ("question",))
    drafts = [_draft(id, row, f"{targets}_targets") for id, row in zip(ids, loaded.rows, strict=True)]
    return build(ORIGIN, loaded, drafts, ChoiceReader(), shuffle_options=shuffle_options)


def _draft(id: str, row: Row, column: str) -> Draft:
    options, labels = _scored(row.get(column))
    tempting, truths = _scored(row.get("mc0_targets"))
    traps = [option for option, true in zip(tempting, truths, strict=True) if not true and option in options]
    golds = [place for place, true in enumerate(labels) if true]
    return Draft(
        id,
        text(row["question"]),
        golds[0] if len(golds) == 1 else f"{len(golds)} true options in {column}",
        options=tuple(options),
        trap=tuple(options.index(trap) for trap in traps),
    )


def _scored(targets: Any) -> tuple[list[str], list[bool]]:
    """Options and whether each is true, from {option: 0 or 1} or {choices: [...], labels: [...]}."""
    if not isinstance(targets, dict):
        return [], []
    if isinstance(targets.get("choices"), list) and isinstance(targets.get("labels"), list):
        pairs = list(zip(targets["choices"], targets["labels"], strict=False))
    else:
        # Parquet files have null for the options of other rows.
        pairs = [(option, label) for option, label in targets.items() if label is not None]
    return [text(option) for option, _ in pairs], [label == 1 for _, label in pairs]
