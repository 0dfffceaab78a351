"""Starts a dead engine again, a bounded number of times, and asks it everything that was outstanding.

Knows requests by their ids only. The bound is on restarts without any completion in between, so that a long night may
see many deaths, and an engine that only dies is given up.
"""

import contextlib
from collections.abc import Callable, Sequence

from debate_local.core.chat import ChatRequest, Completion, Engine, EngineDead
from debate_local.engines.around import Around


class RestartingEngine(Around):
    """The engine that `make` makes, made again when it dies.

    max_restarts: how many times in a row, without a completion in between. on_restart is told each time why.
    Raises EngineDead, with the engine's last words, when it is given up.
    """

    def __init__(
        self, make: Callable[[], Engine], max_restarts: int = 2, on_restart: Callable[[str], None] | None = None
    ) -> None:
        if max_restarts < 0:
            raise ValueError(f"max_restarts must be at least 0, got {max_restarts}")
        super().__init__(make())
        self._make, self._max_restarts = make, max_restarts
        self._on_restart = on_restart or (lambda reason: None)
        self._outstanding: dict[str, ChatRequest] = {}
        self._restarts = 0

    def submit(self, requests: Sequence[ChatRequest]) -> None:
        """Submit, to a new engine when this one is dead."""
        self._outstanding.update((request.id, request) for request in requests)
        try:
            self._engine.submit(requests)
        except EngineDead as death:
            self._restart(death)

    def poll(self, timeout: float) -> list[tuple[str, Completion]]:
        """What has finished; nothing when the engine died meanwhile and was started again."""
        try:
            finished = self._engine.poll(timeout)
        except EngineDead as death:
            self._restart(death)
            return []
        for id, _ in finished:
            self._outstanding.pop(id, None)
        if finished:
            self._restarts = 0
        return finished

    def cancel(self, ids: Sequence[str]) -> None:
        """Forget requests; a dead engine has forgotten them already."""
        for id in ids:
            self._outstanding.pop(id, None)
        with contextlib.suppress(EngineDead):
            self._engine.cancel(ids)

    def close(self) -> None:
        """Close the engine that is there; works at any time, more than once."""
        self._outstanding.clear()
        with contextlib.suppress(EngineDead):
            self._engine.close()

    def _restart(self, death: EngineDead) -> None:
        """Put a new engine in the dead one's place and submit all that is outstanding, until one of them lives."""
        while True:
            if self._restarts >= self._max_restarts:
                raise EngineDead(
                    f"the engine died and was given up after {self._restarts} restarts without a completion in "
                    f"between: {death}"
                ) from death
            self._restarts += 1
            self._on_restart(str(death))
            # What a dead engine still says when it is closed helps nobody; its death is the news.
            with contextlib.suppress(Exception):
                self._engine.close()
            try:
                self._engine = self._make()
                if self._outstanding:
                    self._engine.submit(list(self._outstanding.values()))
                return
            except EngineDead as again:
                death = again
