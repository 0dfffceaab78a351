"""Replies that are decoded together: left padding, one KV cache, one forward pass a token.

Rule 1: a reply sees its own tokens only; the padding on its left is masked and has no position.
Rule 2: a reply leaves when it ends, and others may join while the rest goes on.
Knows networks and tokenizers of transformers; refuses to know requests and memory.
"""

import inspect
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from debate_local.engines.hf_sampling import Choice, Chooser, choose

Ending = Literal["", "stop", "length", "broken", "cancelled"]


class Detokeniser:
    """The text of tokens that come one by one. Pieces add up to the text; an unfinished character waits."""

    # So many tokens of the prompt come before, since some tokenizers drop a blank at the beginning of a text.
    _CONTEXT = 8

    def __init__(self, tokenizer: Any, prompt: Sequence[int], skip_special: bool) -> None:
        self._tokenizer, self._skip_special = tokenizer, skip_special
        self._ids = list(prompt[-self._CONTEXT :])
        self._begin, self._read = 0, len(self._ids)

    def add(self, token: int) -> str:
        """The piece of text that a token brings, maybe none."""
        self._ids.append(token)
        before, now = self._decoded(self._ids[self._begin : self._read]), self._decoded(self._ids[self._begin :])
        if len(now) <= len(before) or now.endswith("\ufffd"):
            return ""
        self._begin, self._read = self._read, len(self._ids)
        return now[len(before) :]

    def whole(self, token: int) -> str:
        """A token by itself, special or not."""
        text: str = self._tokenizer.decode([token], clean_up_tokenization_spaces=False)
        return text

    def _decoded(self, ids: list[int]) -> str:
        text: str = self._tokenizer.decode(
            ids, skip_special_tokens=self._skip_special, clean_up_tokenization_spaces=False
        )
        return text


@dataclass(slots=True, eq=False)
class Reply:
    """One reply in the making.

    most: the number of tokens at which it is cut off. ends: tokens that end it. stop: strings that end it and are left
    out. pieces: one a token. ending: "" while it goes on. stop_reason: the stop string that ended it.
    """

    id: str
    prompt: list[int]
    chooser: Chooser
    detokeniser: Detokeniser
    most: int
    ends: Collection[int] = ()
    stop: tuple[str, ...] = ()
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)
    text: str = ""
    ending: Ending = ""
    stop_reason: str = ""

    @property
    def length(self) -> int:
        """Tokens of the prompt and of what is said so far."""
        return len(self.prompt) + len(self.tokens)

    def take(self, choice: Choice) -> None:
        """Add a chosen token, and end when it is the last."""
        if choice.broken:
            self.ending = "broken"
            return
        self.tokens.append(choice.token)
        if choice.logprob is not None:
            self.logprobs.append(choice.logprob)
        if choice.token in self.ends:
            self.pieces.append(self.detokeniser.whole(choice.token))
            self.ending = "stop"
            return
        self.pieces.append(self.detokeniser.add(choice.token))
        self.text += self.pieces[-1]
        if self.pieces[-1] and (found := self._stop_in(len(self.pieces[-1]))):
            place, self.stop_reason = found
            self.text = self.text[:place]
            self.ending = "stop"
        elif len(self.tokens) >= self.most:
            self.ending = "length"

    def _stop_in(self, new: int) -> tuple[int, str] | None:
        """Where the first stop string begins that the last `new` characters complete, and which it is."""
        begin = len(self.text) - new + 1
        found = [(self.text.find(stop, max(0, begin - len(stop))), stop) for stop in self.stop if stop]
        return min((one for one in found if one[0] >= 0), key=lambda one: one[0], default=None)


