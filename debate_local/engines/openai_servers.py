"""The servers behind one `openai` engine: which is asked next, and what each lists. Knows HTTP, not chats.

Rule 1: the server with the fewest open requests is next. One that cannot be reached rests, each time longer, and then
proves itself with one request while all others wait: an outage costs a request at most one try.
Rule 2: the key is read from the environment when the first connection is made. It leaves this file in requests only.
"""

import asyncio
import contextlib
import heapq
import itertools
import json
import os
import re
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from debate_local.core.chat import EngineFailed

HOW_TO_START = (
    "Start one, for example `vllm serve MODEL --port 8000` (with a CPU build: `python -m "
    "vllm.entrypoints.openai.api_server --model MODEL --port 8000`), or correct engine.base_urls"
)


class ServerUnreachable(ValueError):
    """No server answers, and nothing has been asked yet: says which URLs were tried, and how to start one."""


class ServerRefused(EngineFailed):
    """The servers answer, but would refuse every request: another key, model name, URL or option is needed."""


class NoAnswer(Exception):
    """There was no whole HTTP answer: no connection, a connection that broke, or (timed_out) no answer in time."""

    def __init__(self, reason: str, timed_out: bool = False) -> None:
        super().__init__(reason)
        self.timed_out = timed_out


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole HTTP answer. retry_after: seconds that the server asks to be left alone."""

    status: int
    text: str
    retry_after: float | None = None

    @property
    def html(self) -> bool:
        """True for a web page: whoever answers here, it is no API."""
        return self.text.lstrip()[:1] == "<"


@dataclass(frozen=True, slots=True)
class Card:
    """A model that a server lists. context_length: in tokens, None when it does not say; base: no adapter."""

    id: str
    context_length: int | None
    base: bool


@dataclass(frozen=True, slots=True)
class Listing:
    """The models that a server lists, or why there is no list. reached: it answered at all; key_refused: with 401."""

    url: str
    cards: tuple[Card, ...] = ()
    problem: str = ""
    reached: bool = True
    key_refused: bool = False


class Server:
    """One base URL, its connections, and what is open there. load: open requests; failures: outages in a row."""

    def __init__(self, url: str, clients: Sequence[Any], timeout: float) -> None:
        self.url = url
        self.root = url.removesuffix("/v1")
        self.load = self.failures = 0
        self.rests_until = self.failed_at = 0.0
        self._clients = clients
        self._next = itertools.cycle(clients)
        # Long enough for a busy server, short enough for a person who waits.
        self._brief = min(timeout, 10.0)

    async def post(self, path: str, body: Mapping[str, Any]) -> Answer:
        """The answer, whatever its status. path: below the base URL, or a whole URL. Raises NoAnswer."""
        return await self._answer(next(self._next).post(path, cast_to=str, body=body))

    async def get(self, path: str) -> Answer:
        """The answer to a question that takes a moment only. Raises NoAnswer."""
        return await self._answer(next(self._next).get(path, cast_to=str, options={"timeout": self._brief}))

    async def _answer(self, call: Any) -> Answer:
        from openai import APIConnectionError, APIStatusError, APITimeoutError

        try:
            return Answer(200, await call)
        except APIStatusError as error:
            return Answer(error.status_code, error.response.text, _retry_after(error.response.headers))
        except APITimeoutError as error:
            if type(error.__cause__).__name__ == "ConnectTimeout":
                raise NoAnswer("no connection in time") from None
            raise NoAnswer("no answer in time", timed_out=True) from None
        except APIConnectionError as error:
            cause = error.__cause__ or error
            raise NoAnswer(f"{type(cause).__name__}: {cause}") from None

    async def list(self) -> Listing:
        """The models listed; never raises."""
        try:
            answer = await self.get("models")
        except NoAnswer as error:
            return Listing(self.url, problem=str(error), reached=False)
        cards = _cards(answer) if answer.status == 200 else []
        problem = "" if cards else f"{answer.status} with no list of models"
        return Listing(self.url, tuple(cards), problem, key_refused=answer.status == 401)

    async def alive(self) -> bool:
        """True when it answers anything at all but a gateway's excuse."""
        try:
            return (await self.get("models")).status not in GATEWAY
        except NoAnswer:
            return False

    async def close(self) -> None:
        """Drop the connections."""
        for client in self._clients:
            await client.close()


# A gateway says these on behalf of a server that is not there.
GATEWAY = (502, 503, 504)


