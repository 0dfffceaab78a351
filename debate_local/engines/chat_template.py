"""From a conversation to token ids: the one rendering path of the engines that run models in this process.

Rule 1: the chat template writes every control token; the text is never tokenised a second time, so nothing is doubled.
Rule 2: what stands in a message is data. Anything in it that a tokenizer could take for a control token is broken up
by a word joiner (U+2060) before the template sees it; prefills and templates are the researcher's own and stay.
Knows tokenizers of transformers; refuses to know engines and weights.
"""

import inspect
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from debate_local.core.chat import ChatRequest, Message, Sampling, digest, marks_reasoning, opens_reasoning

WORD_JOINER = "\u2060"
SYSTEM_MERGED = "system message merged into the first user turn"
NEIGHBOURS_MERGED = "neighbouring turns of one role merged"


class CannotRender(ValueError):
    """This conversation cannot be turned into a prompt of this model; says why."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """A prompt. neutralised: contents that held template tokens. notes: what had to be done to the conversation.

    opened_reasoning: the prompt ends inside a reasoning block, so the reply begins there.
    """

    token_ids: list[int]
    neutralised: int = 0
    notes: tuple[str, ...] = ()
    opened_reasoning: bool = False

    @property
    def hash(self) -> str:
        """16 hexadecimal digits: equal prompts have equal ones, whichever engine rendered them."""
        return digest(self.token_ids)[:16]


class ChatTemplate:
    """A tokenizer with its chat template, or with another one.

    template: replaces the tokenizer's own. Raises CannotRender when there is none at all.
    """

    def __init__(self, tokenizer: Any, template: str | None = None) -> None:
        self.tokenizer = tokenizer
        self._template = template
        # Mistral's own tokenizer (tekken.json) comes with a rendering that is no template.
        self._renders_itself = type(tokenizer).__name__ == "MistralCommonBackend"
        if self._renders_itself and template is not None:
            raise CannotRender("the model's tokenizer renders conversations itself; leave engine.chat_template out")
        if template is None and not self._renders_itself and not getattr(tokenizer, "chat_template", None):
            raise CannotRender(
                "the model's tokenizer has no chat template, as is usual for base models; give one with"
                " engine.chat_template= (a template's text, or the path of a .jinja file), or use an instruct model"
            )
        self._control = control_pattern(_added_tokens(tokenizer))

    @classmethod
    def load(cls, folder: str, template: str | None = None, trust_remote_code: bool = False) -> "ChatTemplate":
        """With the tokenizer in a model's folder. Raises CannotRender when there is none that can be loaded."""
        from transformers import AutoTokenizer

        try:
            tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=trust_remote_code)
        except Exception as error:
            # A missing or broken tokenizer raises many kinds of exception.
            raise CannotRender(
                f"there is no tokenizer that transformers can load in {folder}: put the model's tokenizer files"
                f" (tokenizer.json, tokenizer_config.json) there ({type(error).__name__}: {error})"
            ) from error
        return cls(tokenizer, template)

    def render(self, request: ChatRequest) -> Rendered:
        """The prompt of one request. Raises CannotRender, and nothing else."""
        if reserved := sorted(_RESERVED & set(request.template_args)):
            raise CannotRender(f"template_args may not set {', '.join(reserved)}: the engine does")
        messages, neutralised = self._neutralised(request.messages)
        failure: Exception | None = None
        for candidate, notes in self._candidates(messages):
            try:
                ids = self._apply(candidate, request)
            except Exception as error:
                # A template is a program of the model's author: it may raise anything. The first failure tells most.
                failure = failure or error
                continue
            notes = (*notes, *self._ignored(request))
            return Rendered(ids, neutralised, notes, not request.prefill and self._ends_in_reasoning(ids))
        reason = f"{type(failure).__name__}: {failure}" if failure else "it has no messages"
        raise CannotRender(f"the chat template cannot render the conversation: {reason}") from failure

    def count(self, messages: Sequence[Message]) -> int:
        """How many tokens the prompt of these messages has. Raises CannotRender."""
        return len(self.render(ChatRequest("", "", tuple(messages), Sampling())).token_ids)

    @cached_property
    def reasoning_is_special(self) -> bool:
        """True when reasoning is marked by special tokens, which decoding leaves out unless it is told not to."""
        return any(token.special and marks_reasoning(token.text) for token in _added_tokens(self.tokenizer))

    def neutralise(self, text: str) -> tuple[str, bool]:
        """The text with every control token in it broken up, and whether there was one."""
        changed, count = self._control.subn(rf"\g<0>{WORD_JOINER}", text)
        return changed, count > 0

    def _neutralised(self, messages: Sequence[Message]) -> tuple[list[Message], int]:
        texts = [self.neutralise(message.content) for message in messages]
        kept = [replace(message, content=text) for message, (text, _) in zip(messages, texts, strict=True)]
        return kept, sum(changed for _, changed in texts)

    def _candidates(self, messages: list[Message]) -> Iterator[tuple[list[Message], tuple[str, ...]]]:
        """The conversation as it is, then with as little merged as the template may want."""
        system = any(message.role == "system" for message in messages)
        merged = merge_neighbours(messages)
        if messages and not (system and self._drops_system):
            yield messages, ()
            if len(merged) < len(messages):
                yield merged, (NEIGHBOURS_MERGED,)
        if system:
            plain = merge_system(messages)
            yield plain, (SYSTEM_MERGED,)
            if len(both := merge_neighbours(plain)) < len(plain):
                yield both, (SYSTEM_MERGED, NEIGHBOURS_MERGED)

    @cached_property
    def _drops_system(self) -> bool:
        """True when the template leaves a system message out without a word, which is worse than a refusal."""
        probe = [Message("system", "xylophone"), Message("user", "hello")]
        try:
            ids = self._apply(probe, ChatRequest("", "", (), Sampling()))
        except Exception:
            return False  # a refusal: `render` sees it and merges
        return "xylophone" not in self.tokenizer.decode(ids)

    def _apply(self, messages: Sequence[Message], request: ChatRequest) -> list[int]:
        turns = [{"role": message.role, "content": message.content} for message in messages]
        if request.prefill:
            turns.append({"role": "assistant", "content": request.prefill})
        ids: list[int] = self.tokenizer.apply_chat_template(
            turns,
            chat_template=self._template,
            tokenize=True,
            return_dict=False,
            add_generation_prompt=not request.prefill,
            continue_final_message=bool(request.prefill),
            # Whether the prompt fits is asked elsewhere; a warning would only reach the terminal.
            tokenizer_kwargs={"verbose": False},
            **request.template_args,
        )
        return ids

    def _ignored(self, request: ChatRequest) -> list[str]:
        """A note for each template argument that the template does not know: it would be ignored without a word."""
        if not request.template_args:
            return []
        own = inspect.signature(self.tokenizer.apply_chat_template).parameters if self._renders_itself else ()
        text = self._template or " ".join(own) or str(self.tokenizer.chat_template)
        return [
            f"the chat template knows no {name}; ignored"
            for name in sorted(request.template_args)
            if not re.search(rf"\b{re.escape(name)}\b", text)
        ]

    def _ends_in_reasoning(self, ids: list[int]) -> bool:
        return opens_reasoning(self.tokenizer.decode(ids[-_TAIL:]))


