r"""An engine without a model: replies from a YAML file, a Python function, or a built-in solver of sums.

A real engine: it honours max_tokens, stop strings, prefill and the context length, and can be slow, faulty or mortal
on demand. Rule: a completion is a function of the request's content and of the options, never of time, order or batch,
so a replay is equal. One token is one word (text between blanks).

The YAML is a list; the first entry that matches answers:

    - match: '17 \+ 25'             # a regular expression, searched in the last user message; left out: matches any
      reply: "The answer is 42."    # a text, or a list of texts of which the request's seed chooses one
      finish_reason: stop           # stop (default), length, too_long or error
      error: "out of memory"        # the message of too_long and error
      logprobs: [["The", -0.1]]     # (piece, natural log-probability); left out: made up when asked for
"""

import ast
import hashlib
import heapq
import math
import operator
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any, get_args

import yaml

from debate_local.core.chat import (
    ChatRequest,
    Completion,
    Engine,
    EngineDead,
    FinishReason,
    Limits,
    Message,
    digest,
    split_reasoning,
)


def scripted(
    replies: str | None = None,
    model: str | None = None,
    seed: int = 0,
    accuracy: float = 0.6,
    no_answer: float = 0.05,
    latency: float = 0.0,
    fail: float = 0.0,
    too_long: float = 0.0,
    cut_off: float = 0.0,
    empty: float = 0.0,
    dead_after: int | None = None,
    context_length: int | None = None,
) -> Engine:
    """A scripted engine; without `replies` a solver of sums answers.

    replies: a YAML file. model: a name, so that a line meant for another engine works here; another name, and another
    seed, is another model. accuracy, no_answer: how often the solver is right, how often it has no answer. latency:
    mean seconds of a reply. fail, too_long, cut_off, empty: the shares of requests that end so. dead_after: the engine
    dies after that many completions. context_length: in words.
    Raises ValueError for a share outside 0..1 or a file that is not as described above, OSError when it is missing.
    """
    salt = f"{seed}/{model}" if model else str(seed)
    script = _Solver(salt, accuracy, no_answer) if replies is None else _Script(Path(replies))
    return ScriptedEngine(
        script,
        name=script.name,
        about={**script.about, **({"model": model} if model else {})},
        seed=seed,
        latency=latency,
        faults=Faults(fail, too_long, cut_off, empty),
        dead_after=dead_after,
        context_length=context_length,
    )


@dataclass(frozen=True, slots=True)
class Reply:
    """What a script says: the text, and how generation ended."""

    text: str
    finish_reason: FinishReason = "stop"
    error: str | None = None
    logprobs: tuple[tuple[str, float], ...] | None = None


@dataclass(frozen=True, slots=True)
class Faults:
    """The shares of requests, 0..1, that fail, are refused as too long, are cut off half-way, or bring no text."""

    fail: float = 0.0
    too_long: float = 0.0
    cut_off: float = 0.0
    empty: float = 0.0

    def __post_init__(self) -> None:
        _check_shares("too_long + cut_off + empty", fail=self.fail, **self.replies())

    def replies(self) -> dict[str, float]:
        """The faults that are part of what the engine replies; a failed request has no reply at all."""
        return {"too_long": self.too_long, "cut_off": self.cut_off, "empty": self.empty}


