"""Between a request of ours and the JSON of the OpenAI chat API, both ways. Pure: no I/O, no state.

Rule 1: every sampling field is sent, and no null is: a server may take null for "off" (NVIDIA-NeMo/Gym#1612).
Rule 2: what comes back is data: whatever its shape, it is read or refused as `Malformed`, never trusted.
Rule 3: `raw` is put together so that core's one function takes it apart again.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from debate_local.core.chat import ChatRequest, Completion, FinishReason, Message, split_reasoning
from debate_local.engines.chat_template import (
    NEIGHBOURS_MERGED,
    SYSTEM_MERGED,
    WORD_JOINER,
    control_pattern,
    merge_neighbours,
    merge_system,
)

ExtraFields = Literal["on", "off"]


class Malformed(ValueError):
    """An answer that is no chat completion; says what it is instead."""


class BrokenOff(Malformed):
    """An answer that ends too early: the connection was lost, with no length told beforehand."""


# Requests


@dataclass(frozen=True, slots=True)
class Conversation:
    """The messages that are sent. neutralised: contents that held template tokens; notes: what was merged."""

    messages: tuple[Message, ...]
    neutralised: int = 0
    notes: tuple[str, ...] = ()


# The server's tokenizer is not known here; the families' tokens are.
_CONTROL = control_pattern(())


def neutralised(messages: Sequence[Message]) -> Conversation:
    """The conversation with every template token in its contents broken up."""
    texts = [_CONTROL.subn(rf"\g<0>{WORD_JOINER}", message.content) for message in messages]
    kept = tuple(Message(message.role, text) for message, (text, _) in zip(messages, texts, strict=True))
    return Conversation(kept, sum(count > 0 for _, count in texts))


# What a chat template may want merged, least first. A template that refuses one shape refuses all before it.
_SHAPES = ((), (NEIGHBOURS_MERGED,), (SYSTEM_MERGED,), (SYSTEM_MERGED, NEIGHBOURS_MERGED))


def shapes(conversation: Conversation, first: int = 0) -> Iterator[tuple[int, Conversation]]:
    """The conversation as it is and then merged more and more, each different one with its number, from `first` on."""
    seen = set()
    for number, merge in list(enumerate(_SHAPES))[first:]:
        messages, notes = list(conversation.messages), []
        if SYSTEM_MERGED in merge and any(message.role == "system" for message in messages):
            messages = merge_system(messages)
            notes.append(SYSTEM_MERGED)
        if NEIGHBOURS_MERGED in merge and len(merged := merge_neighbours(messages)) < len(messages):
            messages = merged
            notes.append(NEIGHBOURS_MERGED)
        if tuple(messages) not in seen:
            seen.add(tuple(messages))
            yield number, Conversation(tuple(messages), conversation.neutralised, tuple(notes))


# Not in OpenAI's API, though most servers of open weights know them: each with the values that change nothing.
_EXTRA: Mapping[str, tuple[float | None, ...]] = {
    "top_k": (None, 0, -1),
    "min_p": (None, 0),
    "repetition_penalty": (None, 1),
}
_STANDARD = ("temperature", "top_p", "presence_penalty", "frequency_penalty", "max_tokens")


def unsendable(request: ChatRequest, extra: ExtraFields) -> str | None:
    """Why a request cannot be said in the fields that the server takes, or None."""
    if extra == "on":
        return None
    asked = [f"{name}={value}" for name in _EXTRA if (value := getattr(request.sampling, name)) not in _EXTRA[name]]
    asked += ["a prefill"] if request.prefill else []
    asked += [f"template_args ({', '.join(sorted(request.template_args))})"] if request.template_args else []
    if not asked:
        return None
    return (
        f"engine.extra_fields=off cannot send {', '.join(asked)}. Set them to what changes nothing (top_k=0, min_p=0, "
        "repetition_penalty=1, no prefill, no template_args), or use a server that takes them with extra_fields=on"
    )


def unstated(request: ChatRequest, extra: ExtraFields) -> str | None:
    """What a request states and the server is not told, so that its own values count, or None."""
    if extra == "on":
        return None
    left = [f"{name}={value:g}" for name in _EXTRA if (value := getattr(request.sampling, name)) is not None]
    if not left:
        return None
    return (
        f"engine.extra_fields=off does not send {', '.join(left)}: a server with values of its own for these uses them"
        " (vLLM takes the model's generation_config.json)"
    )


def body(request: ChatRequest, served: str, conversation: Conversation, extra: ExtraFields) -> dict[str, Any]:
    """The JSON that is sent: everything stated, nothing null."""
    sampling = request.sampling
    turns = [{"role": message.role, "content": message.content} for message in conversation.messages]
    fields: dict[str, Any] = {
        "model": served,
        "messages": turns,
        **{name: getattr(sampling, name) for name in _STANDARD},
        "seed": None if sampling.greedy else sampling.seed,
        "stop": list(sampling.stop) or None,
        "logprobs": True if request.logprobs else None,
    }
    if request.schema is not None:
        schema = {"name": "reply", "schema": dict(request.schema), "strict": True}
        fields["response_format"] = {"type": "json_schema", "json_schema": schema}
    if extra == "on":
        fields |= {name: getattr(sampling, name) for name in _EXTRA}
        # All tokens: vLLM and llama.cpp take 0 and -1 for it, SGLang takes -1 only.
        fields["top_k"] = -1 if sampling.top_k == 0 else sampling.top_k
        fields["chat_template_kwargs"] = dict(request.template_args) or None
        if request.prefill:
            turns.append({"role": "assistant", "content": request.prefill})
            fields |= {"continue_final_message": True, "add_generation_prompt": False}
    return {name: value for name, value in fields.items() if value is not None}


# Refusals. The words are those of vLLM, SGLang, llama.cpp, TGI, Ollama, LiteLLM and OpenAI.

_TOO_LONG = re.compile(
    r"context[ _]?(?:length|window|size)|maximum (?:input|prompt|sequence|model) length"
    r"|\b(?:prompt|input)\b.{0,60}\b(?:too (?:long|large)|longer than|exceed)|input.{0,5} tokens.{0,40} must be"
    # No request of ours asks for less than one token: the context left none.
    r"|max_tokens must be at least 1",
    re.IGNORECASE,
)
_BY_TEMPLATE = re.compile(r"system role|must alternate|roles? .{0,40}alternat|only user and assistant", re.IGNORECASE)
_NO_MODEL = re.compile(
    r"\bmodels?\b.{0,120}\b(?:not exist|not found|not a valid|not available|not loaded|not supported)"
    r"|(?:invalid|unknown|no such) model|model_not_found",
    re.IGNORECASE,
)
_NO_FIELD = re.compile(
    r"unrecogni[sz]ed|unknown|unsupported|unexpected|not (?:permitted|allowed|supported)|forbidden|extra", re.IGNORECASE
)
_REFUSING = (400, 413, 422, 500)


def too_long(status: int, said: str) -> bool:
    """True when a server refuses because prompt and reply do not fit its context."""
    return status == 413 or (status in _REFUSING and _TOO_LONG.search(said) is not None)


def refused_by_template(status: int, said: str) -> bool:
    """True when the chat template wants other roles, which merging may give it."""
    return status in _REFUSING and _BY_TEMPLATE.search(said) is not None


def no_such_model(status: int, said: str) -> bool:
    """True when the server may not know the model's name."""
    return status in (404, 405) or (status in (400, 422) and _NO_MODEL.search(said) is not None)


