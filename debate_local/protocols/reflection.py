"""Reflection: an agent criticises its own answer and then revises it, alone, in one conversation.

Critique and revision are one reply. It is told apart from `debate` with one agent, who is asked to verify and restate
its answer (the reflection baseline of Du et al.), and from `self_refine`, where the feedback is a call of its own. With
several agents, each reflects alone, and the majority of their last answers decides.
Round 0 is `single`'s: the same prompts and seeds. Calls: agents x rounds.
"""

from debate_local.core.conversation import Conversation
from debate_local.core.opening import (
    OPENING_TEMPLATES,
    Confidence,
    Opening,
    Shown,
    asking,
    check_evidence,
    check_opening,
)
from debate_local.core.protocol import protocol
from debate_local.core.setting import Setting
from debate_local.core.transcript import Debate, Item, Transcript, Turn
from debate_local.core.voting import majority

REFLECT = """\
Look at your last answer as a strict examiner would. First name every mistake, gap or doubtful step that you find in \
it, or say that you find none. Then give your answer again, corrected where it needs to be. {{ answer_format }}"""


def _check(agents: int, rounds: int, evidence: str, evidence_parts: int | None, **_: object) -> None:
    if agents < 1:
        raise ValueError(f"protocol.agents must be at least 1, got {agents}")
    if rounds < 1:
        raise ValueError(f"protocol.rounds must be at least 1 (round 0 is the first answer), got {rounds}")
    check_opening(evidence, evidence_parts)


@protocol(
    calls=lambda agents, rounds, **_: agents * rounds,
    agents=lambda agents, **_: agents,
    templates={"reflect": (REFLECT, "question"), **OPENING_TEMPLATES},
    check=_check,
    suits=check_evidence,
    alone=lambda agents, rounds, **asked: asked,
    reflect=lambda **_: None,
)
def reflection(
    item: Item,
    setting: Setting,
    *,
    agents: int = 1,
    rounds: int = 2,
    cot: bool = False,
    confidence: Confidence = "none",
    evidence: Shown = "none",
    evidence_parts: int | None = None,
) -> Debate:
    """agents: how many reflect, each alone. rounds: how often each speaks: one answer, then reflections.

    cot: asked to think step by step. confidence: asked how sure it is, too. evidence, evidence_parts: which of the
    item's evidence is shown, and in how many parts it is dealt out (null: everybody reads all). See core/opening.py.
    """
    setting, opening = asking(setting, confidence), Opening(cot, evidence, evidence_parts)
    question = setting.task.ask(item)
    own = [Conversation(opening.text(item, setting, agent)) for agent in range(agents)]
    turns: list[Turn] = []
    for round in range(rounds):
        if round:
            for conversation in own:
                conversation.told(setting.render("reflect", question=question))
        requests = [setting.request(item, agent, round, own[agent].messages) for agent in range(agents)]
        completions = yield requests
        for agent in range(agents):
            turns.append(setting.turn(item, agent, round, requests[agent], completions[agent]))
            own[agent].said(completions[agent].text)
    return Transcript(item.id, tuple(turns), majority([turn.answer for turn in turns[-agents:]]))
