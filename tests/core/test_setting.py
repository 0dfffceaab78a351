"""What a setting adds to a debate: seeds, personas, and one careful reading of each reply."""

import pytest

from debate_local.core.chat import Completion, Message, Sampling
from debate_local.core.setting import Agent, Setting
from debate_local.core.transcript import Item
from debate_local.tasks.arithmetic import arithmetic

ITEM = Item("1", "What is 6*6?", "36")
SETTING = Setting(arithmetic(), cast=(Agent(), Agent(persona="Be terse.", sampling=Sampling(temperature=0))))


def answer(text: str, **completion: object) -> str | None:
    request = SETTING.request(ITEM, 0, 0, [Message("user", "?")])
    return SETTING.turn(ITEM, 0, 0, request, Completion(text, **completion)).answer.value  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "stopped", "cut"),
    [
        ("6*6 = 36", "36", None),
        # Perhaps it was to be 360.
        ("The answer is 36", "36", None),
        ("The answer is \\boxed{36}", "36", "36"),
        ("The answer is 36. Let me check: 36", "36", "36"),
    ],
)
def test_a_number_at_the_very_cut_of_a_cut_off_reply_is_no_answer(text: str, stopped: str, cut: str | None) -> None:
    assert answer(text) == stopped
    assert answer(text, finish_reason="length") == cut


def test_failed_and_empty_replies_are_not_read() -> None:
    assert answer("", error="out of memory", finish_reason="error") is None
    assert answer(" \n") is None


def test_the_cast_is_repeated_and_each_member_keeps_its_own_persona_and_sampling() -> None:
    requests = [SETTING.request(ITEM, agent, 0, [Message("user", "?")]) for agent in range(4)]
    assert [r.messages[0].role for r in requests] == ["user", "system", "user", "system"]
    assert [r.sampling.seed is None for r in requests] == [False, True, False, True]
    assert requests[0].sampling.seed != requests[2].sampling.seed


def test_later_rounds_go_first() -> None:
    first, second = (SETTING.request(ITEM, 0, round, [Message("user", "?")]) for round in (0, 1))
    assert second.priority < first.priority
