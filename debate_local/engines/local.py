"""What engines that run a model in this process have in common: the model's files, and what comes of a reply.

Knows weights, adapters, chat templates and completions; refuses to know how a model is run.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from debate_local.core.chat import ChatRequest, Completion, FinishReason, split_reasoning
from debate_local.engines.adapters import misfit
from debate_local.engines.chat_template import CannotRender, ChatTemplate, Rendered, read_template
from debate_local.engines.silence import said_to
from debate_local.engines.weights import config_of, fingerprint, resolve


class ModelOptions(Protocol):
    """The options by which a model is named."""

    @property
    def model(self) -> str: ...

    @property
    def revision(self) -> str | None: ...

    @property
    def chat_template(self) -> str | None: ...

    @property
    def adapters(self) -> Mapping[str, str]: ...

    @property
    def trust_remote_code(self) -> bool: ...


def check_adapters(adapters: Mapping[str, str]) -> None:
    """Raise ValueError for a name or a folder that cannot be an adapter's."""
    if "default" in adapters:
        raise ValueError('no adapter may be called "default": that is the model without one')
    for name, folder in adapters.items():
        if not (Path(folder).expanduser() / "adapter_config.json").is_file():
            raise ValueError(f"engine.adapters.{name}={folder!r} is no folder with an adapter_config.json")


class LocalModel:
    """A model's files and those of its adapters, found: all that can be known before it is loaded.

    names: "default" and the adapters'. adapters: name -> folder. tokenizer: a folder with another one than the
    model's. Raises WeightsMissing; ValueError for an adapter of another model and for a chat template that is none.
    """

    def __init__(self, options: ModelOptions, tokenizer: str | None = None) -> None:
        self.weights = resolve(options.model, options.revision, tokenizer=tokenizer is None)
        self.config = config_of(self.weights.path)
        self.names = ("default", *options.adapters)
        self.adapters = {name: str(Path(folder).expanduser().resolve()) for name, folder in options.adapters.items()}
        for name, folder in self.adapters.items():
            if reason := misfit(folder, self.weights.path):
                raise ValueError(f"engine.adapters.{name}={folder!r} is no adapter of {self.weights.name}: {reason}")
        self._tokenizer = tokenizer or self.weights.path
        self._template = None if options.chat_template is None else read_template(options.chat_template)
        self._trusted = options.trust_remote_code

    def identity(self, kind: str, **more: Any) -> Mapping[str, Mapping[str, Any]]:
        """Model name -> what determines its replies: the model's content or commit, never a path, and what is given."""
        weights = self.weights
        hub = {"model": weights.name, "revision": weights.revision}
        source: dict[str, Any] = hub if weights.kind == "hub" else {"weights": fingerprint(weights.path)}
        base = {"kind": kind, **source, "chat_template": self._template, **more}
        adapted = {name: {**base, "adapter": fingerprint(folder)} for name, folder in self.adapters.items()}
        return {"default": base, **adapted}

    @property
    def facts(self) -> Mapping[str, Any]:
        """For run.json and logs."""
        return {"name": self.weights.name, "kind": self.weights.kind, "revision": self.weights.revision}

    def template(self, log: Path) -> ChatTemplate:
        """The tokenizer with its chat template, loaded; what it says goes to `log`. Raises CannotRender."""
        with said_to(log):
            return ChatTemplate.load(self._tokenizer, self._template, self._trusted)

    def require(self, name: str) -> None:
        """Raise CannotRender for a model that this is not."""
        if name not in self.names:
            raise CannotRender(f"this engine has no model {name!r}; its models: {', '.join(self.names)}")


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that is to be answered. most: tokens that the reply may have."""

    request: ChatRequest
    rendered: Rendered
    most: int
    notes: tuple[str, ...] = ()

    @property
    def longest(self) -> int:
        """Tokens of prompt and reply, at most."""
        return len(self.rendered.token_ids) + self.most

    def failure(self, error: str, finish_reason: FinishReason = "error") -> Completion:
        """Its completion when there is no reply."""
        return Completion.failure(
            error,
            finish_reason,
            prompt_tokens=len(self.rendered.token_ids),
            neutralised=self.rendered.neutralised,
            notes=(*self.rendered.notes, *self.notes),
        )

    def completion(self, raw: str, finish_reason: FinishReason, notes: tuple[str, ...] = (), **more: Any) -> Completion:
        """Its completion when the model has said this."""
        split = split_reasoning(self.request.prefill + raw, self.rendered.opened_reasoning)
        return Completion(
            text=split.text,
            reasoning=split.reasoning,
            raw=raw,
            finish_reason=finish_reason,
            prompt_tokens=len(self.rendered.token_ids),
            clipped=finish_reason == "length" and self.most < self.request.sampling.max_tokens,
            neutralised=self.rendered.neutralised,
            notes=(*self.rendered.notes, *self.notes, *notes),
            prompt_hash=self.rendered.hash,
            **more,
        )


def fitted(request: ChatRequest, rendered: Rendered, context: int | None) -> Asked | Completion:
    """A request with what room a context of so many tokens leaves for its reply; its completion when that is none."""
    length, most = len(rendered.token_ids), request.sampling.max_tokens
    if context is None:
        return Asked(request, rendered, most)
    if length >= context:
        told = f"the prompt has {length} tokens and the context holds {context}: no room for a reply"
        return Asked(request, rendered, 0).failure(told, "too_long")
    return Asked(request, rendered, min(most, context - length))
