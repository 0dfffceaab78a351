"""What comes into a debate from other items of its task: texts of strangers, and answers that are wrong here."""

from string import ascii_uppercase

from .chat import derive_seed
from .setting import Setting
from .transcript import Answer, Item

_TRIES = 100


def donor(item: Item, setting: Setting, agent: int, attempt: int = 0) -> Item:
    """Another item of the whole task, chosen by a hash of seed, item and agent, whatever subset is run."""
    items = setting.task.items()
    for number in range(_TRIES):
        step = f"donor {attempt}.{number}"
        other = items[derive_seed(setting.seed, item.id, agent, 0, step) % len(items)]
        if other.id != item.id:
            return other
    raise ValueError(f"task {setting.task.name!r} has no item but {item.id!r}: there is nobody to take a text from")


def wrong_answer(item: Item, setting: Setting) -> str:
    """A fixed answer that is wrong: the item's trap, else its next option, else the target of another item."""
    if item.trap:
        return item.trap[0]
    place = ascii_uppercase.find(item.target) if len(item.target) == 1 else -1
    if 0 <= place < len(item.choices) > 1:
        return ascii_uppercase[(place + 1) % len(item.choices)]
    for attempt in range(_TRIES):
        answer = donor(item, setting, 0, attempt).target
        if answer not in (item.target, *item.also):
            return answer
    raise ValueError(f"task {setting.task.name!r}: no item has another target than {item.id!r}, so none is wrong")


def check_donors(setting: Setting) -> None:
    """Raise ValueError for a task of one item."""
    if len(setting.task.items()) < 2:
        raise ValueError(f"task {setting.task.name!r} has one item only: no other can lend texts or answers")


def read_as_answer(text: str, item: Item, setting: Setting, value: str) -> Answer:
    """What a text of ours answers; what it was made to say where the task's reader does not see it."""
    answer = setting.task.read(text, item)
    return Answer(value, value, "given") if answer.missing else answer
