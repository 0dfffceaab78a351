"""One agent alone, measured over several: every agent answers once, each answer is scored, score and cost are means.

With agents=3 it is the same three samples as round 0 of a debate among three, so its score has less noise than one
sample's and costs no further call.
Calls: agents (counted as one: the mean over the agents).
"""

from debate_local.core.chat import Message
from debate_local.core.protocol import protocol
from debate_local.core.setting import Setting
from debate_local.core.transcript import Debate, Item, Transcript
from debate_local.core.voting import each


def _check(agents: int, **_: object) -> None:
    if agents < 1:
        raise ValueError(f"protocol.agents must be at least 1, got {agents}")


@protocol(calls=lambda agents, **_: agents, agents=lambda agents, **_: agents, controls=False, check=_check)
def single(item: Item, setting: Setting, *, agents: int = 1) -> Debate:
    """agents: over how many independent answers the mean is taken."""
    messages = [Message("user", setting.task.ask(item))]
    requests = [setting.request(item, agent, 0, messages) for agent in range(agents)]
    completions = yield requests
    turns = tuple(setting.turn(item, agent, 0, requests[agent], completions[agent]) for agent in range(agents))
    return Transcript(item.id, turns, each([turn.answer for turn in turns]))
