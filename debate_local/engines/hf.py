"""transformers in this process: requests in, completions out, as they finish.

Rule 1: a request that is bad, in whatever way, fails alone.
Rule 2: every reply has its own sampling, seed, limit and stop strings; up to the rounding of the arithmetic it does not
depend on what it is decoded with. The model's generation_config.json counts only where the sampling says so (None).
Rule 3: nothing is loaded before the first `submit`; identity and limits never need the model.
Knows requests and token ids; refuses to know debates.
"""

import contextlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from debate_local.core.chat import ChatRequest, Completion, Engine, EngineDead, Limits, Message
from debate_local.engines.chat_template import CannotRender, ChatTemplate
from debate_local.engines.hf_batch import Batch, Detokeniser, Reply
from debate_local.engines.hf_sampling import Chooser, stated
from debate_local.engines.hf_start import (
    LoadFailed,
    Options,
    Room,
    context_of,
    device_of,
    dtype_of,
    free_bytes,
    is_out_of_memory,
    load,
    release,
    use_adapter,
    weights_in_memory,
)
from debate_local.engines.local import Asked, LocalModel, fitted
from debate_local.engines.memory import GIB, Footprint
from debate_local.engines.silence import log_file

__all__ = ["HfEngine", "LoadFailed", "hf"]


def hf(
    model: str = "smollm2-135m-instruct",
    revision: str | None = None,
    dtype: str = "auto",
    device: str = "auto",
    max_model_len: int | None = None,
    batch_tokens: int | None = None,
    attn_implementation: str | None = None,
    trust_remote_code: bool = False,
    chat_template: str | None = None,
    adapters: dict[str, str] = {},  # noqa: B006  never changed
) -> Engine:
    """transformers in this process, on a GPU (CUDA, MPS) or the CPU.

    model: smollm2-135m-instruct, a folder, a .gguf file or a hub id. device: auto, cuda, cuda:1, mps or cpu.
    max_model_len: tokens of prompt and reply together. batch_tokens: the size of a batch, its rows times the longest
    prompt and reply; null: by memory. attn_implementation: transformers' name. chat_template: a template's text or
    file, instead of the model's own. adapters: name -> folder of a LoRA adapter (needs peft); each name is a model.
    Raises WeightsMissing, ValueError; LoadFailed at the first `submit`.
    """
    return HfEngine(Options(**locals()))


