"""Self-consistency: independent samples and a vote, without debate. The honest baseline at equal cost.

The samples are round 0 of `debate`: the same prompts and seeds, so a sweep asks for them once. A tie goes to the
earliest sample. With more samples than members, the cast is repeated in order.
Calls: samples.
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
from debate_local.core.voting import majority


def _check(samples: int, evidence: str, evidence_parts: int | None, **_: object) -> None:
    if samples < 1:
        raise ValueError(f"protocol.samples must be at least 1, got {samples}")
    check_opening(evidence, evidence_parts)


def _suits(setting: Setting, evidence: Shown, convincing: Samples, shots: int | None, **_: object) -> None:
    check_evidence(setting, evidence)
    check_shown(setting, convincing, shots)


@protocol(
    calls=lambda samples, **_: samples,
    agents=lambda samples, **_: samples,
    templates={**OPENING_TEMPLATES, **SAMPLES_TEMPLATES},
    controls=False,
    check=_check,
    suits=_suits,
    samples=lambda convincing, **_: convincing,
)
def self_consistency(
    item: Item,
    setting: Setting,
    *,
    samples: int = 3,
    cot: bool = False,
    confidence: Confidence = "none",
    evidence: Shown = "none",
    evidence_parts: int | None = None,
    convincing: Samples = "none",
    shots: int | None = None,
) -> Debate:
    """samples: how many independent answers are voted on.

    cot: asked to think step by step. confidence: asked how sure it is, too. evidence, evidence_parts: which of the
    item's evidence is shown, and in how many parts it is dealt out (null: everybody reads all). convincing, shots:
    which samples are put before it, as in round 0 of a debate that shows them. See core/opening.py.
    """
    opening = Opening(cot, evidence, evidence_parts, convincing, shots)
    turns = yield from independent(item, asking(setting, confidence), opening, samples)
    return Transcript(item.id, tuple(turns), majority([turn.answer for turn in turns]))