class ScriptedEngine:
    """Answers by a function of the request.

    The function returns a text, a `Reply`, or a whole `Completion`, which is handed out as it is; what it raises
    becomes a failed completion. name, about: all that the engine's identity knows of the function, so give another
    name to a function that answers otherwise. The other options are those of `scripted`.
    """

    def __init__(
        self,
        function: Callable[[ChatRequest], str | Reply | Completion],
        *,
        name: str = "function",
        about: Mapping[str, Any] | None = None,
        seed: int = 0,
        latency: float = 0.0,
        faults: Faults | None = None,
        dead_after: int | None = None,
        context_length: int | None = None,
    ) -> None:
        _check_sizes(latency, dead_after, context_length)
        self._function = function
        self._seed, self._latency = seed, latency
        self._faults = faults or Faults()
        self._faulty = self._faults != Faults()
        self._dead_after = dead_after
        self._identity: dict[str, Any] = {
            "kind": "scripted",
            "script": name,
            **(about or {}),
            "seed": seed,
            "context_length": context_length,
            **self._faults.replies(),
        }
        self._limits = Limits(context_length, ("default",), logprobs=True, prefill=True, schema=True)
        self._waiting: dict[str, tuple[int, ChatRequest]] = {}
        self._due: list[tuple[float, int, str]] = []
        self._submitted = self._answered = 0

    @property
    def identity(self) -> Mapping[str, Mapping[str, Any]]:
        return {"default": self._identity}

    @property
    def limits(self) -> Limits:
        """A schema is trusted to the script, which is not checked against it."""
        return self._limits

    def submit(self, requests: Sequence[ChatRequest]) -> None:
        """Take requests; a reply is due after its latency."""
        self._require_alive()
        now = time.monotonic() if self._latency else 0.0
        for request in requests:
            self._submitted += 1
            self._waiting[request.id] = (self._submitted, request)
            if self._latency:
                wait = -self._latency * math.log(1 - self._draw(request, "latency"))
                heapq.heappush(self._due, (now + wait, self._submitted, request.id))

    def poll(self, timeout: float) -> list[tuple[str, Completion]]:
        """Whatever is due; waits at most `timeout` seconds for the first."""
        self._require_alive()
        ready = self._take_due(timeout) if self._latency else self._take_all()
        finished = [(request.id, self._complete(request)) for request in ready]
        self._answered += len(finished)
        return finished

    def cancel(self, ids: Sequence[str]) -> None:
        """Forget requests; unknown ids are no error."""
        for id in ids:
            self._waiting.pop(id, None)

    def close(self) -> None:
        self._waiting.clear()
        self._due.clear()

    def count_tokens(self, messages: Sequence[Message]) -> int:
        """Words."""
        return sum(len(message.content.split()) for message in messages)

    def _require_alive(self) -> None:
        if self._dead_after is not None and self._answered >= self._dead_after:
            raise EngineDead(f"the scripted engine died after {self._answered} completions, as dead_after asks")

    def _room(self) -> int:
        """How many more completions it may live to give."""
        return len(self._waiting) if self._dead_after is None else self._dead_after - self._answered

    def _take_all(self) -> list[ChatRequest]:
        ids = list(self._waiting)[: self._room()]
        return [self._waiting.pop(id)[1] for id in ids]

    def _take_due(self, timeout: float) -> list[ChatRequest]:
        deadline = time.monotonic() + timeout
        self._drop_cancelled()
        if self._due and (wait := min(self._due[0][0], deadline) - time.monotonic()) > 0:
            time.sleep(wait)
        now, room = time.monotonic(), self._room()
        ready: list[ChatRequest] = []
        while self._due and self._due[0][0] <= now and len(ready) < room:
            ready.append(self._waiting.pop(heapq.heappop(self._due)[2])[1])
            self._drop_cancelled()
        return ready

    def _drop_cancelled(self) -> None:
        # A cancelled id may have been submitted again: the number tells the two apart.
        while self._due and self._waiting.get(self._due[0][2], (0,))[0] != self._due[0][1]:
            heapq.heappop(self._due)

    def _draw(self, request: ChatRequest, purpose: str) -> float:
        return _hash(request, f"{self._seed}/{purpose}") / 2**64

    def _complete(self, request: ChatRequest) -> Completion:
        """Only the content of the request and the options decide what comes back."""
        if request.model != "default":
            return Completion.failure(f"no model {request.model!r}; the scripted engine's: default")
        if self._faulty and self._draw(request, "fail") < self._faults.fail:
            return Completion.failure("failed, as the option fail asks")
        prompt = self.count_tokens(request.messages)
        context = self._limits.context_length
        if context is not None and prompt >= context:
            return _too_long(request, prompt, f"the context holds {context}")
        fault = self._fault(request)
        if fault == "too_long":
            return _too_long(request, prompt, "refused, as the option too_long asks")
        try:
            reply = self._function(request)
        except Exception as error:
            return Completion.failure(f"the script raised {type(error).__name__}: {error}")
        if isinstance(reply, Completion):
            return reply
        if isinstance(reply, str):
            reply = Reply(reply)
        if reply.finish_reason in ("error", "too_long"):
            return Completion.failure(reply.error or "scripted", reply.finish_reason, prompt_tokens=prompt)
        if fault == "empty":
            return Completion(text=request.prefill, prompt_tokens=prompt)
        room = None if context is None else context - prompt
        return _finish(request, reply, prompt, room, cut_off=fault == "cut_off")

    def _fault(self, request: ChatRequest) -> str | None:
        if not self._faulty:
            return None
        draw = self._draw(request, "fault")
        for fault, share in self._faults.replies().items():
            if draw < share:
                return fault
            draw -= share
        return None


