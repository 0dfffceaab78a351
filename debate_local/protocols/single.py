"""One agent alone, measured over several: every agent answers once, each answer is scored, score and cost are means.

With agents=3 it is the same three samples as round 0 of a debate among three, so its score has less noise than one
sample's and costs no further call.
Calls: agents (counted as one: the mean over the agents).
"""

from debate_local.core.opening import (
    OPENING_TEMPLATES,
    SAMPLES_TEMPLATES,
    Confidence,
    Opening,
    Shown,
    asking,
    check_evidence,
    check_opening,
    check_shown,
    independent,
)
from debate_local.core.protocol import protocol
from debate_local.core.samples import Samples
from debate_local.core.setting import Setting
from debate_local.core.transcript import Debate, Item, Transcript
from debate_local.core.voting import each


def _check(agents: int, evidence: str, evidence_parts: int | None, **_: object) -> None:
    if agents < 1:
        raise ValueError(f"protocol.agents must be at least 1, got {agents}")
    check_opening(evidence, evidence_parts)


def _suits(setting: Setting, evidence: Shown, convincing: Samples, shots: int | None, **_: object) -> None:
    check_evidence(setting, evidence)
    check_shown(setting, convincing, shots)


@protocol(
    calls=lambda agents, **_: agents,
    agents=lambda agents, **_: agents,
    templates={**OPENING_TEMPLATES, **SAMPLES_TEMPLATES},
    controls=False,
    check=_check,
    suits=_suits,
    samples=lambda convincing, **_: convincing,
)
def single(
    item: Item,
    setting: Setting,
    *,
    agents: int = 1,
    cot: bool = False,
    confidence: Confidence = "none",
    evidence: Shown = "none",
    evidence_parts: int | None = None,
    convincing: Samples = "none",
    shots: int | None = None,
) -> Debate:
    """agents: over how many independent answers the mean is taken.

    cot: asked to think step by step. confidence: asked how sure it is, too. evidence, evidence_parts: which of the
    item's evidence is shown, and in how many parts it is dealt out (null: everybody reads all). convincing, shots:
    which samples are put before it, as in round 0 of a debate that shows them. See core/opening.py.
    """
    opening = Opening(cot, evidence, evidence_parts, convincing, shots)
    turns = yield from independent(item, asking(setting, confidence), opening, agents)
    return Transcript(item.id, tuple(turns), each([turn.answer for turn in turns]))
