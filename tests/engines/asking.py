"""Requests to an engine that runs a model in this process, and what comes back."""

from collections.abc import Mapping, Sequence
from typing import Any

from debate_local.core.chat import ChatRequest, Completion, Engine, Message, Sampling

STORY = "Write a very long story about a dragon and a lighthouse keeper."


def asking(id: str, text: str = STORY, *, model: str = "default", **fields: Any) -> ChatRequest:
    """A request; sampling fields (temperature, seed, max_tokens, stop) may be given directly."""
    sampling = Sampling(**{"max_tokens": 16, **{n: fields.pop(n) for n in list(fields) if n in Sampling.__slots__}})
    return ChatRequest(id, model, (Message("user", text),), sampling, **fields)


def answers(engine: Engine, requests: Sequence[ChatRequest]) -> dict[str, Completion]:
    """All completions, by id; each id comes back once."""
    engine.submit(requests)
    found: dict[str, Completion] = {}
    while len(found) < len(requests):
        for name, completion in engine.poll(5.0):
            assert name not in found
            found[name] = completion
    assert engine.poll(0.0) == []
    return found


def texts(completions: Mapping[str, Completion]) -> dict[str, str]:
    return {name: completion.text for name, completion in completions.items()}
