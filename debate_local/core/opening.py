"""An agent's first prompt: samples, evidence, the question, and what is asked for beside the answer.

Knows nothing of what peers say.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from .chat import Message
from .samples import Samples, check_samples, shown_to
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
    None shows it to everybody; n deals it out, and agent i reads part i mod n. samples, shots: which samples are put
    before it, and how many of each other member, None for all (Chen et al. 2024: convincing, 4; see core/samples.py).
    """

    cot: bool = False
    evidence: Shown = "none"
    evidence_parts: int | None = None
    samples: Samples = "none"
    shots: int | None = None

    def text(self, item: Item, setting: Setting, agent: int) -> str:
        """The first prompt of one agent."""
        text = setting.task.ask(item)
        if setting.asks_confidence and setting.confidence:
            text = f"{text} {setting.confidence.format}"
        text = "\n\n".join([*self.before(item, setting, agent), text])
        return f"{text}\n\n{setting.render('cot')}" if self.cot else text

    def before(self, item: Item, setting: Setting, agent: int) -> list[str]:
        """What stands before the question, in parts."""
        parts = []
        if self.samples != "none":
            samples = shown_to(agent, setting.models, setting.samples, self.samples, self.shots)
            parts.append(setting.render("samples", samples=samples, kind=self.samples).removesuffix("\n"))
        if evidence := self.of(item, agent):
            parts.append(setting.render("evidence", evidence=evidence).removesuffix("\n"))
        return parts

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
    asked["evidence_parts"] = parts_among(options["evidence_parts"], agents)
    return {**asked, **samples_alone(options)}


def samples_alone(options: Mapping[str, Any]) -> dict[str, Any]:
    """The samples that a protocol shows, in the options of `single` and `self_consistency`."""
    kind = options.get("samples", "none")
    return {} if kind == "none" else {"convincing": kind, "shots": options["shots"]}


def zero_shot(options: Mapping[str, Any]) -> dict[str, Any] | None:
    """The options of `single` that are zero-shot chain of thought, where round 0 shows samples and so is not."""
    return None if options["samples"] == "none" else {"cot": options["cot"]}


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


def check_shown(setting: Setting, samples: Samples, shots: int | None) -> None:
    """Raise ValueError where there are too few samples to show."""
    check_samples(setting.models, setting.samples, samples, shots)


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

SAMPLES = """\
Before the question that you are to answer, here are other questions, each with its right answer and a person's \
explanation of it.{% if kind == "convincing" %} Each of these explanations has convinced one of the agents that you \
talk to, who had answered wrongly before.{% endif %}

{% for sample in samples %}

Sample {{ loop.index }}
Question: {{ sample.question }}
Explanation: {{ sample.explanation }}
Right answer: {{ sample.answer }}
{% endfor %}

Now the question that you are to answer."""

# What a protocol with an Opening adds to its templates; one that shows samples adds those below as well.
OPENING_TEMPLATES = {"cot": (COT, ""), "evidence": (EVIDENCE, "evidence")}
SAMPLES_TEMPLATES = {"samples": (SAMPLES, "samples kind")}