class Batch:
    """A network at work on some replies. Tensors are all on `device`."""

    def __init__(self, network: Any, device: str) -> None:
        self._network, self._device = network, device
        self._known = inspect.signature(network.forward).parameters
        self._cache: Any = None
        self._width = 0
        self.replies: list[Reply] = []

    @property
    def open(self) -> bool:
        """True when replies may join: nothing is going on, or every layer's cache is plain keys and values."""
        from transformers.cache_utils import DynamicLayer

        return self._cache is None or all(type(layer) is DynamicLayer for layer in self._cache.layers)

    @property
    def cache_bytes(self) -> int:
        """The size of the KV cache, for layers that have one."""
        layers = [] if self._cache is None else self._cache.layers
        tensors = [getattr(layer, name, None) for layer in layers for name in ("keys", "values")]
        return sum(tensor.nbytes for tensor in tensors if tensor is not None)

    def join(self, replies: Sequence[Reply]) -> None:
        """Read the prompts of new replies, equal ones once, and choose the first token of each."""
        import torch
        from transformers import DynamicCache

        self.replies += replies
        cache = DynamicCache(config=self._network.config)
        prompts = list(dict.fromkeys(tuple(reply.prompt) for reply in replies))
        width = max(map(len, prompts))
        # Any token will do as padding, since nobody sees it.
        ids = [[0] * (width - len(prompt)) + list(prompt) for prompt in prompts]
        logits = self._logits(ids, [len(prompt) for prompt in prompts], width, cache)
        if len(prompts) < len(replies):
            place = {prompt: place for place, prompt in enumerate(prompts)}
            copies = torch.tensor([place[tuple(reply.prompt)] for reply in replies], device=self._device)
            cache.reorder_cache(copies)
            logits = logits[copies.to(logits.device)]
        _take(replies, logits)
        if self._cache is None:
            self._cache, self._width = cache, width
        else:
            self._merge(cache, width)

    def step(self) -> None:
        """Choose the next token of every reply."""
        self._width += 1
        last = [[reply.tokens[-1]] for reply in self.replies]
        _take(self.replies, self._logits(last, [reply.length for reply in self.replies], self._width, self._cache))

    def take_ended(self) -> list[Reply]:
        """Remove the replies that have ended, and return them."""
        going = [place for place, reply in enumerate(self.replies) if not reply.ending]
        if len(going) == len(self.replies):
            return []
        ended = [reply for reply in self.replies if reply.ending]
        self.replies = [self.replies[place] for place in going]
        if going:
            self._shrink(going)
        else:
            self._cache, self._width = None, 0
        return ended

    def _logits(self, ids: list[list[int]], lengths: list[int], width: int, cache: Any) -> Any:
        """The logits after the last of `ids`, float32, in rows of which the last `lengths` places are no padding."""
        import torch

        places = torch.arange(width, device=self._device)[None]
        padding = width - torch.tensor(lengths, device=self._device)[:, None]
        arguments = {
            "input_ids": torch.tensor(ids, device=self._device),
            "attention_mask": (places >= padding).long(),
            "position_ids": (places - padding).clamp(min=0)[:, -len(ids[0]) :],
            "past_key_values": cache,
            "use_cache": True,
            "logits_to_keep": 1,
        }
        known = {name: value for name, value in arguments.items() if name in self._known}
        with torch.no_grad():
            logits = self._network(**known).logits[:, -1].float()
        # What choosing needs (large top-k, sorting) is not all to be had on MPS, whose memory is the CPU's anyway.
        return logits.cpu() if self._device == "mps" else logits

    def _merge(self, cache: Any, width: int) -> None:
        """Put another cache's rows below ours, both as wide as the wider one."""
        import torch

        whole = max(width, self._width)
        for ours, theirs in zip(self._cache.layers, cache.layers, strict=True):
            for name in ("keys", "values"):
                parts = [getattr(layer, name) for layer in (ours, theirs)]
                padded = [torch.nn.functional.pad(part, (0, 0, whole - part.shape[-2], 0)) for part in parts]
                setattr(ours, name, torch.cat(padded))
        self._width = whole

    def _shrink(self, going: list[int]) -> None:
        """Keep these rows, and no column that is padding in all of them."""
        import torch

        self._cache.reorder_cache(torch.tensor(going, device=self._device))
        # The last token chosen is not in the cache yet.
        spare = self._width - max(reply.length - 1 for reply in self.replies)
        if spare and self.open:
            for layer in self._cache.layers:
                layer.keys, layer.values = layer.keys[..., spare:, :], layer.values[..., spare:, :]
            self._width -= spare


def _take(replies: Sequence[Reply], logits: Any) -> None:
    for reply, choice in zip(replies, choose(logits, [reply.chooser for reply in replies]), strict=True):
        reply.take(choice)