class Servers:
    """All base URLs of an engine. Lives in one event loop.

    concurrency: open requests a URL. first_rest: seconds that a server rests after its first outage.
    """

    def __init__(
        self, urls: Sequence[str], key_env: str, concurrency: int, timeout: float, first_rest: float = 1.0
    ) -> None:
        self._key = os.environ.get(key_env, "")
        self._concurrency, self._first_rest = concurrency, first_rest
        self._waiting: list[tuple[Any, asyncio.Future[Server]]] = []
        self.all = [Server(url, _clients(url, self._key, concurrency, timeout), timeout) for url in urls]

    @contextlib.asynccontextmanager
    async def lease(self, turn: tuple[int, int]) -> AsyncIterator[Server]:
        """The next server, as soon as one has room. turn: the lowest is served first; no two are equal."""
        granted: asyncio.Future[Server] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (turn, granted))
        self._wake()
        try:
            yield await granted
        finally:
            if granted.done() and not granted.cancelled():
                granted.result().load -= 1
                self._wake()

    def failed(self, server: Server, began: float) -> None:
        """A request that began then did not get through. Requests that fall to one outage together count as one."""
        now = time.monotonic()
        if began >= server.failed_at:
            server.failures += 1
            self.rest(server, min(self._first_rest * 2 ** (server.failures - 1), _LONGEST_REST))
            server.failed_at = now

    def rest(self, server: Server, seconds: float) -> None:
        """Send nothing to a server for a while."""
        server.rests_until = max(server.rests_until, time.monotonic() + seconds)
        asyncio.get_running_loop().call_later(seconds + 0.001, self._wake)

    def answered(self, server: Server) -> None:
        """The server is there."""
        if server.failures:
            server.failures, server.rests_until = 0, 0.0
            self._wake()

    async def listings(self) -> list[Listing]:
        """What each server lists, in the order of the URLs."""
        return await asyncio.gather(*(server.list() for server in self.all))

    async def any_alive(self) -> bool:
        """True when at least one server answers."""
        return any(await asyncio.gather(*(server.alive() for server in self.all)))

    def readable(self, answer: Answer) -> str:
        """What an answer says, in a line, without the key."""
        said = "a web page (HTML)" if answer.html else _message(answer.text)
        # First, so that no cut leaves half of it.
        said = said.replace(self._key, "[key]") if self._key else said
        return said[:400] or "an empty answer"

    async def close(self) -> None:
        """Drop all connections."""
        for server in self.all:
            await server.close()

    def _wake(self) -> None:
        while self._waiting:
            _, granted = self._waiting[0]
            if not granted.done():
                if (server := self._free()) is None:
                    return
                server.load += 1
                granted.set_result(server)
            heapq.heappop(self._waiting)

    def _free(self) -> Server | None:
        now = time.monotonic()
        free = [s for s in self.all if now >= s.rests_until and s.load < (1 if s.failures else self._concurrency)]
        return min(free, key=lambda server: server.load, default=None)


_LONGEST_REST = 60.0


def only_model(listings: Sequence[Listing]) -> str:
    """The one model that the servers list, adapters aside. Raises ServerUnreachable, ServerRefused."""
    told = "; ".join(f"{one.url}: {one.problem}" for one in listings if one.problem)
    if not any(one.reached for one in listings):
        raise ServerUnreachable(f"no server answers ({told}). {HOW_TO_START}.{proxy_hint()}")
    names = list(dict.fromkeys(card.id for one in listings for card in one.cards if card.base))
    if not names:
        raise ServerRefused(f"no server lists its models ({told}). Set engine.model; a base URL usually ends in /v1")
    if len(names) > 1:
        raise ServerRefused(f"the servers list several models: {', '.join(names)}. Choose one with engine.model")
    return names[0]


def check_url(url: str) -> str:
    """The base URL without a slash at its end. Raises ValueError, which never repeats a password."""
    parts = urlsplit(url)
    if parts.username or parts.password or parts.query:
        raise ValueError(
            "a URL of engine.base_urls holds a user, a password or a query; keys come from the environment variable "
            "that engine.api_key_env names"
        )
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"engine.base_urls: {url!r} is no URL; one looks like http://127.0.0.1:8000/v1")
    return url.rstrip("/")


def proxy_hint() -> str:
    """A hint when a proxy may stand between us and a server that is near."""
    proxies = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
    names = [name for name in proxies if os.environ.get(name) or os.environ.get(name.lower())]
    return f" ({', '.join(names)} is set: name the server in NO_PROXY if it is not behind the proxy.)" if names else ""


def _clients(url: str, key: str, concurrency: int, timeout: float) -> list[Any]:
    """Clients that share the work: each looks through all its connections at every request, so one for all is slow."""
    import openai

    # Kept for less time than uvicorn keeps them (5 s): a connection that both ends drop at once looks like an outage.
    limits = type(openai.DEFAULT_CONNECTION_LIMITS)(max_keepalive_connections=concurrency + 2, keepalive_expiry=3.0)
    return [
        openai.AsyncOpenAI(
            base_url=url,
            # The client wants one; servers that want none ignore it.
            api_key=key or "none",
            max_retries=0,
            timeout=openai.Timeout(timeout, connect=min(timeout, 10.0)),
            http_client=openai.DefaultAsyncHttpxClient(limits=limits),
        )
        for _ in range(0, concurrency, _CONNECTIONS_A_CLIENT)
    ]


_CONNECTIONS_A_CLIENT = 32


def _retry_after(headers: Any) -> float | None:
    with contextlib.suppress(ValueError):
        return max(0.0, float(headers.get("retry-after", "")))
    return None


def _cards(answer: Answer) -> list[Card]:
    try:
        data = json.loads(answer.text)["data"]
        return [
            Card(str(entry["id"]), next(_lengths(entry), None), entry.get("parent") is None)
            for entry in data
            if isinstance(entry, dict) and "id" in entry
        ]
    except (ValueError, KeyError, TypeError):
        return []


def _lengths(entry: Mapping[str, Any]) -> Iterator[int]:
    """vLLM and SGLang say max_model_len; some others have their own word."""
    for name in ("max_model_len", "context_length", "max_context_length"):
        if isinstance(value := entry.get(name), int) and value > 0:
            yield value


def _message(text: str) -> str:
    """The message in an error's JSON, in any of the usual places; else the text."""
    try:
        body = json.loads(text)
    except ValueError:
        body = text
    for name in ("error", "message", "detail"):
        if isinstance(body, dict) and body.get(name):
            body = body[name]
    said = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)
    return re.sub(r"\s+", " ", said).strip()