class HfEngine:
    """An engine (core.chat.Engine) around a transformers model. One thread at a time may use it.

    Its work is done within `poll`, a token of every running reply at a time. log_path: a file for all that transformers
    says while loading, set before the first `submit`; by default DEBATE_LOCAL_ENGINE_LOG, or none. on_open: called
    when loading begins.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._model = LocalModel(options)
        self._context = context_of(options, self._model.weights)
        self._network: Any = None
        self._batch: Batch | None = None
        self._room: Room | None = None
        self._gone: str | None = None
        self._waiting: list[Asked] = []
        self._running: dict[str, Asked] = {}
        self._ready: list[tuple[str, Completion]] = []
        self._load_seconds: float | None = None
        self._halved = 0
        self.log_path: str | None = os.environ.get("DEBATE_LOCAL_ENGINE_LOG")
        self.on_open: Callable[[], None] | None = None

    # What is known without the model

    @cached_property
    def identity(self) -> Mapping[str, Mapping[str, Any]]:
        """Model name -> what determines its replies: never device or batch size, never a path."""
        # A reply that one context cut off, or had no room for, another one may hold.
        return self._model.identity("hf", dtype=self._dtype, max_model_len=self._context)

    @property
    def limits(self) -> Limits:
        return Limits(self._context, self._model.names, seed=True, logprobs=True, prefill=True)

    @property
    def facts(self) -> Mapping[str, Any]:
        """For run.json and logs: versions, device, weights, and the settings that set the speed."""
        room = self._room
        return {
            "engine": "hf",
            "versions": {name: found for name in ("torch", "transformers", "peft") if (found := _version(name))},
            "device": self._device_name(),
            "weights": self._model.facts,
            "settings": {"dtype": self._dtype, "max_model_len": self._context},
            "speed": {
                "attn_implementation": getattr(getattr(self._network, "config", None), "_attn_implementation", None),
                "batch_tokens": self._options.batch_tokens,
                "batch_bytes": None if room is None or room.by_tokens else int(room.capacity),
            },
            "load_seconds": self._load_seconds,
            "counters": {"batches halved for memory": self._halved},
        }

    @property
    def footprint(self) -> Footprint:
        """What it takes on its device while it is open: the weights, and half as much or 1 GiB for a batch."""
        device = self._device
        weights = weights_in_memory(self._model, self._dtype)
        # Looking at a GPU through torch is what opening will do in this process anyway.
        return Footprint(device, weights + max(GIB, weights // 2), free_bytes(device), "engine.batch_tokens")

    def count_tokens(self, messages: Sequence[Message]) -> int:
        """The length of the prompt of these messages, by the tokenizer alone. Raises CannotRender."""
        return self._template.count(messages)

    @cached_property
    def _dtype(self) -> str:
        return dtype_of(self._options, self._model.config)

    @cached_property
    def _device(self) -> str:
        return device_of(self._options.device)

    def _device_name(self) -> str:
        if self._network is None:
            return self._options.device
        import torch

        return str(torch.cuda.get_device_name(self._device)) if self._device.startswith("cuda") else self._device

    @cached_property
    def _template(self) -> ChatTemplate:
        return self._model.template(log_file(self.log_path))

    @cached_property
    def _defaults(self) -> Mapping[str, Any]:
        """The model's generation_config.json: which tokens end a reply, and what None in a sampling means."""
        file = Path(self._model.weights.path) / "generation_config.json"
        return dict(json.loads(file.read_text(encoding="utf-8"))) if file.is_file() else {}

    @cached_property
    def _ends(self) -> frozenset[int]:
        own = self._defaults.get("eos_token_id", self._model.config.get("eos_token_id"))
        found = [self._template.tokenizer.eos_token_id, *(own if isinstance(own, list) else [own])]
        return frozenset(token for token in found if token is not None)

    # Start and end

    def open(self) -> None:
        """Load the model, once. Raises LoadFailed, and CannotRender without a tokenizer or a chat template."""
        if self._gone is not None:
            raise EngineDead(self._gone)
        if self._network is not None:
            return
        _ = self._template
        if self.on_open is not None:
            self.on_open()
        began = time.monotonic()
        log = log_file(self.log_path)
        self._network, self._room = load(self._options, self._model, self._dtype, self._device, log)
        self._batch = Batch(self._network, self._device)
        self._load_seconds = round(time.monotonic() - began, 1)

    def close(self) -> None:
        """Free the model's memory. What is outstanding is lost. Twice is fine."""
        self._gone = self._gone or "this engine is closed; make a new one"
        loaded, self._network, self._batch = self._network is not None, None, None
        self._waiting.clear()
        self._running.clear()
        self._ready.clear()
        if loaded:
            release(self._device)

    # Requests

    def submit(self, requests: Sequence[ChatRequest]) -> None:
        """Take requests; bad ones come back from `poll` at once. Raises EngineDead, LoadFailed."""
        self.open()
        for request in requests:
            try:
                self._submit(request)
            except (CannotRender, ValueError) as error:
                self._ready.append((request.id, Completion.failure(str(error))))
        # The longest first: they are the later rounds, which end debates, and like lengths need the least padding.
        self._waiting.sort(key=lambda asked: -asked.longest)

    def _submit(self, request: ChatRequest) -> None:
        self._model.require(request.model)
        if request.schema is not None:
            raise CannotRender("engine hf cannot keep a reply to a schema; use engine=vllm or engine=openai")
        stated(request.sampling, self._defaults)
        rendered = self._template.render(request)
        if not rendered.token_ids:
            raise CannotRender("the chat template makes an empty prompt of the conversation")
        if (highest := max(rendered.token_ids)) >= (known := self._vocabulary):
            raise CannotRender(f"the tokenizer gives token {highest}, and the model knows tokens below {known} only")
        asked = fitted(request, rendered, self._context)
        if isinstance(asked, Asked):
            self._waiting.append(asked)
        else:
            self._ready.append((request.id, asked))

    @cached_property
    def _vocabulary(self) -> int:
        return int(self._network.get_input_embeddings().num_embeddings)

    def poll(self, timeout: float) -> list[tuple[str, Completion]]:
        """Whatever has finished; at most `timeout` seconds of work, and one token's at least. Raises EngineDead."""
        if self._gone is not None:
            raise EngineDead(self._gone)
        done, self._ready = self._ready, []
        deadline = time.monotonic() + timeout
        while not done and (self._waiting or self._running):
            self._work()
            done, self._ready = self._ready, []
            if time.monotonic() >= deadline:
                break
        return done

    def cancel(self, ids: Sequence[str]) -> None:
        """Forget requests; unknown ids are ignored."""
        gone = set(ids)
        self._ready = [(name, completion) for name, completion in self._ready if name not in gone]
        self._waiting = [asked for asked in self._waiting if asked.request.id not in gone]
        if self._batch is not None and not gone.isdisjoint(self._running):
            for reply in self._batch.replies:
                if reply.id in gone:
                    reply.ending = "cancelled"
                    del self._running[reply.id]
            self._batch.take_ended()

    # Work

    def _work(self) -> None:
        """Let waiting replies join, or give every running one its next token; collect those that ended."""
        assert self._batch is not None
        try:
            if joining := self._joining(self._batch):
                self._running.update((asked.request.id, asked) for asked in joining)
                self._waiting = [asked for asked in self._waiting if asked.request.id not in self._running]
                use_adapter(self._network, joining[0].request.model, self._model.adapters)
                self._batch.join([self._reply(asked) for asked in joining])
            else:
                self._batch.step()
            ended = self._batch.take_ended()
        except Exception as error:
            if not is_out_of_memory(error):
                self._gone = f"the model failed: {type(error).__name__}: {error}"
                raise EngineDead(self._gone) from error
            ended = None
        if ended is None:
            # Out here the exception is gone, and with it what its frames held.
            self._make_do_with_less()
            return
        for reply in ended:
            self._ready.append((reply.id, _completion(self._running.pop(reply.id), reply)))

    def _joining(self, batch: Batch) -> list[Asked]:
        """Those that begin now: as many as fit, unless they are too few to stop the others for."""
        assert self._room is not None
        running = list(self._running.values())
        if not self._waiting or not batch.open:
            return []
        model = (running or self._waiting)[0].request.model
        joining: list[Asked] = []
        longest = max((asked.longest for asked in running), default=0)
        prompt = 0
        for asked in self._waiting:
            if asked.request.model != model:
                continue
            longest, prompt = max(longest, asked.longest), max(prompt, len(asked.rendered.token_ids))
            first = not running and not joining
            if not first and not self._room.holds(len(running) + len(joining) + 1, longest, prompt):
                break
            joining.append(asked)
        return joining if len(joining) * _FEWEST_SHARE >= len(running) else []

    def _reply(self, asked: Asked) -> Reply:
        request, prompt = asked.request, asked.rendered.token_ids
        return Reply(
            id=request.id,
            prompt=prompt,
            chooser=Chooser(stated(request.sampling, self._defaults), prompt, request.logprobs),
            detokeniser=Detokeniser(self._template.tokenizer, prompt, not self._template.reasoning_is_special),
            most=asked.most,
            ends=self._ends,
            stop=request.sampling.stop,
        )

    def _make_do_with_less(self) -> None:
        """After memory was at an end: begin the same replies again, fewer at a time."""
        assert self._room is not None
        again = list(self._running.values())
        self._running.clear()
        self._batch = Batch(self._network, self._device)
        release(self._device)
        if len(again) == 1:
            told = f"too little memory for one reply of up to {again[0].longest} tokens; lower sampling.max_tokens"
            self._ready.append((again[0].request.id, Completion.failure(f"{told} or engine.max_model_len")))
            return
        self._halved += 1
        longest, prompt = max(asked.longest for asked in again), max(len(asked.rendered.token_ids) for asked in again)
        self._room.halve(len(again), longest, prompt)
        self._waiting = sorted([*again, *self._waiting], key=lambda asked: -asked.longest)


# Reading prompts stops all that runs: the newcomers must be at least this part of them, 1 in 8.
_FEWEST_SHARE = 8


def _version(package: str) -> str | None:
    with contextlib.suppress(PackageNotFoundError):
        return version(package)
    return None


def _completion(asked: Asked, reply: Reply) -> Completion:
    """A reply that has ended, as a completion."""
    if reply.ending not in ("stop", "length"):
        return asked.failure("the model's scores are not numbers; engine.dtype=bfloat16 or float32 may help")
    return asked.completion(
        reply.text,
        reply.ending,
        generated_tokens=len(reply.tokens),
        logprobs=tuple(zip(reply.pieces, reply.logprobs, strict=True)) if asked.request.logprobs else None,
        stop_reason=reply.stop_reason,
    )