_TAIL = 16
# `apply_chat_template` takes these itself.
_RESERVED = {
    *("conversation", "messages", "chat_template", "add_generation_prompt", "continue_final_message", "tokenize"),
    *("padding", "truncation", "max_length", "return_tensors", "return_dict", "return_assistant_tokens_mask"),
    "tokenizer_kwargs",
}


def read_template(option: str) -> str:
    """A chat template from the option's value: the text itself, or what the file of that name holds.

    Raises ValueError for something that is neither.
    """
    if "{" in option:
        return option
    file = Path(option).expanduser()
    if not file.is_file():
        raise ValueError(f"engine.chat_template={option!r} is neither a template (it has no {{) nor a file")
    return file.read_text(encoding="utf-8")


def merge_neighbours(messages: Sequence[Message]) -> list[Message]:
    merged: list[Message] = []
    for message in messages:
        if merged and merged[-1].role == message.role:
            merged[-1] = replace(message, content=f"{merged[-1].content}\n\n{message.content}")
        else:
            merged.append(message)
    return merged


def merge_system(messages: Sequence[Message]) -> list[Message]:
    """System messages put before the text of the first user turn; alone, they are one."""
    system = "\n\n".join(message.content for message in messages if message.role == "system")
    others = [message for message in messages if message.role != "system"]
    for place, message in enumerate(others):
        if message.role == "user":
            others[place] = replace(message, content=f"{system}\n\n{message.content}")
            return others
    return [Message("user", system), *others]


# What could be taken for a control token

# By first character, what follows it. Families, in order: ChatML, Llama 3, Qwen, Phi, gpt-oss and many more; DeepSeek;
# Gemma 4; Gemma; Llama 2; reasoning and tool tags. Mistral; GLM.
_FAMILIES = {
    "<": (
        r"\|[^|<>\s]{1,64}\|>",
        r"｜[^｜<>\n]{1,64}｜>",
        r"\|[\w\"]{1,32}>|\w{1,32}\|>",
        r"(?:start|end)_of_turn>|bos>|eos>|pad>|unk>",
        r"/?s>|</?SYS>>",
        r"(?i:/?(?:\w{1,16}:)?(?:think|thinking|thought|reasoning|reflection|tool_call|tool_response|tools)>)",
    ),
    "[": (
        r"/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT|ARGS|CALL_ID|THINK)\]",
        r"[gs]?MASK\]",
    ),
}


@dataclass(frozen=True, slots=True)
class _Added:
    text: str
    special: bool


def _added_tokens(tokenizer: Any) -> list[_Added]:
    try:
        added = [_Added(token.content, token.special) for token in tokenizer.added_tokens_decoder.values()]
    except (AttributeError, NotImplementedError):
        added = []  # Mistral's own tokenizer has special ones only
    return added + [_Added(token, True) for token in tokenizer.all_special_tokens]


def control_pattern(added: Iterable[_Added]) -> re.Pattern[str]:
    """Matches the first character of everything that could be a control token.

    Only one character is taken at a time, so tokens that overlap are all found. A look at the first character alone
    decides most of a text. Runs of blanks and, unless special, plain words that a tokenizer added stay: they open no
    turn, and are text.
    """
    rests = {first: list(patterns) for first, patterns in _FAMILIES.items()}
    for token in sorted({token.text for token in added if _is_control(token)}):
        rests.setdefault(token[0], []).append(re.escape(token[1:]))
    return re.compile("|".join(f"{re.escape(first)}(?={'|'.join(patterns)})" for first, patterns in rests.items()))


def _is_control(token: _Added) -> bool:
    if len(token.text) < 2 or not token.text.strip(" \t\r\n▁"):
        return False
    return token.special or re.fullmatch(r"\w+", token.text) is None
