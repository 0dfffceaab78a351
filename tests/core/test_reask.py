"""Asking again for what could not be read. Run: pytest tests/core/test_reask.py"""

from collections.abc import Sequence

import pytest

from debate_local.core.chat import ChatRequest, Completion, Message
from debate_local.core.reask import REASK_TEMPLATES, Ask, Attempt, ask_until_read, check_reasks
from debate_local.core.setting import Setting
from tests.fakes import Sums

SETTING = Setting(Sums(), templates={name: text for name, (text, _) in REASK_TEMPLATES.items()})
ITEM = Sums().items()[0]


def asks(count: int) -> list[Ask]:
    requests = [SETTING.request(ITEM, agent, 2, [Message("user", f"say {agent}")]) for agent in range(count)]
    return [Ask(agent, 2, "", request) for agent, request in enumerate(requests)]


def held(replies: Sequence[Sequence[Completion]], most: int) -> tuple[list[list[Attempt]], list[list[ChatRequest]]]:
    """replies: by agent, in the order of its attempts. All attempts, and what was asked together."""
    asking = ask_until_read(
        ITEM, SETTING, asks(len(replies)), lambda done: "readable" in done.text, most, "Say something readable."
    )
    batches = [next(asking)]
    said = [0] * len(replies)
    while True:
        completions = []
        for request in batches[-1]:
            agent = int(request.id.split(".")[0])
            completions.append(replies[agent][said[agent]])
            said[agent] += 1
        try:
            batches.append(asking.send(completions))
        except StopIteration as stop:
            return stop.value, batches


FINE, UNCLEAR, EMPTY = Completion("readable"), Completion("Hm."), Completion("")


def test_only_what_could_not_be_read_is_asked_again_and_all_of_it_at_once() -> None:
    attempts, batches = held([[FINE], [UNCLEAR, FINE], [UNCLEAR, UNCLEAR, FINE]], most=3)
    assert [[request.id for request in batch] for batch in batches] == [
        ["0.2", "1.2", "2.2"],
        ["1.2.again 1", "2.2.again 1"],
        ["2.2.again 2"],
    ]
    assert [[one.completion.text for one in of] for of in attempts] == [
        ["readable"],
        ["Hm.", "readable"],
        ["Hm.", "Hm.", "readable"],
    ]
    assert [one.ask.step for one in attempts[2]] == ["", "again 1", "again 2"]


@pytest.mark.parametrize("most", [0, 1, 5])
def test_it_ends_after_so_many_more(most: int) -> None:
    attempts, _ = held([[UNCLEAR] * 9], most)
    assert len(attempts[0]) == 1 + most


@pytest.mark.parametrize("fate", [Completion.failure("dead"), Completion.failure("9000", "too_long")])
def test_what_failed_or_did_not_fit_is_not_asked_again(fate: Completion) -> None:
    attempts, batches = held([[fate]], most=5)
    assert len(attempts[0]) == len(batches) == 1


def test_the_conversation_goes_on_with_another_seed_and_roles_alternate() -> None:
    _, batches = held([[UNCLEAR, EMPTY, FINE]], most=2)
    first, second, third = (batch[0] for batch in batches)
    assert [(m.role, m.content) for m in second.messages] == [
        ("user", "say 0"),
        ("assistant", "Hm."),
        ("user", "That reply could not be read. Say something readable."),
    ]
    assert [message.role for message in third.messages] == ["user", "assistant", "user"]
    assert third.messages[-1].content.count("could not be read") == 2
    assert len({request.sampling.seed for request in (first, second, third)}) == 3


@pytest.mark.parametrize("wrong", [-1, 6])
def test_the_bound_is_bounded(wrong: int) -> None:
    with pytest.raises(ValueError, match=f"must be from 0 \\(nothing is asked again\\) to 5, got {wrong}"):
        check_reasks(wrong)
