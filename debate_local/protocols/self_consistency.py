"""Self-consistency: independent samples and a vote, without debate. The honest baseline at equal cost.

The samples are round 0 of `debate`: the same prompts and seeds, so a sweep asks for them once. A tie goes to the
earliest sample. With more samples than members, the cast is repeated in order.
Calls: samples.
"""

from debate_local.core.chat import Message
from debate_local.core.protocol import protocol
from debate_local.core.setting import Setting
from debate_local.core.transcript import Debate, Item, Transcript
from debate_local.core.voting import majority


def _check(samples: int, **_: object) -> None:
    if samples < 1:
        raise ValueError(f"protocol.samples must be at least 1, got {samples}")


@protocol(calls=lambda samples, **_: samples, agents=lambda samples, **_: samples, controls=False, check=_check)
def self_consistency(item: Item, setting: Setting, *, samples: int = 3) -> Debate:
    """samples: how many independent answers are voted on."""
    messages = [Message("user", setting.task.ask(item))]
    requests = [setting.request(item, agent, 0, messages) for agent in range(samples)]
    completions = yield requests
    turns = tuple(setting.turn(item, agent, 0, requests[agent], completions[agent]) for agent in range(samples))
    return Transcript(item.id, turns, majority([turn.answer for turn in turns]))
