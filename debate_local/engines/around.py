"""An engine around another one: what is known of it without asking is what is known of the other."""

from collections.abc import Mapping, Sequence
from typing import Any

from debate_local.core.chat import Engine, Limits, Message


class Around:
    """The part of an engine that it leaves to the one that it stands around."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def identity(self) -> Mapping[str, Mapping[str, Any]]:
        return self._engine.identity

    @property
    def limits(self) -> Limits:
        return self._engine.limits

    def count_tokens(self, messages: Sequence[Message]) -> int:
        return self._engine.count_tokens(messages)
