"""BIG-Bench Hard: 27 kinds of puzzles, 250 of nearly each; 6,511 in all.

A row (of our own making, in the original columns; `task` only where a file holds several subsets):
  {"input": "Which is the odd one out?\\nOptions:\\n(A) apple\\n(B) pear\\n(C) chair", "target": "(C)",
   "task": "snarks"}

Source: suzgunmirac/BIG-Bench-Hard on GitHub (bbh/*.json, each an object with the rows under `examples`), MIT;
lukaemon/bbh on the hub. Targets are option letters in most subsets, and numbers, yes/no, true/false, valid/invalid,
closing brackets or a list of words in others: each subset has its reader. A few rows of movie_recommendation and
ruin_names are broken (a title with a comma became two options, and the target is a text): their golds cannot be read.
The rows carry BIG-bench's canary; they should never appear in training corpora. The group is the subset.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from debate_local.core.task import Task
from debate_local.core.transcript import Answer, Item
from debate_local.tasks.answers import words
from debate_local.tasks.answers.readers import (
    ChoiceReader,
    GroupReader,
    NumberReader,
    Reader,
    WordsReader,
    YesNoReader,
)
from debate_local.tasks.benchmark import Draft, build, place_of
from debate_local.tasks.rows import Origin, Row, TaskDataError, item_ids, load, text


@dataclass(frozen=True, slots=True)
class BracketsReader:
    """The closing brackets that complete an item's sequence, which stands behind `Input:` in its question."""

    format: str = words.BRACKETS_FORMAT

    def read(self, text: str, item: Item) -> Answer:
        """See `words.read_brackets`."""
        return words.read_brackets(text, item.question.rpartition("Input:")[2])

    def stated(self, gold: str, item: Item) -> str:
        """After `Answer:`."""
        return f"Answer: {gold}"

    def same(self, a: Answer, b: Answer) -> bool:
        """Are both the same brackets?"""
        return not a.missing and a.key == b.key

    def gold(self, text: str, item: Item) -> str | None:
        """The brackets, one blank between two."""
        return words.brackets_key(text) or None

    def right(self, answer: Answer, gold: str, item: Item) -> bool:
        """All of them, in order."""
        return answer.key == gold

    def values(self, item: Item) -> int | None:
        """There is no end to sequences."""
        return None


_CHOICE: Reader = ChoiceReader()
_OTHERS: Mapping[str, Reader] = {
    "boolean_expressions": WordsReader(("True", "False")),
    "causal_judgement": YesNoReader(),
    "dyck_languages": BracketsReader(),
    "formal_fallacies": WordsReader(("valid", "invalid")),
    "multistep_arithmetic_two": NumberReader(),
    "navigate": YesNoReader(),
    "object_counting": NumberReader(),
    "sports_understanding": YesNoReader(),
    "web_of_lies": YesNoReader(),
    "word_sorting": WordsReader(),
}
_NAMES = """
    date_understanding disambiguation_qa geometric_shapes hyperbaton logical_deduction_five_objects
    logical_deduction_seven_objects logical_deduction_three_objects movie_recommendation penguins_in_a_table
    reasoning_about_colored_objects ruin_names salient_translation_error_detection snarks temporal_sequences
    tracking_shuffled_objects_five_objects tracking_shuffled_objects_seven_objects
    tracking_shuffled_objects_three_objects
"""
_WITH_OPTIONS: dict[str, Reader] = dict.fromkeys(_NAMES.split(), _CHOICE)
SUBSETS: Mapping[str, Reader] = dict(sorted({**_OTHERS, **_WITH_OPTIONS}.items()))
FORMAT = (
    "Give the final answer alone inside \\boxed{} at the end of your reply: the letter where there are options with "
    "letters, else the number, the word or the list of words. If brackets are asked for, end with a line that holds "
    "`Answer:` and the brackets instead."
)
ORIGIN = Origin(
    task="bbh",
    title="BIG-Bench Hard",
    repository="suzgunmirac/BIG-Bench-Hard",
    licence="MIT",
    layouts=(("input", "target"),),
    sizes={"test": 6511},
    hub="lukaemon/bbh",
    config="{part}",
    untried="the hub's id, configurations and columns",
    parts=tuple(SUBSETS),
    part_column="task",
    download=(
        "Download the folder bbh of the GitHub repository suzgunmirac/BIG-Bench-Hard, keep it anywhere, and set "
        "task.path to it or to one of its files."
    ),
)


def bbh(
    path: str | None = None,
    split: str = "test",
    subsets: list[str] | None = None,
    shuffle_options: int | None = None,
    revision: str | None = None,
) -> Task:
    """Load BIG-Bench Hard, subset by subset.

    path: a file of the original's, or the folder of all; a file with several subsets names them in a column `task`.
    Without it the hub's `split` (test) at `revision`. subsets: only these; null: all 27. shuffle_options: a seed to
    shuffle the options of every item by; null: as in the source. Raises TaskDataError.
    """
    loaded = load(ORIGIN, path, split, revision, subsets)
    for number, row in enumerate(loaded.rows, start=1):
        if row.get("task") not in SUBSETS:
            raise TaskDataError(
                f"{path}, row {number}: of which subset is it? task is {row.get('task')!r}; give task.subsets=[NAME], "
                f"or call the file like one of: {', '.join(SUBSETS)}"
            )
    ids = item_ids(loaded.rows, ("task", "input", "target"))
    drafts = [_draft(id, row) for id, row in zip(ids, loaded.rows, strict=True)]
    readers = {row["task"]: SUBSETS[row["task"]] for row in loaded.rows}
    kinds = set(readers.values())
    reader: Reader = kinds.pop() if len(kinds) == 1 else GroupReader(readers, FORMAT)
    return build(ORIGIN, loaded, drafts, reader, shuffle_options=shuffle_options)


_OPTIONS = re.compile(r"\s*\nOptions:\s*\n(?=\(A\) )")
_LETTER = re.compile(r"(?:\A|\n)\(([A-Z])\) ")


def _draft(id: str, row: Row) -> Draft:
    question, target = text(row["input"]), text(row["target"])
    if SUBSETS[row["task"]] is not _CHOICE:
        return Draft(id, question, target, group=row["task"])
    stem, *listed = _OPTIONS.split(question, maxsplit=1)
    options = tuple(option.strip() for option in _LETTER.split("".join(listed))[2::2])
    gold = place_of(target.removeprefix("(").removesuffix(")"), options) if target.startswith("(") else target
    return Draft(id, stem, gold, options=options, group=row["task"])
