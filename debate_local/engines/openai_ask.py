"""One request, seen through: tried, tried again, understood, or given up. Lives in one event loop.

`openai_servers` knows HTTP and whose turn it is, `openai_wire` the JSON; this file knows what an answer means.

Rule 1: one bad request is one failed completion. Only what would refuse every request is raised: servers that are
gone (EngineDead), and one that wants another key, model name, URL or option (ServerRefused).
Rule 2: what may pass (no whole answer, 408, 409, 429, 5xx) is tried again, later and elsewhere; nothing else is.
"""

import contextlib
import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from debate_local.core.chat import ChatRequest, Completion, EngineDead, opens_reasoning
from debate_local.engines import openai_wire as wire
from debate_local.engines.openai_servers import (
    GATEWAY,
    HOW_TO_START,
    Answer,
    Listing,
    NoAnswer,
    Server,
    ServerRefused,
    Servers,
    ServerUnreachable,
    check_url,
    only_model,
    proxy_hint,
)


@dataclass(frozen=True)
class Options:
    """The options of the `openai` engine, as given. Raises ValueError for values that cannot be."""

    base_urls: Sequence[str] = ("http://127.0.0.1:8000/v1",)
    model: str | None = None
    models: Mapping[str, str] = field(default_factory=dict)
    api_key_env: str = "OPENAI_API_KEY"
    concurrency: int = 64
    timeout: float = 600.0
    retries: int = 5
    extra_fields: wire.ExtraFields = "on"
    context_length: int | None = None

    def __post_init__(self) -> None:
        if not self.urls:
            raise ValueError("engine.base_urls is empty; it needs at least one URL, such as http://127.0.0.1:8000/v1")
        if not re.fullmatch(r"[A-Za-z_]\w*", self.api_key_env):
            # Not repeated: it may be the key itself.
            raise ValueError("engine.api_key_env must be the name of an environment variable, never the key")
        if self.extra_fields not in ("on", "off"):
            raise ValueError(f"engine.extra_fields must be on or off, got {self.extra_fields!r}")
        if "default" in self.models and self.model is not None:
            raise ValueError("engine.models has a 'default' and engine.model is given too; keep one of them")
        for name, least in (("concurrency", 1), ("retries", 0), ("context_length", 1)):
            if (value := getattr(self, name)) is not None and value < least:
                raise ValueError(f"engine.{name} must be at least {least}, got {value}")
        if not self.timeout > 0:
            raise ValueError(f"engine.timeout must be more than 0 seconds, got {self.timeout}")

    @cached_property
    def urls(self) -> tuple[str, ...]:
        """The base URLs, each once."""
        return tuple(dict.fromkeys(check_url(url) for url in self.base_urls))

    @cached_property
    def names(self) -> Mapping[str, str | None]:
        """Model name -> served name; None for the one that the servers list."""
        alone = {"default": self.model} if self.model is not None or not self.models else {}
        return {**alone, **self.models}