def _too_long(request: ChatRequest, prompt: int, why: str) -> Completion:
    return Completion.failure(f"the prompt of {prompt} words is too long: {why}", "too_long", prompt_tokens=prompt)


def _finish(request: ChatRequest, reply: Reply, prompt: int, room: int | None, cut_off: bool) -> Completion:
    """Apply stop strings and the limits on length, then split off the reasoning."""
    raw, finish_reason, stop_reason = reply.text, reply.finish_reason, ""
    for stop in request.sampling.stop:
        if stop and (position := raw.find(stop)) >= 0:
            raw, finish_reason, stop_reason = raw[:position], "stop", stop
    words = len(raw.split())
    most = request.sampling.max_tokens
    clipped = room is not None and room < most and words > room
    if clipped and room is not None:
        most = room
    if cut_off:
        most, clipped = min(most, words // 2), False
    if words > most:
        raw, words, finish_reason, stop_reason = _first_words(raw, most), most, "length", ""
    whole = request.prefill + raw
    split = split_reasoning(whole)
    return Completion(
        text=split.text,
        reasoning=split.reasoning,
        raw=raw,
        finish_reason=finish_reason,
        prompt_tokens=prompt,
        generated_tokens=words,
        logprobs=(reply.logprobs or _logprobs(raw)) if request.logprobs else None,
        clipped=clipped,
        stop_reason=stop_reason,
    )


def _first_words(text: str, count: int) -> str:
    ends = [match.end() for match in re.finditer(r"\S+", text)]
    return text[: ends[count - 1]] if count else ""


def _logprobs(raw: str) -> tuple[tuple[str, float], ...]:
    """Made-up log-probabilities, one a word, that depend on nothing but the text."""
    pieces = re.findall(r"\s*\S+", raw)
    numbers = hashlib.blake2b(raw.encode("utf-8", "surrogatepass")).digest()
    return tuple((piece, math.log((1 + numbers[i % len(numbers)]) / 256)) for i, piece in enumerate(pieces))


def _hash(request: ChatRequest, salt: str) -> int:
    """64 bits that depend on the messages, the temperature, the seed and the salt."""
    sampling = request.sampling
    seed = None if sampling.greedy else sampling.seed
    content = hashlib.blake2b(f"{salt}/{seed}/{sampling.temperature}".encode(), digest_size=8)
    for message in request.messages:
        content.update(f"\0{message.role}\0{message.content}".encode("utf-8", "surrogatepass"))
    return int.from_bytes(content.digest(), "big")


class _Solver:
    """Works out the longest sum in the first user message; a hash decides whether it is right, wrong or at a loss.

    Where there is no sum, "right" is a number made from the question.
    """

    name = "sums"

    def __init__(self, salt: str, accuracy: float, no_answer: float) -> None:
        _check_shares("accuracy + no_answer", accuracy=accuracy, no_answer=no_answer)
        self._salt, self._accuracy, self._no_answer = f"{salt}/solve", accuracy, no_answer
        self.about: dict[str, Any] = {"accuracy": accuracy, "no_answer": no_answer}

    def __call__(self, request: ChatRequest) -> str:
        number = _hash(request, self._salt)
        question = next((message.content for message in request.messages if message.role == "user"), "")
        expression, value = _sum_in(question)
        share, slip = number / 2**64, (number >> 8) % len(_SLIPS)
        if share < self._no_answer:
            return f"I tried {expression} in two ways and the results differ, so I cannot settle on one."
        if share >= self._no_answer + self._accuracy:
            value += _SLIPS[slip]
        shown = str(value) if value.denominator == 1 else f"{float(value):g}"
        return f"Step by step: {expression} = {shown}.\nThe answer is \\boxed{{{shown}}}."


_SLIPS = (1, -1, 2, -2, 10, -10)
_SUM = re.compile(r"-?[\d(][\d\s.()+*/\u00d7\u2212-]*[+*/\u00d7\u2212-][\d\s.()+*/\u00d7\u2212-]*[\d)]")
_OPERATORS: Mapping[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


@lru_cache(maxsize=4096)
def _sum_in(question: str) -> tuple[str, Fraction]:
    """The longest sum of a question and its value."""
    for found in sorted(_SUM.findall(question), key=len, reverse=True):
        expression = " ".join(found.split())
        try:
            tree = ast.parse(expression.replace("\u00d7", "*").replace("\u2212", "-"), mode="eval")
            return expression, _value(tree.body)
        except (SyntaxError, ValueError, ZeroDivisionError, RecursionError):
            continue
    return "the question", Fraction(int(digest(question), 16) % 100)


def _value(node: ast.expr) -> Fraction:
    """The value of a syntax tree of numbers and the four operators; nothing is ever evaluated as code."""
    match node:
        case ast.Constant(value=int() | float() as number):
            return Fraction(str(number))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(left), _value(right))
    raise ValueError(f"not a sum: {ast.dump(node)}")


@dataclass(frozen=True, slots=True)
class _Entry:
    match: re.Pattern[str] | None
    replies: tuple[Reply, ...]


class _Script:
    """The entries of a YAML file; the first that matches the last user message answers."""

    name = "file"

    def __init__(self, path: Path) -> None:
        rows = yaml.safe_load(path.read_text(encoding="utf-8"))
        if not isinstance(rows, list) or not rows:
            raise ValueError(f"{path}: a script is a list of entries, each with `reply` and perhaps `match`")
        self._path = path
        self._entries = [_entry(f"{path}, entry {number}", row) for number, row in enumerate(rows, 1)]
        self.about: dict[str, Any] = {"replies": digest(rows)}

    def __call__(self, request: ChatRequest) -> Reply:
        asked = next((message.content for message in reversed(request.messages) if message.role == "user"), "")
        for entry in self._entries:
            if entry.match is None or entry.match.search(asked):
                seed = 0 if request.sampling.greedy else request.sampling.seed or 0
                return entry.replies[seed % len(entry.replies)]
        return Reply("", "error", f"no entry of {self._path} matches its last user message, {asked[-200:]!r}")


_FIELDS = ("match", "reply", "finish_reason", "error", "logprobs")


def _entry(place: str, row: Any) -> _Entry:
    if not isinstance(row, dict):
        raise ValueError(f"{place}: expected fields ({', '.join(_FIELDS)}), found {row!r}")
    if unknown := sorted(set(row) - set(_FIELDS)):
        raise ValueError(f"{place}: unknown field {', '.join(unknown)}; the fields are: {', '.join(_FIELDS)}")
    finish_reason = row.get("finish_reason", "stop")
    if finish_reason not in get_args(FinishReason):
        raise ValueError(f"{place}: finish_reason {finish_reason!r} must be one of {', '.join(get_args(FinishReason))}")
    texts = row.get("reply", "" if finish_reason in ("error", "too_long") else None)
    texts = texts if isinstance(texts, list) and texts else [texts]
    if wrong := [text for text in texts if not isinstance(text, str)]:
        # YAML reads 42, yes and no as something else than text.
        raise ValueError(f"{place}: reply must be text or a list of texts, found {wrong[0]!r}; put it in quotes")
    try:
        match = re.compile(row["match"]) if "match" in row else None
        logprobs = tuple((str(piece), float(number)) for piece, number in row.get("logprobs") or ()) or None
    except (re.error, TypeError, ValueError) as error:
        raise ValueError(
            f"{place}: match must be a regular expression, logprobs (piece, number) pairs: {error}"
        ) from error
    return _Entry(match, tuple(Reply(text, finish_reason, row.get("error"), logprobs) for text in texts))


def _check_shares(parts_of_one: str, **shares: float) -> None:
    for name, share in shares.items():
        if not 0 <= share <= 1:
            raise ValueError(f"engine option {name} must be a share between 0 and 1, got {share!r}")
    if (total := sum(shares[name] for name in parts_of_one.split(" + "))) > 1:
        raise ValueError(f"engine options {parts_of_one} must not exceed 1 together, got {total:g}")


def _check_sizes(latency: float, dead_after: int | None, context_length: int | None) -> None:
    if latency < 0:
        raise ValueError(f"engine option latency must be at least 0 seconds, got {latency!r}")
    if dead_after is not None and dead_after < 0:
        raise ValueError(f"engine option dead_after must be at least 0 completions, got {dead_after!r}")
    if context_length is not None and context_length < 1:
        raise ValueError(f"engine option context_length must be at least 1 word, got {context_length!r}")
