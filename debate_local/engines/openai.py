"""Any OpenAI-compatible server, or several that serve the same: vllm serve, SGLang, llama.cpp and others.

The doorway between the scheduler's thread and the event loop in which `openai_ask` asks. Refuses to know debates.

Rule: what this file hands out it hands out once: a completion that comes after its request was cancelled is dropped.

Start vLLM with --reasoning-parser for models that think. Without it a thought that was cut off is still known for one,
by vLLM's /tokenize, when the chat template opens it; with other servers it would pass for a reply.
"""

import asyncio
import itertools
import math
import queue
import threading
import time
from collections.abc import Coroutine, Mapping, Sequence
from functools import cached_property
from importlib.metadata import version
from typing import Any, TypeVar

from debate_local.core.chat import ChatRequest, Completion, Engine, EngineDead, Limits, Message
from debate_local.engines.openai_ask import Asker, Options
from debate_local.engines.openai_servers import ServerRefused, ServerUnreachable
from debate_local.engines.openai_wire import Conversation, ExtraFields, neutralised, unsendable, unstated

__all__ = ["OpenAIEngine", "Options", "ServerRefused", "ServerUnreachable", "openai"]

T = TypeVar("T")


def openai(
    base_urls: Sequence[str] = ("http://127.0.0.1:8000/v1",),
    model: str | None = None,
    models: dict[str, str] = {},  # noqa: B006  never changed
    api_key_env: str = "OPENAI_API_KEY",
    concurrency: int = 64,
    timeout: float = 600.0,
    retries: int = 5,
    extra_fields: ExtraFields = "on",
    context_length: int | None = None,
) -> Engine:
    """A server that speaks OpenAI's chat API; several that serve the same model share the work.

    model: the name it is served under; null: the one that the servers list. models: further ones, name -> served name.
    api_key_env: the environment variable that holds the key, if one is needed. concurrency: open requests a URL.
    timeout: seconds for one answer. retries: after the first try; 5 wait half a minute in all, 8 four minutes.
    extra_fields: off leaves out what OpenAI's API lacks (top_k, min_p, repetition_penalty, template arguments,
    prefill). context_length: in tokens; null: what the server says. Raises ValueError; ServerUnreachable where the
    server must be asked for its model.
    """
    return OpenAIEngine(Options(**locals()))


