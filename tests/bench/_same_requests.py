"""The requests that two engines, or two ways to use one, are timed on."""

from typing import Any

from debate_local.core.chat import ChatRequest, Engine, Message, Sampling
from tests.bench.harness import in_pairs

CONVERSATIONS, TOKENS = 64, 48

REQUESTS = [
    ChatRequest(
        str(number),
        "default",
        (
            Message("system", "You are a story teller who never stops early."),
            Message("user", f"Write a very long story about {number} dragons and their lighthouse."),
        ),
        Sampling(temperature=1.0, seed=number, max_tokens=TOKENS),
    )
    for number in range(CONVERSATIONS)
]


class Asked:
    """The first `count` requests, put to an engine `at_once` at a time. generated: tokens, run by run."""

    def __init__(self, engine: Engine, at_once: int = CONVERSATIONS, count: int = CONVERSATIONS) -> None:
        self._engine, self._at_once, self._requests = engine, at_once, REQUESTS[:count]
        self.generated: list[int] = []

    def __call__(self) -> None:
        """Ask, and wait for every reply."""
        generated = 0
        for first in range(0, len(self._requests), self._at_once):
            batch = self._requests[first : first + self._at_once]
            waiting = {request.id for request in batch}
            self._engine.submit(batch)
            while waiting:
                for id, completion in self._engine.poll(5.0):
                    assert not completion.error, completion.error
                    waiting.remove(id)
                    generated += completion.generated_tokens
        self.generated.append(generated)


def per_token(a: Asked, b: Asked, pairs: int) -> dict[str, Any]:
    """`in_pairs`, and the ratios for one generated token: replies differ in length, if only by rounding."""
    measured = in_pairs(a, b, pairs)
    # The first run of each was not measured.
    counts = {"a": a.generated[1:], "b": b.generated[1:]}
    paces = {
        name: [seconds / tokens for seconds, tokens in zip(measured["seconds"][name], counts[name], strict=True)]
        for name in counts
    }
    ratios = [b / a for a, b in zip(paces["a"], paces["b"], strict=True)]
    return {"generated_tokens": counts, "ratios_per_generated_token": ratios, **measured}