def refused_field(status: int, said: str) -> str | None:
    """The field outside OpenAI's API that the server does not take."""
    if status not in (400, 422) or not _NO_FIELD.search(said):
        return None
    return next((name for name in _EXTRA if re.search(rf"\b{name}\b", said)), None)


# Replies


@dataclass(frozen=True, slots=True)
class Reply:
    """What a server answered. reasoning: what it had parted from the text itself; parts: it says that it parts them."""

    content: str
    reasoning: str
    parts: bool
    finish_reason: str | None
    stop_reason: str
    logprobs: tuple[tuple[str, float], ...] | None
    usage: Mapping[str, Any] | None

    @property
    def raw(self) -> str:
        """What the model generated, its reasoning in tags again; a thought that was cut off is not closed."""
        if not self.reasoning:
            return self.content
        cut_off = not self.content and self.finish_reason == "length"
        return f"<think>{self.reasoning}" if cut_off else f"<think>{self.reasoning}</think>{self.content}"

    def may_hide_a_thought(self) -> bool:
        """True when the text could be a thought that the prompt had opened: nothing in the answer tells."""
        return bool(self.content) and not (self.reasoning or self.parts or split_reasoning(self.content).reasoning)


def parse(answer: str) -> Reply:
    """Read an answer. Raises Malformed, BrokenOff."""
    try:
        whole = json.loads(answer)
    except ValueError:
        raise BrokenOff("the answer breaks off, or is no JSON") from None
    choices = _mapping(whole, "the answer").get("choices")
    if not isinstance(choices, list) or not choices:
        raise Malformed("no choices in the answer")
    choice = _mapping(choices[0], "the choice")
    message = _mapping(choice.get("message"), "the message")
    usage = whole.get("usage")
    usage = usage if isinstance(usage, dict) else None
    return Reply(
        content=_text(message.get("content")) or _text(message.get("refusal")),
        reasoning=_text(message.get("reasoning_content")) or _text(message.get("reasoning")),
        # vLLM counts reasoning tokens when it was started with a reasoning parser, and only then.
        parts=bool(usage and usage.get("completion_tokens_details")),
        finish_reason=choice.get("finish_reason"),
        # Servers of open weights say it; a number is the token that ended the reply.
        stop_reason=_text(choice.get("stop_reason")),
        logprobs=_logprobs(choice.get("logprobs")),
        usage=usage,
    )


