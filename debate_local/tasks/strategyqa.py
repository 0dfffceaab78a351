"""StrategyQA: yes/no questions that need several facts nobody names; 2,061 to train on, 229 to develop with.

A row (of our own making, in the original columns):
  {"qid": "0a1b", "term": "Oak", "description": "Kind of tree", "question": "Could an oak be older than a king?",
   "answer": true, "facts": ["Oaks live for centuries.", "Kings are people."],
   "decomposition": ["How old do oaks get?", "Is #1 more than a lifetime?"], "evidence": [[[["Oak-1"]], ["operation"]]]}

Source: eladsegal/strategyqa on GitHub (data/strategyqa/dev.json), MIT; ChilleD/StrategyQA on the hub, divided
otherwise. The official test set has no labels. BIG-bench's copy is train and dev together, so it is nothing unseen. The
facts are the item's evidence and, joined, its explanation; Wikipedia paragraphs are named in the file but not in it.
"""

from debate_local.core.task import Task
from debate_local.core.transcript import Evidence
from debate_local.tasks.answers.readers import YesNoReader
from debate_local.tasks.benchmark import Draft, build
from debate_local.tasks.rows import Origin, Row, item_ids, load, text

ORIGIN = Origin(
    task="strategyqa",
    title="StrategyQA",
    repository="eladsegal/strategyqa",
    licence="MIT",
    layouts=(("question", "answer", "facts"),),
    # dev is the original's; the hub has a `test` of its own.
    sizes={"train": 2061, "dev": 229, "test": None},
    hub="ChilleD/StrategyQA",
    untried="the hub's id, its splits (another division than the original's) and columns",
    download=(
        "Download data/strategyqa/dev.json from the GitHub repository eladsegal/strategyqa, keep it anywhere, and set "
        "task.path to it."
    ),
)


def strategyqa(path: str | None = None, split: str = "test", revision: str | None = None) -> Task:
    """Load StrategyQA, in the order of its file.

    path: a local .json, .jsonl or .parquet file in the original columns. Without it the hub's `split` (test or train)
    at `revision`. Raises TaskDataError.
    """
    loaded = load(ORIGIN, path, split, revision)
    ids = item_ids(loaded.rows, ("question", "answer"))
    drafts = [_draft(text(row.get("qid")) or id, row) for id, row in zip(ids, loaded.rows, strict=True)]
    return build(ORIGIN, loaded, drafts, YesNoReader())


def _draft(id: str, row: Row) -> Draft:
    facts = [text(fact) for fact in row["facts"] or ()]
    return Draft(
        id,
        text(row["question"]),
        # A JSON boolean, and nothing else: a file of another task has numbers or sentences here.
        text(row["answer"]).lower() if isinstance(row["answer"], bool) else f"no true or false: {text(row['answer'])}",
        explanation=" ".join(facts),
        evidence=tuple(
            Evidence(f"{id}-{number}", "StrategyQA, facts", fact, correct=True)
            for number, fact in enumerate(facts, start=1)
        ),
    )
