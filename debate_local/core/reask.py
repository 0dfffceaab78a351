"""Ask again for a reply that could not be read: a bounded number of times, each of them a turn and in the cost.

Rule 1: what the engine failed, or what did not fit, is not asked again here: another try would end the same.
Rule 2: all that must be asked again is asked in one yield, so that it is one batch over all debates.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from .chat import ChatRequest, Completion, Message, derive_seed, with_seed
from .scheduler import Asking
from .setting import Setting, request_id
from .transcript import Item

MOST = 5


@dataclass(frozen=True, slots=True)
class Ask:
    """A request, and whose it is: as a turn has it."""

    agent: int
    round: int
    step: str
    request: ChatRequest


@dataclass(frozen=True, slots=True)
class Attempt:
    """An ask and what came back."""

    ask: Ask
    completion: Completion


def ask_until_read(
    item: Item, setting: Setting, asks: Sequence[Ask], readable: Callable[[Completion], bool], most: int, asked: str
) -> Asking[list[list[Attempt]]]:
    """For each ask its attempts, of which the last one counts: one, and at most so many more.

    asked: the sentence that says which form is wanted; the template `again` puts it.
    """
    attempts: list[list[Attempt]] = [[] for _ in asks]
    waiting = list(enumerate(asks))
    for number in range(most + 1):
        completions = yield [ask.request for _, ask in waiting]
        tried = [(place, Attempt(ask, done)) for (place, ask), done in zip(waiting, completions, strict=True)]
        for place, attempt in tried:
            attempts[place].append(attempt)
        waiting = [
            (place, _again(item, setting, attempt, asks[place].step, number + 1, asked))
            for place, attempt in tried
            if attempt.completion.error is None and not readable(attempt.completion)
        ]
        if not waiting:
            break
    return attempts


def _again(item: Item, setting: Setting, attempt: Attempt, step: str, number: int, asked: str) -> Ask:
    """The same conversation, with the reply and the remark that it could not be read."""
    ask, text = attempt.ask, setting.render("again", asked=asked)
    step = f"{step} again {number}".strip()
    messages = ask.request.messages
    if attempt.completion.text.strip():
        messages = (*messages, Message("assistant", attempt.completion.text), Message("user", text))
    else:
        # Chat templates want roles to alternate, so one message asks both.
        messages = (*messages[:-1], Message("user", f"{messages[-1].content}\n\n{text}"))
    seed = derive_seed(setting.seed, item.id, ask.agent, ask.round, step)
    request = replace(
        ask.request,
        id=request_id(ask.agent, ask.round, step),
        messages=messages,
        sampling=with_seed(ask.request.sampling, seed),
    )
    return replace(ask, step=step, request=request)


def check_reasks(reasks: int) -> None:
    """Raise ValueError for a number of further tries that is out of bounds."""
    if not 0 <= reasks <= MOST:
        raise ValueError(f"protocol.reasks must be from 0 (nothing is asked again) to {MOST}, got {reasks}")


AGAIN = "That reply could not be read. {{ asked }}"

# What a protocol that asks again adds to its templates.
REASK_TEMPLATES = {"again": (AGAIN, "asked")}
