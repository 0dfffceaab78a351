"""Small servers on 127.0.0.1 that speak OpenAI's chat API, or only nearly. Each test says how its server misbehaves."""

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Reply:
    """What a server sends. body: JSON, or bytes as they are. cut: the connection is dropped after so many bytes.

    wait_for: sent only when this is set. tell_length: False: no Content-Length, so the body ends with the connection.
    """

    body: Any = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: int | None = None
    wait_for: threading.Event | None = None
    tell_length: bool = True

    @property
    def data(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


def said(text: str | None, finish_reason: str | None = "stop", **more: Any) -> Reply:
    """A chat completion in vLLM's words. more: fields of the message; those of `usage` and the choice are put there."""
    usage = more.pop("usage", {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10})
    choice = {"index": 0, "finish_reason": finish_reason, "logprobs": more.pop("logprobs", None)}
    choice["stop_reason"] = more.pop("stop_reason", None)
    choice["message"] = {"role": "assistant", "content": text, **more}
    answer = {"id": "x", "object": "chat.completion", "model": "m", "choices": [choice], "usage": usage}
    return Reply({name: value for name, value in answer.items() if value is not None})


def refused(status: int, message: str, headers: Mapping[str, str] | None = None) -> Reply:
    """An error in vLLM's words."""
    return Reply({"error": {"message": message, "type": "Error", "code": status}}, status, headers or {})


HTML = Reply(b"<!DOCTYPE html><html><body>It works!</body></html>", headers={"Content-Type": "text/html"})


def listing(*cards: str | Mapping[str, Any]) -> Reply:
    """A list of models; a bare name is a model with a context of 4096 tokens."""
    data = [{"id": card, "max_model_len": 4096, "parent": None} if isinstance(card, str) else card for card in cards]
    return Reply({"object": "list", "data": data})


FOUR = said("Answer: 4")
ONE_MODEL = listing("m")
Answering = Callable[[dict[str, Any]], Reply]


class FakeServer:
    """A server for the time of a `with`. url: its base URL.

    chat: answers a chat call's JSON, or a list of replies given one after another, the last one for ever. tokenize:
    answers /tokenize; None: there is none. key: what it wants as a bearer. It keeps the JSON of each call, the bearers
    it was sent, and how many chat calls were open at once.
    """

    def __init__(
        self,
        chat: Answering | Sequence[Reply] = (FOUR,),
        *,
        models: Reply = ONE_MODEL,
        tokenize: Answering | None = None,
        key: str | None = None,
        port: int = 0,
    ) -> None:
        self.models, self.key = models, key
        self.calls: list[dict[str, Any]] = []
        self.tokenized: list[dict[str, Any]] = []
        self.bearers: list[str] = []
        self.most_at_once = self.listed = 0
        self._chat, self._tokenize = chat, tokenize
        self._open = 0
        self._lock = threading.Lock()
        self._http = _Http(("127.0.0.1", port), _handler(self))
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    @property
    def connections(self) -> int:
        """How many connections were opened in all."""
        return len(self._http.accepted)

    def __enter__(self) -> "FakeServer":
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        """Gone like a killed process: connections that are kept alive end too."""
        self._http.shutdown()
        self._http.server_close()
        for connection in self._http.accepted:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def answer(self, method: str, path: str, body: dict[str, Any], bearer: str) -> Reply:
        """The reply to any call, from any thread."""
        if path == "/tokenize" and self._tokenize:
            self.tokenized.append(body)
            return self._tokenize(body)
        self.bearers.append(bearer)
        if self.key is not None and bearer != self.key:
            # Like some real ones, it repeats the key that it was sent.
            return refused(401, f"Incorrect API key provided: {bearer}")
        if path == "/v1/models" and method == "GET":
            self.listed += 1
            return self.models
        if path == "/v1/chat/completions" and method == "POST":
            return self._converse(body)
        return refused(404, "Not Found")

    def _converse(self, body: dict[str, Any]) -> Reply:
        with self._lock:
            number = len(self.calls)
            self.calls.append(body)
            self._open += 1
            self.most_at_once = max(self.most_at_once, self._open)
        try:
            reply = self._chat(body) if callable(self._chat) else self._chat[min(number, len(self._chat) - 1)]
            if reply.wait_for is not None:
                reply.wait_for.wait(30)
            return reply
        finally:
            with self._lock:
                self._open -= 1


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, *args: Any) -> None:
        self.accepted: list[socket.socket] = []
        super().__init__(*args)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.accepted.append(request)
        super().process_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news."""


def _handler(server: FakeServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Without it each answer waits for the client's delayed acknowledgement.
        disable_nagle_algorithm = True

        def _serve(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or b"{}")
            bearer = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
            reply = server.answer(self.command, self.path, body, bearer)
            self.send_response(reply.status)
            for name, value in {"Content-Type": "application/json", **reply.headers}.items():
                self.send_header(name, value)
            if reply.tell_length:
                self.send_header("Content-Length", str(len(reply.data)))
            else:
                self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(reply.data[: reply.cut])
            if reply.cut is not None or not reply.tell_length:
                self.wfile.flush()
                self.close_connection = True
                with contextlib.suppress(OSError):
                    self.connection.shutdown(socket.SHUT_RDWR)

        do_GET = do_POST = _serve

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler


@contextlib.contextmanager
def nobody() -> Iterator[str]:
    """The base URL of a port at which nobody listens, held so that no one else takes it."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{held.getsockname()[1]}/v1"
