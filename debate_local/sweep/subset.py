"""Which items of a task a cell runs on: those named, in the order of the source or shuffled by a seed, then a slice.

Nothing here depends on what is not chosen: a shuffled item's place among others is its own, so that limit=100 contains
limit=50, and the same ids give the same items whatever else is in the file.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from debate_local.core.chat import digest
from debate_local.core.task import Task
from debate_local.core.transcript import Item
from debate_local.tasks.hygiene import Oddity

from .config import Cell
from .options import OptionFault, nearest


def chosen_items(cell: Cell, items: Sequence[Item], note: Callable[[str], None]) -> list[Item]:
    """The cell's items: `ids`, then `shuffle`, then `offset` and `limit`; those in `suspects` are marked.

    note: takes what a person should know. Raises OptionFault for what leaves nothing, or names what is not there.
    """
    name = cell.task.name
    if not items:
        raise OptionFault(f"task {name!r} has no items")
    there = {item.id for item in items}
    for setting, ids in (("ids", cell.ids or ()), ("suspects", cell.suspects)):
        _refuse_unknown(setting, name, ids, there)
    named = there if cell.ids is None else set(cell.ids)
    chosen = [item for item in items if item.id in named]
    if cell.shuffle is not None:
        chosen.sort(key=lambda item: digest(["shuffle", cell.shuffle, item.id]))
    if cell.offset >= len(chosen):
        raise OptionFault(f"offset={cell.offset} leaves nothing: task {name!r} has {len(chosen)} items")
    stop = None if cell.limit is None else cell.offset + cell.limit
    if stop is not None and stop > len(chosen):
        note(f"limit={cell.limit} (offset {cell.offset}) is more than task {name!r} has: {len(chosen)} items in all")
    marked = set(cell.suspects)
    return [
        replace(item, suspect=item.suspect or "named in suspects=") if item.id in marked else item
        for item in chosen[cell.offset : stop]
    ]


def oddities_of(task: Task, kept: Sequence[Item]) -> list[Oddity]:
    """What is wrong with the rows of these items, by the task's own table (`tasks/hygiene.py`)."""
    ids = {item.id for item in kept}
    found = []
    for oddity in getattr(task, "oddities", ()):
        here = tuple(id for id in oddity.items if id in ids)
        if here or not oddity.items:
            found.append(replace(oddity, items=here))
    return found


def _refuse_unknown(setting: str, task: str, ids: Sequence[str], there: set[str]) -> None:
    unknown = [id for id in ids if id not in there]
    if not unknown:
        return
    # YAML and Hydra read 00123 and 12e45 as numbers.
    looks = any(id.lstrip("-").replace(".", "").replace("+", "").replace("e", "").isdecimal() for id in unknown)
    quote = f" An id that looks like a number needs quotes: {setting}=['{unknown[0]}']." if looks else ""
    raise OptionFault(
        f"{setting}: task {task!r} has no item {', '.join(map(repr, unknown[:5]))}"
        f"{f' and {len(unknown) - 5} more' if len(unknown) > 5 else ''}.{nearest(unknown[0], there)}{quote} "
        "`debate-local show RUN` lists the ids of a run"
    )