class OpenAIEngine:
    """An engine (core.chat.Engine) in front of servers. One thread at a time may use it.

    first_wait: seconds before the first retry, and of a server's first rest; each next one is twice as long.
    """

    def __init__(self, options: Options, *, first_wait: float = 1.0) -> None:
        self._options, self._first_wait = options, first_wait
        self._serials = itertools.count()
        self._outstanding: dict[str, int] = {}
        self._ready: list[tuple[str, Completion]] = []
        self._closed = False
        # What the loop's thread leaves for this one. None wakes it up.
        self._finished: queue.SimpleQueue[tuple[str, int, Completion] | None] = queue.SimpleQueue()
        self._end: EngineDead | ServerRefused | None = None
        # The loop's own.
        self._tasks: dict[int, asyncio.Task[None]] = {}

    # What is known without a reply

    @cached_property
    def identity(self) -> Mapping[str, Mapping[str, Any]]:
        """Model name -> what determines its replies. Which of several servers answers is not part of it.

        Raises ServerUnreachable, ServerRefused when the servers must be asked for their one model.
        """
        extra = self._options.extra_fields
        return {
            name: {
                "kind": "openai",
                "model": served or self._wait_for(self._asker.model_listed()),
                "extra_fields": extra,
            }
            for name, served in self._options.names.items()
        }

    @cached_property
    def limits(self) -> Limits:
        """The context is the option's, or the shortest that the servers list; a server that is down lists none."""
        extra = self._options.extra_fields == "on"
        return Limits(
            self._options.context_length or self._wait_for(self._asker.context_listed()),
            tuple(self._options.names),
            seed=True,
            logprobs=True,
            prefill=extra,
            schema=True,
            priority=True,
        )

    @property
    def facts(self) -> Mapping[str, Any]:
        """For run.json and logs: the client's version, the servers, the speed settings."""
        return {
            "engine": "openai",
            "versions": {"openai": version("openai")},
            "servers": list(self._options.urls),
            "speed": {"concurrency": self._options.concurrency},
        }

    def count_tokens(self, messages: Sequence[Message]) -> int:
        """The length of the prompt of these messages, by vLLM's /tokenize with the first model's template.

        Other servers have no such thing; then an estimate for English: 1.5 tokens a word and 5 a message.
        """
        counted = self._wait_for(self._asker.count(neutralised(messages))) if messages else 0
        if counted is not None:
            return counted
        return sum(math.ceil(1.5 * len(message.content.split())) + 5 for message in messages)

    # Requests

    def submit(self, requests: Sequence[ChatRequest]) -> None:
        """Hand requests over; what cannot be sent comes back from `poll`. Raises EngineDead, ServerRefused."""
        self._require_open()
        _ = self._asker
        to_send = []
        for request in requests:
            if (problem := self.refusal(request)) is not None:
                self._ready.append((request.id, Completion.failure(problem)))
                continue
            serial = self._outstanding[request.id] = next(self._serials)
            to_send.append((serial, request, neutralised(request.messages)))
        self._loop.call_soon_threadsafe(self._begin, to_send)

    def poll(self, timeout: float) -> list[tuple[str, Completion]]:
        """Whatever has finished, waiting at most `timeout` seconds for the first. Raises EngineDead, ServerRefused."""
        done, self._ready = self._ready, []
        deadline = time.monotonic() + timeout
        while self._outstanding:
            # All that is there at once; waiting only when nothing is.
            left = 0.0 if done or self._end else max(0.0, deadline - time.monotonic())
            try:
                finished = self._finished.get(left > 0, left or None)
            except queue.Empty:
                break
            if finished is not None and self._outstanding.get(finished[0]) == finished[1]:
                del self._outstanding[finished[0]]
                done.append((finished[0], finished[2]))
        if not done:
            self._require_open()
        return done

    def cancel(self, ids: Sequence[str]) -> None:
        """Forget requests; unknown ids are ignored."""
        gone = set(ids)
        self._ready = [(name, completion) for name, completion in self._ready if name not in gone]
        serials = [self._outstanding.pop(name) for name in gone if name in self._outstanding]
        if serials and not self._closed:
            self._loop.call_soon_threadsafe(self._drop, serials)

    def close(self) -> None:
        """Drop everything outstanding and end the thread. Twice is fine."""
        self._closed = True
        self._outstanding.clear()
        self._ready.clear()
        if loop := self.__dict__.pop("_loop", None):
            asyncio.run_coroutine_threadsafe(self._stop(), loop).result()
            loop.call_soon_threadsafe(loop.stop)

    def _require_open(self) -> None:
        if self._closed:
            raise EngineDead("this engine is closed; make a new one")
        if self._end is not None:
            # A fresh one: what the loop's thread raised drags its own history along.
            raise type(self._end)(str(self._end))

    def refusal(self, request: ChatRequest) -> str | None:
        """Why a request would come back unsent, or None; told without asking a server."""
        names = self._options.names
        if request.model not in names:
            return f"this engine has no model {request.model!r}; its models: {', '.join(names)}"
        return unsendable(request, self._options.extra_fields)

    def unstated(self, request: ChatRequest) -> str | None:
        """What of a request the servers would not be told, or None."""
        return unstated(request, self._options.extra_fields)

    # The loop and its thread

    @cached_property
    def _loop(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.new_event_loop()

        def run() -> None:
            loop.run_forever()
            loop.close()

        threading.Thread(target=run, name="debate-local-openai", daemon=True).start()
        return loop

    @cached_property
    def _asker(self) -> Asker:
        return Asker(self._options, self._first_wait)

    def _wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _begin(self, to_send: Sequence[tuple[int, ChatRequest, Conversation]]) -> None:
        # The first to ask is the first served, so the order counts from the start.
        for serial, request, conversation in sorted(to_send, key=lambda one: (one[1].priority, one[0])):
            self._tasks[serial] = asyncio.create_task(self._see_through(serial, request, conversation))

    async def _see_through(self, serial: int, request: ChatRequest, conversation: Conversation) -> None:
        """Exactly one completion for a request, or the end of the engine, unless it is cancelled."""
        try:
            completion = await self._asker.answer(request, conversation, serial)
        except (EngineDead, ServerRefused) as end:
            self._end = self._end or end
            self._drop([other for other in self._tasks if other != serial])
            self._finished.put(None)
        except Exception as error:
            # A text may not be encodable, and a server may send anything: that is one request's failure.
            failure = Completion.failure(f"it could not be sent or read: {type(error).__name__}: {error}")
            self._finished.put((request.id, serial, failure))
        else:
            self._finished.put((request.id, serial, completion))
        finally:
            self._tasks.pop(serial, None)

    def _drop(self, serials: Sequence[int]) -> None:
        for serial in serials:
            if task := self._tasks.get(serial):
                task.cancel()

    async def _stop(self) -> None:
        tasks = list(self._tasks.values())
        self._drop(list(self._tasks))
        await asyncio.gather(*tasks, return_exceptions=True)
        if asker := self.__dict__.pop("_asker", None):
            await asker.close()
