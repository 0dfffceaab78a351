"""Your own questions, from a file.

A row:
  {"question": "Which gas do plants take in?", "target": "B", "choices": ["oxygen", "carbon dioxide"], "id": "gas",
   "group": "biology", "trap": ["A"], "explanation": "They make sugar of it.",
   "evidence": [{"id": "e1", "source": "a book", "text": "Leaves take in carbon dioxide.", "correct": true}]}

Only question and target are needed. target: the gold; a list means that any of them is right. choices: a list of texts;
the target is then a letter (A, B, ...) or the text of one. trap: wrong answers that tempt, in the form of a target.
evidence: texts, or objects with a text. In a CSV file, lists and objects are written as JSON.

Source and licence are yours; nothing of them is stored but the path.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from debate_local.core.task import Task
from debate_local.core.transcript import Evidence, Item
from debate_local.tasks.answers.readers import READERS
from debate_local.tasks.benchmark import Draft, build, place_of
from debate_local.tasks.rows import Origin, Row, TaskDataError, item_ids, load, text

Kind = Literal["auto", "number", "choice", "yes_no", "expression", "words"]
ORIGIN = Origin(
    task="jsonl",
    title="",
    repository="",
    licence="",
    layouts=(("question", "target"),),
    sizes={},
    download="Each row needs a question and a target; task.path names the file.",
)


def jsonl(path: str | None = None, reader: Kind = "auto", shuffle_options: int | None = None) -> Task:
    """Load a file of one's own, in its order.

    path: a .jsonl, .json, .csv or .parquet file. reader: how replies are read: `number`, `choice`, `yes_no`,
    `expression` (mathematics), or `words` (a stated word or list of words); `auto`: choice where there are choices,
    yes_no or number where all targets are such, else words. shuffle_options: a seed to shuffle the options of every
    item by; null: as in the file. Raises TaskDataError.
    """
    if path is None:
        raise TaskDataError("task=jsonl needs task.path=FILE, a .jsonl, .json, .csv or .parquet file")
    loaded = load(ORIGIN, path, "", None)
    kind = _kind(loaded.rows) if reader == "auto" else reader
    if kind == "choice" and not all(_list(row.get("choices"), "choices") for row in loaded.rows):
        raise TaskDataError(f"{path}: reader=choice needs choices in every row")
    ids = item_ids(loaded.rows, ("question", "target"))
    drafts = [_draft(text(row.get("id")) or id, row, kind) for id, row in zip(ids, loaded.rows, strict=True)]
    loaded.source["reader"] = kind
    return build(ORIGIN, loaded, drafts, READERS[kind](), shuffle_options=shuffle_options)


def _kind(rows: Sequence[Row]) -> str:
    """The reader that fits all rows."""
    if any(_list(row.get("choices"), "choices") for row in rows):
        return "choice"
    golds = [gold for row in rows for gold in _golds(row["target"])]
    nothing = Item("", "", "")
    fitting = (kind for kind in ("yes_no", "number") if all(READERS[kind]().gold(gold, nothing) for gold in golds))
    return next(fitting, "words")


def _draft(id: str, row: Row, kind: str) -> Draft:
    options = tuple(text(option) for option in _list(row.get("choices"), "choices"))

    def told(golds: Any) -> tuple[int | str, ...]:
        return tuple(_place(gold, options) if kind == "choice" else gold for gold in _golds(golds))

    targets = told(row["target"])
    return Draft(
        id,
        text(row["question"]),
        targets[0] if targets else "",
        options=options,
        also=targets[1:],
        trap=told(row.get("trap")),
        group=text(row.get("group")),
        explanation=text(row.get("explanation")),
        evidence=tuple(
            _evidence(id, number, one) for number, one in enumerate(_list(row.get("evidence"), "evidence"), start=1)
        ),
    )


def _place(gold: str, options: Sequence[str]) -> int | str:
    """The option that is meant: by its text, else by its letter."""
    return options.index(gold) if gold in options else place_of(gold, options)


def _golds(value: Any) -> list[str]:
    """One gold or several, as texts; true and false as yes and no."""
    values = _list(value, "") if isinstance(value, list) else [] if text(value) == "" else [value]
    return [{True: "yes", False: "no"}[one] if isinstance(one, bool) else text(one).strip() for one in values]


def _list(value: Any, column: str) -> list[Any]:
    """A list as such, or as JSON in a text; [] for nothing."""
    if isinstance(value, str) and value.strip():
        try:
            value = json.loads(value)
        except json.JSONDecodeError as error:
            raise TaskDataError(
                f"{column} must be a list, or in a CSV file a list as JSON; got {value!r:.80}"
            ) from error
    if isinstance(value, list):
        return value
    if text(value).strip():
        raise TaskDataError(f"{column} must be a list, got {value!r:.80}")
    return []


def _evidence(id: str, number: int, one: Any) -> Evidence:
    told: Mapping[str, Any] = one if isinstance(one, Mapping) else {"text": one}
    if not text(told.get("text")).strip():
        raise TaskDataError(f"item {id}, evidence {number}: it needs a text, got {one!r:.80}")
    correct = told.get("correct")
    if not (correct is None or isinstance(correct, bool)):
        raise TaskDataError(f"item {id}, evidence {number}: correct must be true, false or null, got {correct!r}")
    name = text(told.get("id")) or f"{id}-{number}"
    return Evidence(name, text(told.get("source")), text(told["text"]), correct)
