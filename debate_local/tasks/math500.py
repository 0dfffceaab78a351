"""MATH-500: competition problems whose answers are expressions in LaTeX, 500 to test on.

A row (of our own making, in the original columns):
  {"problem": "Compute $\\\\frac{1}{2} + \\\\frac{1}{3}$.", "solution": "... The sum is $\\\\boxed{\\\\frac{5}{6}}$.",
   "answer": "\\\\frac{5}{6}", "subject": "Prealgebra", "level": 2, "unique_id": "test/prealgebra/0.json"}

Source: openai/prm800k and hendrycks/math, MIT; read from ZubinGou/math-evaluation-harness (data/math_oai/test.jsonl).
Rows of the 5,000 of MATH, which have no `answer`, load too: their gold is the last box of the solution. Golds are
compared by meaning, see `answers/expression.py`. The group is the subject.
"""

from debate_local.core.task import Task
from debate_local.tasks.answers.readers import ExpressionReader
from debate_local.tasks.benchmark import Draft, build
from debate_local.tasks.rows import Origin, Row, item_ids, load, text

ORIGIN = Origin(
    task="math500",
    title="MATH-500",
    repository="openai/prm800k",
    licence="MIT",
    layouts=(("problem", "answer"), ("problem", "solution")),
    sizes={"test": 500},
    hub="HuggingFaceH4/MATH-500",
    untried="the hub's id and columns",
    download=(
        "Download data/math_oai/test.jsonl from the GitHub repository ZubinGou/math-evaluation-harness, keep it "
        "anywhere, and set task.path to it."
    ),
)


def math500(path: str | None = None, split: str = "test", revision: str | None = None) -> Task:
    """Load MATH-500, in the order of its file.

    path: a local .jsonl, .json, .csv or .parquet file with the columns problem and answer (or solution), and if there
    are any subject, level and unique_id. Without it the hub's `split` (test) at `revision`. Raises TaskDataError.
    """
    loaded = load(ORIGIN, path, split, revision)
    ids = item_ids([{"problem": row["problem"]} for row in loaded.rows], ["problem"])
    drafts = [_draft(id, row) for id, row in zip(ids, loaded.rows, strict=True)]
    return build(ORIGIN, loaded, drafts, ExpressionReader(), PROMPT)


def _draft(id: str, row: Row) -> Draft:
    solution = text(row.get("solution"))
    return Draft(
        text(row.get("unique_id")) or id,
        text(row["problem"]),
        text(row["answer"]) if "answer" in row else _last_box(solution),
        group=text(row.get("subject")) or text(row.get("type")),
        explanation=solution,
    )


def _last_box(solution: str) -> str:
    """What the last \\boxed{...} holds, "" when there is none."""
    start = solution.rfind("\\boxed{") + len("\\boxed{")
    depth = 1
    for place in range(start, len(solution) if start >= len("\\boxed{") else 0):
        depth += {"{": 1, "}": -1}.get(solution[place], 0)
        if not depth:
            return solution[start:place]
    return ""


PROMPT = """\
Solve this problem. Explain your reasoning step by step.

{question}

{answer_format}"""
