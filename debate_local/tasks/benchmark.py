"""From the rows of a benchmark to a task: options put in order, golds read, oddities found. Knows no benchmark."""

import math
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from debate_local.core.task import Metric
from debate_local.core.transcript import Evidence, Item
from debate_local.tasks.answers.answer_task import AnswerTask
from debate_local.tasks.answers.choice import LETTERS
from debate_local.tasks.answers.readers import Reader, stem, with_options
from debate_local.tasks.hygiene import LOST, Oddity, examine
from debate_local.tasks.rows import Loaded, Origin, TaskDataError, distinct, text

PROMPT = """\
Answer this question. Explain your reasoning step by step.

{question}

{answer_format}"""


@dataclass(frozen=True, slots=True)
class Draft:
    """What a row says. Its fields are those of an `Item`, before options are put in order and golds read.

    gold, also and trap: a number is the place of an option, from 0; a text is for the reader.
    """

    id: str
    question: str
    gold: int | str
    options: tuple[str, ...] = ()
    also: tuple[int | str, ...] = ()
    trap: tuple[int | str, ...] = ()
    group: str = ""
    suspect: str = ""
    explanation: str = ""
    evidence: tuple[Evidence, ...] = ()


def build(
    origin: Origin,
    loaded: Loaded,
    drafts: Sequence[Draft],
    reader: Reader,
    prompt: str = PROMPT,
    shuffle_options: int | None = None,
) -> AnswerTask:
    """A task of these drafts, in their order. Nothing is dropped: what is odd stands in the task's table.

    shuffle_options: a seed; each item's options are shuffled by it and the item's id. None: as in the source.
    Raises TaskDataError where no gold at all can be read.
    """
    work = _Building(reader, shuffle_options)
    items = [work.item(replace(d, id=id)) for d, id in zip(drafts, distinct([d.id for d in drafts]), strict=True)]
    if len(work.unread) == len(items):
        raise TaskDataError(
            f"{origin.task}: no gold can be read, the first is {drafts[0].gold!r:.80}. Is it a file of another task? "
            f"{origin.download}"
        )
    values = [count for item in items if (count := reader.values(item))]
    return AnswerTask(
        name=origin.task,
        all_items=items,
        reader=reader,
        prompt=prompt,
        source=loaded.source,
        oddities=[*_size(origin, loaded), *work.kept_in_order(), *examine(items, stem, work.unread)],
        golds={item.id: d.gold for item, d in zip(items, drafts, strict=True) if isinstance(d.gold, str)},
        metric=Metric("accuracy", chance=math.fsum(1 / count for count in values) / len(items) if values else None),
    )


@dataclass(slots=True)
class _Building:
    """Makes items of drafts, and keeps what it could not do."""

    reader: Reader
    seed: int | None
    unread: list[str] = field(default_factory=list)
    ordered: list[str] = field(default_factory=list)

    def item(self, draft: Draft) -> Item:
        """One item; where its gold cannot be read, the target is what the source says."""
        if len(draft.options) > len(LETTERS):
            raise TaskDataError(f"item {draft.id}: {len(draft.options)} options are more than there are letters")
        options = tuple(option if option.strip() else LOST for option in draft.options)
        order = self._order(draft.id, options)
        choices = tuple(options[place] for place in order)

        def told(gold: int | str) -> str:
            return LETTERS[order.index(gold)] if isinstance(gold, int) and 0 <= gold < len(order) else str(gold)

        item = Item(
            id=draft.id,
            question=with_options(draft.question, choices),
            target=told(draft.gold),
            choices=choices,
            group=draft.group,
            suspect=draft.suspect,
            explanation=draft.explanation,
            evidence=draft.evidence,
        )
        gold = self.reader.gold(item.target, item)
        if gold is None:
            self.unread.append(item.id)
            return replace(item, suspect=item.suspect or "the gold cannot be read")
        also, trap = (self._read(map(told, golds), item) for golds in (draft.also, draft.trap))
        return replace(item, target=gold, also=also, trap=trap)

    def _read(self, golds: Iterable[str], item: Item) -> tuple[str, ...]:
        return tuple(gold for given in golds if (gold := self.reader.gold(given, item)) is not None)

    def _order(self, id: str, options: Sequence[str]) -> list[int]:
        """The places of the options in their new order. What speaks of others (`none of these`) keeps its place."""
        order = list(range(len(options)))
        if self.seed is None or not options:
            return order
        if any(_NAMES_LETTERS.search(option) for option in options):
            self.ordered.append(id)
            return order
        moving = [place for place in order if not _SPEAKS_OF_OTHERS.search(options[place])]
        shuffled = list(moving)
        random.Random(f"options {self.seed} {id}").shuffle(shuffled)
        for place, taken in zip(moving, shuffled, strict=True):
            order[place] = taken
        return order

    def kept_in_order(self) -> list[Oddity]:
        """A line for the items whose options could not be shuffled."""
        meaning = "they stay as in the source"
        return [Oddity("has options that name others by letter", tuple(self.ordered), meaning)] if self.ordered else []


def place_of(letter: str, options: Sequence[str]) -> int | str:
    """The place of the option that a letter names, from 0; the text itself where there is none such."""
    letter = letter.strip()
    return LETTERS.index(letter) if len(letter) == 1 and letter in LETTERS[: len(options)] else letter


def labelled(options: Any) -> tuple[list[str], tuple[str, ...]]:
    """Labels and texts of options given as [{label, text}, ...] or as {label: [...], text: [...]}; else none."""
    if isinstance(options, list) and all(isinstance(one, Mapping) for one in options):
        pairs: list[tuple[Any, Any]] = [(one.get("label"), one.get("text")) for one in options]
    elif isinstance(options, Mapping) and isinstance(options.get("label"), list):
        pairs = list(zip(options["label"], options.get("text") or [], strict=False))
    else:
        pairs = []
    return [text(label) for label, _ in pairs], tuple(text(told) for _, told in pairs)


_SPEAKS_OF_OTHERS = re.compile(
    r"\b(?:none|all|neither|both|any|some|two|either|each|one) of (?:the )?"
    r"(?:above|below|these|those|them|others?|options|choices|answers|following|preceding|foregoing)\b"
    r"|\bthe above\b|\b(?:none|all) (?:are|is) (?:correct|right|true)\b",
    re.IGNORECASE,
)
_NAMES_LETTERS = re.compile(
    r"\b(?:[Bb]oth|[Ee]ither|[Nn]either|[Oo]nly|[Oo]ptions?|[Cc]hoices?|[Aa]nswers?) \(?[A-J]\b"
    r"|(?<!\w)\(?[A-J]\)?(?:, | and | or | & )\(?[A-J](?!\w)"
)


def _size(origin: Origin, loaded: Loaded) -> list[Oddity]:
    """A line where a local file holds another number of rows than was published, or not all parts."""
    rows, parts = loaded.source.get("rows", 0), loaded.source.get("parts", ())
    sizes = {split: size for split, size in origin.sizes.items() if size is not None}
    if "path" not in loaded.source or len(parts) == 1:
        return []
    if parts and origin.parts:
        return [Oddity(f"{len(parts)} of {len(origin.parts)} {origin.part_column}s are there", (), ", ".join(parts))]
    if not sizes or rows in sizes.values():
        return []
    published = ", ".join(f"{split} {size:,}" for split, size in sizes.items())
    return [Oddity(f"{rows:,} rows were loaded; as published: {published}", (), "a part of it, or another version")]
