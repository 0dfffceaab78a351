"""What protocol tests share: sums with evidence, a reader of confidences, settings, and debates held at once."""

import importlib
import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any

from debate_local.core.chat import ChatRequest, Completion
from debate_local.core.confidence import ConfidenceReader
from debate_local.core.decisions import deciding
from debate_local.core.protocol import facts_of
from debate_local.core.samples import Kind, Sample
from debate_local.core.scheduler import ask_in_turn
from debate_local.core.setting import Agent, Setting
from debate_local.core.task import Task
from debate_local.core.transcript import Answer, Debate, Evidence, Item, Transcript
from tests.fakes import Sums


class Known(Sums):
    """Sums on which there is evidence, right and wrong, and of which 100 is the tempting wrong answer."""

    def items(self) -> Sequence[Item]:
        return [
            Item(
                one.id,
                one.question,
                one.target,
                trap=("100",),
                explanation=f"Count on from {one.question[8:].split()[0]}.",
                evidence=(
                    Evidence("e1", "a pocket calculator", f"{one.question[8:-1]} is {one.target}.", True),
                    Evidence("e2", "a rumour", f"{one.question[8:-1]} is 100.", False),
                    Evidence("e3", "", "Sums of whole numbers are whole."),
                ),
            )
            for one in super().items()
        ]


def read_confidence(text: str) -> Answer:
    """The last `Confidence: 0.8`."""
    found = list(re.finditer(r"Confidence: ([\d.]+)", text))
    if not found or not 0 <= float(found[-1][1]) <= 1:
        return Answer.none("no confidence")
    return Answer(found[-1][1], found[-1][1], "confidence", found[-1].span(1))


CONFIDENCE = ConfidenceReader("Then say how sure you are: `Confidence: <0 to 1>`.", read_confidence)


def function(name: str) -> Callable[..., Debate]:
    """The protocol of that name."""
    found: Callable[..., Debate] = getattr(importlib.import_module(f"debate_local.protocols.{name}"), name)
    return found


def defaults(protocol: Callable[..., Debate], **changed: Any) -> dict[str, Any]:
    """All options of a protocol, some of them changed, as `plan` gives them."""
    parameters = inspect.signature(protocol).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY} | changed


def setting_for(
    protocol: Callable[..., Debate], cast: Sequence[Agent] = (Agent(),), seed: int = 0, task: Task | None = None
) -> Setting:
    """A setting with the protocol's own wording."""
    templates = facts_of(protocol).checked_templates({})
    samples = samples_of([member.model for member in cast])
    return Setting(task or Known(), cast, seed, templates, confidence=CONFIDENCE, samples=samples)


def samples_of(models: Sequence[str], count: int = 4) -> list[Sample]:
    """So many samples of each kind and model: products, of which no test asks."""
    kinds: tuple[Kind, ...] = ("convincing", "random")
    return [
        Sample(
            kind,
            model,
            f"{kind}-{model}-{n}",
            f"What is {n} x {factor}?",
            str(n * factor),
            f"It is {n} times {factor}.",
        )
        for kind, start in zip(kinds, (2, 6), strict=True)
        for factor, model in enumerate(dict.fromkeys(models), 11)
        for n in range(start, start + count)
    ]


def hold(
    protocol: Callable[..., Debate],
    answer: Callable[[ChatRequest], Completion],
    cast: Sequence[Agent] = (Agent(),),
    decision: str | None = None,
    seed: int = 0,
    task: Task | None = None,
    **options: Any,
) -> Transcript:
    """One debate about the task's first item, each request answered by a function of it."""
    whole = deciding(protocol, decision)
    setting = setting_for(whole, cast, seed, task)
    debate = whole(setting.task.items()[0], setting, **options)
    return ask_in_turn(debate, lambda requests: [answer(request) for request in requests])


def refusal(protocol: Callable[..., Debate], setting: Setting | None = None, **changed: Any) -> str:
    """What a protocol's checks say of these options; "" when they are fine."""
    facts, options = facts_of(protocol), defaults(protocol, **changed)
    try:
        if facts.check is not None:
            facts.check(**options)
        if facts.suits is not None:
            facts.suits(setting or setting_for(protocol), **options)
    except ValueError as error:
        return str(error)
    return ""
