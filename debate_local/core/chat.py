"""What an engine may know: messages, sampling, requests, completions, and nothing of debates.

Rule 1: every value here is frozen; a request travels unchanged from a debate to an engine.
Rule 2: a request's identity is its content (`request_key`), never its position, time or batch.
Rule 3: reasoning is split from a reply here, by one function, for every engine.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, Protocol

Role = Literal["system", "user", "assistant"]
FinishReason = Literal["stop", "length", "too_long", "error"]


# Made once: json.dumps with these arguments would make an encoder at every call.
_compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_sorted = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode


class EngineFailed(RuntimeError):
    """The engine cannot go on, and starting it again would not help; its cells end here, those of others do not."""


class EngineDead(EngineFailed):
    """The engine can answer nothing any more; everything outstanding is lost and may be asked again elsewhere."""


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message."""

    role: Role
    content: str


@dataclass(frozen=True, slots=True)
class Sampling:
    """How one reply is sampled. Every engine sends every field; `None` means "the model's own default".

    temperature 0 is greedy. top_k 0 keeps all tokens. max_tokens counts generated tokens, reasoning
    included. seed is set by the core (`derive_seed`), never by a person.
    """

    temperature: float | None = 1.0
    top_p: float | None = 1.0
    top_k: int | None = 0
    min_p: float | None = 0.0
    presence_penalty: float | None = 0.0
    frequency_penalty: float | None = 0.0
    repetition_penalty: float | None = 1.0
    stop: tuple[str, ...] = ()
    max_tokens: int = 1024
    seed: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.stop, str):
            raise ValueError(f"stop must be a list of strings, got the string {self.stop!r}")
        for name, low, high in _SAMPLING_RANGES:
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise ValueError(f"sampling.{name} must be between {low:g} and {high:g}, got {value!r}")
            if type(value) is int and name not in _WHOLE_NUMBERS:
                # 1 and 1.0 are one temperature, and so one key.
                object.__setattr__(self, name, float(value))

    @property
    def greedy(self) -> bool:
        """True when no draw is made, so that the seed cannot matter."""
        return self.temperature == 0


