"""An agent's first prompt: evidence, the question, and what is asked for beside the answer. Knows nothing of peers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from .chat import Message
from .scheduler import Asking
from .setting import Setting
from .transcript import Evidence, Item, Turn

Confidence = Literal["none", "verbal"]
Shown = Literal["none", "all", "correct", "wrong", "mixed"]


@dataclass(frozen=True, slots=True)
class Opening:
    """What all agents' first prompts hold beside the question; with the defaults, nothing.

    cot: zero-shot chain of thought (Du et al. 2023 debate on top of it; the trigger is ours). evidence: which of the
    item's evidence is shown: all, what is marked correct or wrong, or as much of both (mixed), in turn. evidence_parts:
    None shows it to everybody; n deals it out, and agent i reads part i mod n.
    """

    cot: bool = False
    evidence: Shown = "none"
    evidence_parts: int | None = None

    def text(self, item: Item, setting: Setting, agent: int) -> str:
        """The first prompt of one agent."""
        text = setting.task.ask(item)
        if setting.asks_confidence and setting.confidence:
            text = f"{text} {setting.confidence.format}"
        if evidence := self.of(item, agent):
            shown = setting.render("evidence", evidence=evidence).removesuffix("\n")
            text = f"{shown}\n\n{text}"
        return f"{text}\n\n{setting.render('cot')}" if self.cot else text

    def of(self, item: Item, agent: int) -> tuple[Evidence, ...]:
        """The evidence that one agent is shown."""
        if self.evidence == "none":
            return ()
        correct, wrong = (tuple(piece for piece in item.evidence if piece.correct is kind) for kind in (True, False))
        mixed = tuple(piece for pair in zip(correct, wrong, strict=False) for piece in pair)
        shown = {"all": item.evidence, "correct": correct, "wrong": wrong, "mixed": mixed}[self.evidence]
        parts = self.evidence_parts or 1
        return shown[agent % parts :: parts]


def asking(setting: Setting, confidence: Confidence) -> Setting:
    """The setting, with every agent being asked how sure it is where that is wanted."""
    return setting.asking_confidence() if confidence == "verbal" else setting


def parts_among(evidence_parts: int | None, agents: int) -> int | None:
    """In how many parts evidence is dealt out: 0 means one part an agent."""
    return agents if evidence_parts == 0 else evidence_parts


def asked_alone(options: Mapping[str, Any], agents: int) -> dict[str, Any]:
    """Of a protocol's options those that `single` and `self_consistency` need to ask the same first prompts."""
    asked = {name: options[name] for name in ("cot", "confidence", "evidence")}
    return {**asked, "evidence_parts": parts_among(options["evidence_parts"], agents)}


def check_opening(evidence: str, evidence_parts: int | None, least_parts: int = 1) -> None:
    """Raise ValueError for evidence that cannot be shown so."""
    if evidence_parts is None:
        return
    if evidence_parts < least_parts:
        raise ValueError(f"protocol.evidence_parts must be at least {least_parts}, or null; got {evidence_parts}")
    if evidence == "none":
        raise ValueError(
            f"protocol.evidence_parts={evidence_parts} deals out evidence, but none is shown: set protocol.evidence to "
            f"one of {', '.join(get_args(Shown)[1:])}"
        )


def check_evidence(setting: Setting, evidence: Shown, **_: object) -> None:
    """Raise ValueError for a task that has no evidence of the kind that is wanted, on any item."""
    whole = Opening(evidence=evidence)
    if evidence != "none" and not any(whole.of(item, 0) for item in setting.task.items()):
        raise ValueError(f"protocol.evidence={evidence}: no item of task {setting.task.name!r} has such evidence")


def independent(item: Item, setting: Setting, opening: Opening, agents: int) -> Asking[list[Turn]]:
    """Round 0: everybody answers alone, in one batch."""
    texts = [opening.text(item, setting, agent) for agent in range(agents)]
    requests = [setting.request(item, agent, 0, [Message("user", texts[agent])]) for agent in range(agents)]
    completions = yield requests
    return [setting.turn(item, agent, 0, requests[agent], completions[agent]) for agent in range(agents)]


COT = "Think step by step: work the answer out before you state it."

EVIDENCE = """\
Evidence on the question below, each piece with its source:
{% for piece in evidence %}

[{{ loop.index }}] {{ piece.source }}{% if piece.source %}: {% endif %}{{ piece.text }}
{% endfor %}"""

# What a protocol with an Opening adds to its templates.
OPENING_TEMPLATES = {"cot": (COT, ""), "evidence": (EVIDENCE, "evidence")}