def inner_error(answer: str) -> int | None:
    """The status of an error that a gateway delivers as 200."""
    if '"error"' not in answer:
        return None
    try:
        whole = json.loads(answer)
        code = whole["error"]["code"]
    except (ValueError, KeyError, TypeError):
        return None
    return code if isinstance(code, int) and 400 <= code < 600 and not whole.get("choices") else None


def completion(request: ChatRequest, conversation: Conversation, reply: Reply, opened: bool) -> Completion:
    """A server's reply as ours. opened: the prompt ended inside a reasoning block."""
    prompt_tokens, generated, cached = (_count(reply.usage, *path) for path in _COUNTS)
    if reply.finish_reason in ("error", "abort"):
        return Completion.failure(f"the server ended the request: {reply.finish_reason}", prompt_tokens=prompt_tokens)
    split = split_reasoning(request.prefill + reply.raw, opened)
    finish: FinishReason = "length" if reply.finish_reason == "length" else "stop"
    # None for none of several tokens; an empty reply has none and lacks none.
    logprobs = reply.logprobs if request.logprobs and (reply.logprobs or not generated) else None
    notes = list(conversation.notes)
    if reply.finish_reason not in ("stop", "length"):
        notes.append(f"the server's finish_reason is {reply.finish_reason}")
    if not reply.usage:
        notes.append("the server counted no tokens")
    if request.logprobs and logprobs is None:
        notes.append("log-probabilities are missing")
    return Completion(
        text=split.text,
        reasoning=split.reasoning,
        raw=reply.raw,
        finish_reason=finish,
        prompt_tokens=prompt_tokens,
        generated_tokens=generated,
        cached_prompt_tokens=cached,
        logprobs=logprobs,
        clipped=finish == "length" and 0 < generated < request.sampling.max_tokens,
        neutralised=conversation.neutralised,
        notes=tuple(notes),
        stop_reason=reply.stop_reason,
    )


_COUNTS = (("prompt_tokens",), ("completion_tokens",), ("prompt_tokens_details", "cached_tokens"))


def _count(usage: Any, *path: str) -> int:
    for name in path:
        usage = usage.get(name) if isinstance(usage, dict) else None
    return usage if isinstance(usage, int) else 0


def _mapping(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Malformed(f"{what} is no JSON object")
    return value


def _text(value: Any) -> str:
    """A content: a text, or a list of parts of which the texts count."""
    if isinstance(value, list):
        return "".join(_text(part.get("text")) for part in value if isinstance(part, dict))
    return value if isinstance(value, str) else ""


# vLLM says this for a token whose log-probability it does not have.
_NONE = -9999.0


def _logprobs(value: Any) -> tuple[tuple[str, float], ...] | None:
    """Piece and log-probability of each token; None when any is missing: it must not count as a number."""
    tokens = value.get("content") if isinstance(value, dict) else None
    if not isinstance(tokens, list):
        return None
    found = []
    for token in tokens:
        one = token.get("logprob") if isinstance(token, dict) else None
        if not isinstance(one, (int, float)) or not math.isfinite(one) or one <= _NONE:
            return None
        found.append((str(token.get("token", "")), float(one)))
    return tuple(found)