_SAMPLING_RANGES = (
    ("temperature", 0.0, 100.0),
    ("top_p", 1e-9, 1.0),
    ("top_k", -1, 2**31),
    ("min_p", 0.0, 1.0),
    ("presence_penalty", -2.0, 2.0),
    ("frequency_penalty", -2.0, 2.0),
    ("repetition_penalty", 1e-9, 100.0),
    ("max_tokens", 1, 2**31),
)
_WHOLE_NUMBERS = ("top_k", "max_tokens")


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One chat call.

    id: unique among the requests of one debate; the scheduler makes it unique among all live ones.
    model: a name of the engine's `limits.models`. prefill: text the reply must begin with.
    schema: a JSON schema the reply must satisfy. template_args: arguments of the chat template
    (`enable_thinking`, ...). logprobs: ask for the log-probability of every generated token.
    priority: lower runs first where the engine can; it never changes a reply.
    """

    id: str
    model: str
    messages: tuple[Message, ...]
    sampling: Sampling
    prefill: str = ""
    schema: Mapping[str, Any] | None = None
    template_args: Mapping[str, Any] = field(default_factory=dict)
    logprobs: bool = False
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Completion:
    """What came back for one request.

    text: the reply without reasoning and with the prefill, what peers and readers get. raw: exactly what the model
    generated. finish_reason: `stop`, `length` (cut off), `too_long` (the prompt left no room: nothing was
    generated) or `error`. clipped: cut by the context, not by max_tokens. neutralised: message contents
    that held template tokens. logprobs: (piece, natural log-probability) a generated token, of the unmodified
    distribution; None when not asked for or not to be had. notes: what the engine had to do to the conversation.
    stop_reason: the stop string that ended it; "" when the model ended it itself. prompt_hash: of the prompt's token
    ids; "" where only a server knows them.
    """

    text: str
    reasoning: str = ""
    raw: str = ""
    finish_reason: FinishReason = "stop"
    prompt_tokens: int = 0
    generated_tokens: int = 0
    cached_prompt_tokens: int = 0
    logprobs: tuple[tuple[str, float], ...] | None = None
    error: str | None = None
    clipped: bool = False
    neutralised: int = 0
    notes: tuple[str, ...] = ()
    stop_reason: str = ""
    prompt_hash: str = ""

    @property
    def failed(self) -> bool:
        """True when the engine, not the model, is the cause: such a completion is never cached."""
        return self.finish_reason == "error"

    @classmethod
    def failure(cls, error: str, finish_reason: FinishReason = "error", **counts: Any) -> "Completion":
        """A completion without text: the request failed (`error`) or did not fit (`too_long`)."""
        return cls(text="", finish_reason=finish_reason, error=error, **counts)

    def to_json(self) -> str:
        """Only the fields that differ from their defaults, so that the cache stays small."""
        return _compact(
            {
                name: value
                for name, default in _COMPLETION_DEFAULTS
                if (value := getattr(self, name)) != default or name == "text"
            }
        )

    @classmethod
    def from_json(cls, text: str) -> "Completion":
        """The inverse of `to_json`; fields of a newer version are errors, not losses."""
        values = json.loads(text)
        if values.get("logprobs") is not None:
            values["logprobs"] = tuple((piece, value) for piece, value in values["logprobs"])
        if "notes" in values:
            values["notes"] = tuple(values["notes"])
        return cls(**values)


_COMPLETION_DEFAULTS = tuple((f.name, f.default) for f in fields(Completion))


@dataclass(frozen=True, slots=True)
class Limits:
    """What an engine can do: its context length in tokens (None: no limit), its model names, its abilities."""

    context_length: int | None
    models: tuple[str, ...]
    seed: bool = True
    logprobs: bool = False
    prefill: bool = False
    schema: bool = False
    priority: bool = False


class Engine(Protocol):
    """What answers requests. Construction is cheap; weights are loaded at the first `submit`.

    `identity` maps each model name to everything that determines its replies (JSON values);
    `submit` never raises for a request's sake: what cannot be rendered or does not fit comes back from
    `poll` as a completion. `poll` waits at most `timeout` seconds and returns what has finished, in any
    order. A dead engine raises `EngineDead` from either.
    """

    @property
    def identity(self) -> Mapping[str, Mapping[str, Any]]: ...

    @property
    def limits(self) -> Limits: ...

    def submit(self, requests: Sequence[ChatRequest]) -> None: ...

    def poll(self, timeout: float) -> list[tuple[str, Completion]]: ...

    def cancel(self, ids: Sequence[str]) -> None: ...

    def close(self) -> None: ...

    def count_tokens(self, messages: Sequence[Message]) -> int: ...


def derive_seed(seed: int, item_id: str, agent: int, round: int, step: str = "") -> int:
    """The 31-bit seed of one request; it knows neither how many agents or rounds there are nor the protocol.

    step names any further request of the same turn (a summary, a confidence, a re-ask).
    """
    parts = json.dumps([seed, item_id, agent, round, step])
    return int.from_bytes(hashlib.sha256(parts.encode()).digest()[:4], "big") >> 1


def digest(value: Any) -> str:
    """A 128-bit hash, in hexadecimal, of a JSON value; key order does not matter."""
    text = _sorted(value)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def request_key(request: ChatRequest, identity: str) -> str:
    """The identity of a request's content: 32 hexadecimal digits.

    identity is the `digest` of the engine's identity for `request.model`. A greedy request has no seed in its key.
    Speed, priority and ids are not part of it; log-probabilities are, only when asked for.
    """
    sampling = request.sampling
    content = [
        identity,
        [[m.role, m.content] for m in request.messages],
        [getattr(sampling, name) for name in _SAMPLING_FIELDS],
        None if sampling.greedy else sampling.seed,
        request.prefill,
        request.schema,
        dict(request.template_args),
        request.logprobs,
    ]
    return digest(content)


_SAMPLING_FIELDS = tuple(f.name for f in fields(Sampling) if f.name != "seed")

REASONING_TAGS = ("think", "thinking", "thought", "reasoning", "reflection")
_NAMES = f"(?i:{'|'.join(REASONING_TAGS)})"
# In this order: tags, of some models with a prefix (Seed-OSS, MiniMax); Mistral; Cohere; Gemma 4.
_OPENING = rf"<(?:\w+:)?{_NAMES}>|\[THINK\]|<\|START_THINKING\|>|<\|channel>(?:thought\n)?"
_CLOSING = rf"</(?:\w+:)?{_NAMES}>|\[/THINK\]|<\|END_THINKING\|>|<channel\|>"
_TAG = re.compile(rf"(?:{_OPENING})|(?P<closing>{_CLOSING})")
# Cohere puts its reply between marks too.
_REPLY_MARK = re.compile(r"<\|(?:START|END)_RESPONSE\|>")
_MARK_TOKEN = re.compile(rf"{_OPENING}|{_CLOSING}|{_REPLY_MARK.pattern}|<\|(?:channel|message)\|>")


@dataclass(frozen=True, slots=True)
class SplitReply:
    """A reply and the reasoning that came before it."""

    text: str
    reasoning: str


def marks_reasoning(token: str) -> bool:
    """True for a token that `split_reasoning` goes by: an engine must not leave it out of `raw`."""
    return _MARK_TOKEN.fullmatch(token) is not None


def split_reasoning(raw: str, opened: bool = False) -> SplitReply:
    """Tell a reply from its reasoning.

    Closed blocks are taken out wherever they stand. A closing tag without an opening one ends reasoning that the
    chat template had opened. A block that is never closed leaves no text: the thought was cut off. The channels of
    gpt-oss are read with their tokens and without.
    opened: the prompt itself ended inside a reasoning block.
    """
    channels = _split_channels(raw, opened)
    if channels is None:
        return _split_tags(raw, opened)
    tags = _split_tags(channels.text, False)
    return SplitReply(tags.text, "\n".join(filter(None, (channels.reasoning, tags.reasoning))))


def opens_reasoning(prompt: str) -> bool:
    """True when a prompt, of which the last few tokens will do, ends inside a reasoning block."""
    turn = prompt.rpartition("<|start|>")[2]
    return not split_reasoning(f"{turn}word").text


def _split_tags(raw: str, opened: bool) -> SplitReply:
    raw = _REPLY_MARK.sub("", raw)
    texts: list[str] = []
    thoughts: list[str] = []
    inside, start = opened, 0
    for tag in _TAG.finditer(raw):
        if inside and not tag["closing"]:
            continue
        piece = raw[start : tag.start()]
        if tag["closing"]:
            # With nothing open, all that came before was reasoning that the template had opened.
            thoughts.append(piece if inside else "".join([*texts, piece]))
            texts = texts if inside else []
            inside, start = False, tag.end()
        else:
            texts.append(piece)
            inside, start = True, tag.end()
    if inside:
        texts, thoughts = [], [*thoughts, raw[start:]]
    elif not thoughts:
        return SplitReply(raw, "")
    else:
        texts.append(raw[start:])
    return SplitReply("".join(texts).strip(), "\n".join(t.strip() for t in thoughts if t.strip()))


# gpt-oss: <|start|>ROLE<|channel|>CHANNEL<|message|>CONTENT<|end|>, the first <|start|>assistant in the prompt.
_HEADER = (
    r"(?:(?:<\|start\|>|\A(?=\s*(?:assistant\b|to=)))(?P<role>[^<]*))?"
    r"(?:<\|channel\|>(?P<channel>[^<]*))?(?:<\|constrain\|>[^<]*)?<\|message\|>"
)
_MESSAGE_MARK = re.compile(rf"(?P<header>{_HEADER})|<\|(?:end|return|call)\|>")
_INVENTED_TURN = re.compile(r"<\|start\|>(?:user|system|developer)\b.*", re.DOTALL)
_CUT_HEADER = re.compile(r"<\|(?:start|channel)\|>[^<]*(?:<\|(?:channel|constrain)\|>[^<]*)*\Z")
# The same when decoding left the tokens out: "analysisWe need to ...assistantfinalThe answer is ...".
_BARE_THOUGHT = re.compile(r"analysis(?=[A-Z][\w']*,? +[\w(\"'])")
_BARE_HEADER = re.compile(r"(?:\A|assistant)(analysis|commentary(?: to=[\w.]+)?|(?<=assistant)final)")


def _split_channels(raw: str, opened: bool) -> SplitReply | None:
    """The split of a reply in the channels of gpt-oss; None of any other reply.

    What is told to nobody (the channel `analysis`, calls of tools) is reasoning. What it invents for others to say
    is neither.
    """
    begun = opened or raw.startswith("analysis")
    if _BARE_THOUGHT.match(raw) or (begun and "assistantfinal" in raw):
        raw = _BARE_HEADER.sub(r"<|end|><|start|>assistant<|channel|>\1<|message|>", raw)
    if "<|message|>" not in raw and not raw.startswith(("<|start|>", "<|channel|>")):
        return None
    raw = _INVENTED_TURN.sub("", raw)
    texts: list[str] = []
    thoughts: list[str] = []
    others: list[str] = []
    into, start = thoughts if opened else texts, 0
    for mark in _MESSAGE_MARK.finditer(raw):
        into.append(raw[start : mark.start()])
        start, into = mark.end(), others
        role, _, recipient = (mark["role"] or "").partition("to=")
        if mark["header"] and role.strip() in ("", "assistant"):
            channel = mark["channel"] or ""
            hidden = recipient or "to=" in channel or channel.strip() == "analysis"
            into = thoughts if hidden else texts
    into.append(_CUT_HEADER.sub("", raw[start:]))
    if into is thoughts:
        texts = []
    text, reasoning = ("\n".join(p.strip() for p in pieces if p.strip()) for pieces in (texts, thoughts))
    return SplitReply(text, reasoning)


def with_seed(sampling: Sampling, seed: int) -> Sampling:
    """The same sampling with a seed, or without one when it is greedy."""
    return replace(sampling, seed=None if sampling.greedy else seed)