class _Transient(Exception):
    """A fault that may pass. wait: seconds that the server asked for."""

    def __init__(self, reason: str, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.wait = wait


class Asker:
    """Asks the servers of an engine. first_wait: seconds before the first retry, and of a server's first rest."""

    def __init__(self, options: Options, first_wait: float) -> None:
        self._options, self._first_wait = options, first_wait
        self._servers = Servers(
            options.urls, options.api_key_env, options.concurrency, options.timeout, first_rest=first_wait
        )
        self._only_model: str | None = None
        self._answered = False
        self._counts = True
        # By served name: the least merged shape of a conversation that its chat template may take.
        self._shapes: dict[str, int] = {}
        self._opened: dict[str, bool] = {}

    async def close(self) -> None:
        """Drop all connections."""
        await self._servers.close()

    # What the servers say of themselves

    async def model_listed(self) -> str:
        """The one model that the servers list. Raises ServerUnreachable, ServerRefused."""
        if self._only_model is None:
            listings = await self._servers.listings()
            self._require_key(listings)
            self._only_model = only_model(listings)
        return self._only_model

    async def context_listed(self) -> int | None:
        """The shortest context that is listed for a model of ours, in tokens; None when nobody says.

        Raises ServerRefused for a wrong key, and where the model's name is not known, what `model_listed` does.
        """
        served = {name or await self.model_listed() for name in self._options.names.values()}
        listings = await self._servers.listings()
        self._require_key(listings)
        lengths = [card.context_length for one in listings for card in one.cards if card.id in served]
        return min((length for length in lengths if length), default=None)

    async def count(self, conversation: wire.Conversation) -> int | None:
        """The tokens of the prompt by vLLM's /tokenize; None when there is no such thing. Raises as `model_listed`."""
        if not self._counts:
            return None
        served = next(iter(self._options.names.values())) or await self.model_listed()
        turns = [{"role": message.role, "content": message.content} for message in conversation.messages]
        for server in self._servers.all:
            with contextlib.suppress(NoAnswer):
                counted = await _tokenize(server, {"model": served, "messages": turns})
                if isinstance(count := counted.get("count"), int):
                    return count
                # Not asked again for each of a thousand items.
                self._counts = False
        return None

    # One request

    async def answer(self, request: ChatRequest, conversation: wire.Conversation, serial: int) -> Completion:
        """The completion of a request, after as many tries as it takes. Raises EngineDead, ServerRefused.

        serial: no two requests have the same; of equal priority the lower one is sent first.
        """
        from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_exponential, wait_random

        backoff = wait_exponential(self._first_wait, _LONGEST_WAIT) + wait_random(0, self._first_wait)
        trying = AsyncRetrying(
            retry=retry_if_exception_type(_Transient),
            stop=stop_after_attempt(self._options.retries + 1),
            wait=lambda state: max(backoff(state), _asked_wait(state)),
            reraise=True,
        )
        try:
            completion: Completion = await trying(self._attempt, request, conversation, serial)
        except _Transient as fault:
            return await self._given_up(fault)
        return completion

    async def _attempt(self, request: ChatRequest, conversation: wire.Conversation, serial: int) -> Completion:
        """One try at one server. Raises _Transient, ServerRefused."""
        async with self._servers.lease((request.priority, serial)) as server:
            served = self._options.names[request.model] or await self._model_listed_by_now(server)
            for shape, sent in wire.shapes(conversation, self._shapes.get(served, 0)):
                answer = await self._post(server, wire.body(request, served, sent, self._options.extra_fields))
                if answer.status == 200 and not answer.html:
                    # The next conversations need not be refused first.
                    self._shapes[served] = max(shape, self._shapes.get(served, 0))
                    return await self._completion(server, served, request, sent, answer)
                if not wire.refused_by_template(answer.status, self._servers.readable(answer)):
                    break
            return await self._refusal(server, served, answer, sent)

    async def _model_listed_by_now(self, server: Server) -> str:
        began = time.monotonic()
        try:
            return await self.model_listed()
        except ServerUnreachable as error:
            self._servers.failed(server, began)
            raise _Transient(str(error)) from None

    async def _post(self, server: Server, body: Mapping[str, Any]) -> Answer:
        """The answer of a server that is there, and not too busy. Raises _Transient."""
        began = time.monotonic()
        try:
            answer = await server.post("chat/completions", body)
        except NoAnswer as error:
            if error.timed_out:
                raise _Transient(
                    f"{server.url}: no answer within {self._options.timeout:g} s (engine.timeout)"
                ) from None
            self._servers.failed(server, began)
            raise _Transient(f"{server.url}: {error}") from None
        if answer.status == 200 and (inner := wire.inner_error(answer.text)):
            answer = Answer(inner, answer.text)
        if answer.status in GATEWAY:
            self._servers.failed(server, began)
        else:
            self._servers.answered(server)
        if answer.status >= 500 or answer.status in _BUSY:
            self._require_lasting(server, answer)
        return answer

    def _require_lasting(self, server: Server, answer: Answer) -> None:
        """Raise _Transient unless the answer would be the same again; some servers say 500 for a bad request."""
        said = self._servers.readable(answer)
        if wire.too_long(answer.status, said) or wire.refused_by_template(answer.status, said):
            return
        wait = min(answer.retry_after or 0.0, _LONGEST_ASKED_WAIT)
        if wait:
            self._servers.rest(server, wait)
        raise _Transient(f"{server.url} answered {answer.status}: {said}", wait)

    async def _completion(
        self, server: Server, served: str, request: ChatRequest, sent: wire.Conversation, answer: Answer
    ) -> Completion:
        try:
            reply = wire.parse(answer.text)
        except wire.BrokenOff as error:
            raise _Transient(f"{server.url}: {error}") from None
        except wire.Malformed as error:
            said = self._servers.readable(answer)
            return Completion.failure(f"{server.url}: {error}: {said}", notes=sent.notes)
        self._answered = True
        opened = reply.may_hide_a_thought() and not request.prefill
        opened = opened and await self._opens_thought(server, served, request.template_args)
        return wire.completion(request, sent, reply, opened)

    async def _opens_thought(self, server: Server, served: str, template_args: Mapping[str, Any]) -> bool:
        """True when the chat template itself opens the reasoning block; vLLM's /tokenize shows the prompt's end."""
        key = json.dumps([served, dict(template_args)], sort_keys=True)
        if key not in self._opened:
            probe: dict[str, Any] = {"model": served, "messages": [{"role": "user", "content": "hello"}]}
            probe |= {"return_token_strs": True, "chat_template_kwargs": dict(template_args)}
            try:
                pieces = (await _tokenize(server, probe)).get("token_strs")
            except NoAnswer as error:
                raise _Transient(f"{server.url}: {error}") from None
            tail = "".join(str(piece) for piece in pieces[-16:]) if isinstance(pieces, list) else ""
            self._opened[key] = opens_reasoning(tail)
        return self._opened[key]

    # Refusals

    async def _refusal(self, server: Server, served: str, answer: Answer, sent: wire.Conversation) -> Completion:
        """A refused request as a completion. Raises ServerRefused for what every request would meet, or _Transient."""
        status, said = answer.status, self._servers.readable(answer)
        shown = f"{server.url} answered {status}: {said}"
        if wire.too_long(status, said):
            marks = {"neutralised": sent.neutralised, "notes": sent.notes}
            return Completion.failure(f"the server has no room for it: {said}", "too_long", **marks)
        if status == 401 or (status == 403 and not self._answered):
            raise self._key_refused(server.url, f" ({said})")
        if (name := wire.refused_field(status, said)) and self._options.extra_fields == "on":
            raise ServerRefused(f"{shown}. It takes no {name}: set engine.extra_fields=off")
        if answer.html or wire.no_such_model(status, said):
            await self._require_listed(server, served, shown)
        return Completion.failure(shown, notes=sent.notes)

    async def _require_listed(self, server: Server, served: str, shown: str) -> None:
        """Raise ServerRefused unless this is a server of this model, which then had another reason; or _Transient."""
        listing = await server.list()
        if not listing.reached:
            raise _Transient(f"{server.url}: {listing.problem}")
        if not (listed := [card.id for card in listing.cards]):
            raise ServerRefused(
                f"{shown}. It lists no models either ({listing.problem}): is there an OpenAI-compatible API? Its base "
                "URL usually ends in /v1; set engine.base_urls"
            )
        if served not in listed:
            raise ServerRefused(
                f"{server.url} does not serve {served!r}; it lists: {', '.join(listed)}. Set engine.model"
            )

    def _require_key(self, listings: Sequence[Listing]) -> None:
        if refusing := [one.url for one in listings if one.key_refused]:
            raise self._key_refused(", ".join(refusing))

    def _key_refused(self, url: str, said: str = "") -> ServerRefused:
        name = self._options.api_key_env
        state = "holds another key than the server's" if os.environ.get(name) else "is not set"
        return ServerRefused(f"{url} refuses the key{said}. The environment variable {name} {state}")

    async def _given_up(self, fault: _Transient) -> Completion:
        """A request that used up its tries. Raises EngineDead when no server answers at all any more."""
        tries = self._options.retries + 1
        if await self._servers.any_alive():
            return Completion.failure(f"given up after {tries} tries: {fault}")
        raise EngineDead(
            f"no server answers: {fault} (after {tries} tries). {HOW_TO_START}; engine.retries sets how long to wait "
            f"for one.{proxy_hint()}"
        )


# Seconds: between tries, and the same when the server itself asks for more.
_LONGEST_WAIT = 60.0
_LONGEST_ASKED_WAIT = 120.0
_BUSY = (408, 409, 429)


def _asked_wait(state: Any) -> float:
    fault = state.outcome.exception()
    return fault.wait if isinstance(fault, _Transient) else 0.0


async def _tokenize(server: Server, body: Mapping[str, Any]) -> dict[str, Any]:
    """What vLLM's /tokenize says; empty where there is none. Raises NoAnswer."""
    answer = await server.post(f"{server.root}/tokenize", body)
    if answer.status == 200:
        with contextlib.suppress(ValueError):
            if isinstance(value := json.loads(answer.text), dict):
                return value
    return {}
