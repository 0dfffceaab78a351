"""What a setting adds to a debate: seeds, personas, and one careful reading of each reply."""

from dataclasses import replace

import pytest

from debate_local.core.chat import Completion, Message, Sampling, request_key
from debate_local.core.setting import Agent, Setting
from debate_local.core.transcript import Answer, Item
from debate_local.core.voting import majority
from debate_local.tasks.arithmetic import arithmetic
from tests.fakes import Sums

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


@pytest.mark.hazard("B09")
def test_failed_and_empty_replies_are_not_read() -> None:
    class Unread(Sums):
        def read(self, text: str, item: Item) -> Answer:
            raise AssertionError("it was read")

    setting = Setting(Unread())
    request = setting.request(ITEM, 0, 0, [Message("user", "?")])
    for completion, why in (
        (Completion(""), "empty reply"),
        (Completion(" \n", raw=" \n"), "empty reply"),
        (Completion.failure("out of memory"), "failed"),
    ):
        answer = setting.turn(ITEM, 0, 0, request, completion).answer
        assert answer.missing and answer.rule == why
        assert majority([answer, answer, Answer("7", "7", "read")]).answer.key == "7"


def test_the_cast_is_repeated_and_each_member_keeps_its_own_persona_and_sampling() -> None:
    requests = [SETTING.request(ITEM, agent, 0, [Message("user", "?")]) for agent in range(4)]
    assert [r.messages[0].role for r in requests] == ["user", "system", "user", "system"]
    assert [r.sampling.seed is None for r in requests] == [False, True, False, True]
    assert requests[0].sampling.seed != requests[2].sampling.seed


@pytest.mark.hazard("B03")
def test_agents_who_are_asked_the_same_draw_by_seeds_of_their_own() -> None:
    alike = Setting(arithmetic(), cast=(Agent(sampling=Sampling(temperature=0.7)),), seed=42)
    requests = [alike.request(ITEM, agent, 0, [Message("user", "?")]) for agent in range(3)]
    assert len({request.messages for request in requests}) == 1
    assert len({request.sampling.seed for request in requests}) == len({request_key(r, "") for r in requests}) == 3
    # Other rounds, items and runs draw anew; a second time it is the same.
    others = [
        alike.request(ITEM, 0, 1, [Message("user", "?")]),
        alike.request(replace(ITEM, id="2"), 0, 0, [Message("user", "?")]),
        replace(alike, seed=43).request(ITEM, 0, 0, [Message("user", "?")]),
    ]
    assert len({request.sampling.seed for request in [*requests, *others]}) == 6
    assert alike.request(ITEM, 0, 0, [Message("user", "?")]) == requests[0]


def test_later_rounds_go_first() -> None:
    first, second = (SETTING.request(ITEM, 0, round, [Message("user", "?")]) for round in (0, 1))
    assert second.priority < first.priority
