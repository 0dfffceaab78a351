"""vLLM in this process: requests in, completions out, as they finish.

Knows requests, token ids and vLLM; refuses to know debates.

Rule 1: a request that is bad, in whatever way, fails alone: each is rendered, checked and handed over by itself.
Rule 2: every sampling field is stated; vLLM fills in nothing.
Rule 3: nothing is loaded before the first `submit`; identity and limits never need the model.
"""

import contextlib
import itertools
import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import psutil

from debate_local.core.chat import ChatRequest, Completion, Engine, EngineDead, Limits, Message, split_reasoning
from debate_local.engines.adapters import misfit
from debate_local.engines.chat_template import CannotRender, ChatTemplate, Rendered, read_template
from debate_local.engines.memory import Footprint
from debate_local.engines.vllm_start import (
    SPEED,
    EngineStartFailed,
    Options,
    Settings,
    check_visible_devices,
    context_of,
    cpu_build,
    dtype_of,
    footprint_of,
    last_failures,
    processes_of,
    settings_for,
    start,
    stop,
    version_of,
)
from debate_local.engines.weights import config_of, fingerprint, kv_bytes_a_token, resolve

__all__ = ["EngineStartFailed", "VllmEngine", "vllm"]


def vllm(
    model: str = "smollm2-135m-instruct",
    revision: str | None = None,
    dtype: str = "auto",
    max_model_len: int | None = None,
    gpu_memory_utilization: float | None = None,
    kv_cache_gib: float | None = None,
    tensor_parallel_size: int = 1,
    pipeline_parallel_size: int = 1,
    quantization: str | None = None,
    enforce_eager: bool | None = None,
    kv_cache_dtype: str = "auto",
    max_num_seqs: int | None = None,
    max_num_batched_tokens: int | None = None,
    enable_prefix_caching: bool = True,
    trust_remote_code: bool = False,
    chat_template: str | None = None,
    adapters: dict[str, str] = {},  # noqa: B006  never changed
    seed: int = 0,
    extra: dict[str, Any] = {},  # noqa: B006  never changed
) -> Engine:
    """vLLM in this process, on GPUs or, with a CPU build, on the CPU.

    model: smollm2-135m-instruct, a folder, a .gguf file or a hub id. kv_cache_gib: GiB of KV cache a device, instead of
    gpu_memory_utilization. chat_template: a template's text or file, instead of the model's own. adapters: name ->
    folder of a LoRA adapter; each name is a model. seed: of the engine; requests bring their own. extra: any further
    argument of vllm.EngineArgs. Raises WeightsMissing, ValueError; EngineStartFailed at the first `submit`.
    """
    return VllmEngine(Options(**locals()))


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request that vLLM has. clipped: the context leaves fewer tokens than were asked for."""

    request: ChatRequest
    rendered: Rendered
    clipped: bool
    notes: tuple[str, ...]


class VllmEngine:
    """An engine (core.chat.Engine) around `vllm.LLM`. One thread at a time may use it.

    log_path: a file for all that vLLM says, set before the first `submit`; by default DEBATE_LOCAL_ENGINE_LOG, or a
    file that is gone with the engine. on_open: called when loading begins, which takes half a minute and more.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._weights = resolve(options.model, options.revision)
        self._config = config_of(self._weights.path)
        for name, folder in options.adapters.items():
            if reason := misfit(folder, self._weights.path):
                raise ValueError(f"engine.adapters.{name}={folder!r} is no adapter of {self._weights.name}: {reason}")
        self._cpu = cpu_build()
        self._models = ("default", *options.adapters)
        self._stated_context = context_of(options, self._weights, self._cpu)
        self._llm: Any = None
        self._closed = False
        self._processes: list[psutil.Process] = []
        self._asked: dict[str, _Asked] = {}
        self._names: dict[str, str] = {}
        self._ready: list[tuple[str, Completion]] = []
        self._numbers = itertools.count()
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._load_seconds: float | None = None
        self._log_size = 0
        self.log_path: str | None = os.environ.get("DEBATE_LOCAL_ENGINE_LOG")
        self.on_open: Callable[[], None] | None = None

    # What is known without the model

    @cached_property
    def identity(self) -> Mapping[str, Mapping[str, Any]]:
        """Model name -> what determines its replies: never the speed settings, never a path."""
        options, weights = self._options, self._weights
        source: dict[str, Any] = (
            {"model": weights.name, "revision": weights.revision}
            if weights.kind == "hub"
            else {"weights": fingerprint(weights.path)}
        )
        base = {
            "kind": "vllm",
            **source,
            "dtype": dtype_of(options, weights, self._config, self._cpu),
            "quantization": options.quantization,
            "kv_cache_dtype": options.kv_cache_dtype,
            # A reply that one context cut off, or had no room for, another one may hold.
            "max_model_len": self._stated_context if self._cpu else options.max_model_len,
            "chat_template": None if options.chat_template is None else read_template(options.chat_template),
            **{name: value for name, value in options.extra.items() if name not in SPEED},
        }
        adapters = {
            name: {**base, "adapter": fingerprint(Path(folder).expanduser())}
            for name, folder in options.adapters.items()
        }
        return {"default": base, **adapters}

    @property
    def limits(self) -> Limits:
        """The context is what config.json and the options say, and vLLM's own word once it is loaded."""
        length = self._stated_context if self._llm is None else self._context
        return Limits(length, self._models, seed=True, logprobs=True, prefill=True, schema=True, priority=True)

    @property
    def facts(self) -> Mapping[str, Any]:
        """For run.json and logs: versions, device, weights, the settings used, those that set the speed, and why."""
        try:
            settings = self._settings
        except EngineStartFailed as error:
            settings = Settings({}, why=(str(error),))
        return {
            "engine": "vllm",
            "versions": {name: version_of(name) for name in ("vllm", "torch", "transformers")},
            "device": self._device(),
            "weights": {"name": self._weights.name, "kind": self._weights.kind, "revision": self._weights.revision},
            "settings": dict(settings.arguments),
            "speed": {name: value for name, value in settings.arguments.items() if name in SPEED},
            "environment": dict(settings.environment),
            "why": list(settings.why),
            "load_seconds": self._load_seconds,
            "counters": self._counters(),
        }

    @property
    def footprint(self) -> Footprint:
        """What it takes on its device while it is open, about, and what is free there now."""
        return footprint_of(self._options, self._weights, self._cpu)

    @property
    def kv_tokens(self) -> int | None:
        """Tokens that the KV cache holds, about; None where its size is vLLM's to choose, or config.json is silent."""
        size, each = self._settings.arguments.get("kv_cache_memory_bytes"), kv_bytes_a_token(self._config)
        return size // each if size and each else None

    def count_tokens(self, messages: Sequence[Message]) -> int:
        """The length of the prompt of these messages, by the tokenizer alone. Raises CannotRender."""
        return self._template.count(messages)

    @cached_property
    def _template(self) -> ChatTemplate:
        options = self._options
        folder = options.extra.get("tokenizer", self._weights.path)
        return ChatTemplate.load(folder, options.chat_template, options.trust_remote_code)

    @cached_property
    def _settings(self) -> Settings:
        return settings_for(self._options, self._weights, self._config, self._cpu)

    def _device(self) -> str:
        if self._cpu:
            return "cpu"
        if self._llm is None:
            return "gpu"
        from vllm.platforms import current_platform

        return str(current_platform.get_device_name())

    def _counters(self) -> dict[str, float]:
        """vLLM's counters (prefix-cache hits, pre-emptions, ...); none unless engine.extra.disable_log_stats=false."""
        if self._llm is None or self._settings.arguments.get("disable_log_stats"):
            return {}
        return {metric.name: metric.value for metric in self._llm.get_metrics() if hasattr(metric, "value")}

    # Start and end

    def open(self) -> None:
        """Load the model, once. Raises EngineStartFailed, and CannotRender for a model without a chat template."""
        if self._llm is not None:
            return
        if self._closed:
            raise EngineDead("this engine is closed; make a new one")
        if not self._cpu:
            options = self._options
            elsewhere = options.extra.keys() & {"distributed_executor_backend", "nnodes"}
            wanted = 1 if elsewhere else options.tensor_parallel_size * options.pipeline_parallel_size
            check_visible_devices(os.environ.get("CUDA_VISIBLE_DEVICES"), wanted)
        _ = self._template
        if self.on_open is not None:
            self.on_open()
        began = time.monotonic()
        self._llm = start(self._settings, self._log())
        self._processes = processes_of(self._llm)
        self._load_seconds = round(time.monotonic() - began, 1)
        self._log_size = self._log().stat().st_size

    def close(self) -> None:
        """End vLLM and all its processes, and free the memory. What is outstanding is lost. Twice is fine."""
        llm, self._llm, self._closed = self._llm, None, True
        self._asked.clear()
        self._names.clear()
        self._ready.clear()
        if llm is not None:
            stop(llm, self._processes)
            self._processes = []
        if self._scratch is not None:
            self._scratch.cleanup()
            self._scratch = None

    def _log(self) -> Path:
        if self.log_path is None:
            self._scratch = self._scratch or tempfile.TemporaryDirectory(prefix="debate-local-vllm-")
            return Path(self._scratch.name) / "vllm.log"
        path = Path(self.log_path).resolve()
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    # Requests

    def submit(self, requests: Sequence[ChatRequest]) -> None:
        """Hand requests over; bad ones come back from `poll` at once. Raises EngineDead, EngineStartFailed."""
        self.open()
        for request in requests:
            try:
                self._submit(request)
            except CannotRender as error:
                self._ready.append((request.id, Completion.failure(str(error))))

    def _submit(self, request: ChatRequest) -> None:
        if request.model not in self._models:
            raise CannotRender(f"this engine has no model {request.model!r}; its models: {', '.join(self._models)}")
        rendered = self._template.render(request)
        room = self._context - len(rendered.token_ids)
        if room < 1:
            self._ready.append((request.id, _too_long(rendered, self._context)))
            return
        name = str(next(self._numbers))
        try:
            params = self._sampling_params(request, room)
            self._llm.llm_engine.add_request(
                name,
                {"type": "token", "prompt_token_ids": rendered.token_ids},
                params,
                lora_request=self._adapters.get(request.model),
                priority=request.priority,
            )
        except Exception as error:
            # vLLM refuses a request by many kinds of exception; a dead engine is told by its state.
            self._require_alive(error)
            raise CannotRender(f"vLLM refuses the request: {type(error).__name__}: {error}") from error
        self._names[request.id] = name
        notes = (*rendered.notes, *_temperature_note(params.temperature, request.sampling.temperature))
        self._asked[name] = _Asked(request, rendered, room < request.sampling.max_tokens, notes)

    @cached_property
    def _context(self) -> int:
        return int(self._llm.llm_engine.model_config.max_model_len)

    @cached_property
    def _adapters(self) -> dict[str, Any]:
        from vllm.lora.request import LoRARequest

        return {
            name: LoRARequest(name, number, str(Path(folder).expanduser().resolve()))
            for number, (name, folder) in enumerate(self._options.adapters.items(), start=1)
        }

    @cached_property
    def _defaults(self) -> Any:
        return self._llm.get_default_sampling_params()

    def _sampling_params(self, request: ChatRequest, room: int) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

        sampling = request.sampling
        stated = {
            name: getattr(self._defaults, name) if (value := getattr(sampling, name)) is None else value
            for name in _SAMPLING
        }
        return SamplingParams(
            **stated,
            stop=list(sampling.stop),
            max_tokens=min(sampling.max_tokens, room),
            seed=None if sampling.greedy else sampling.seed,
            logprobs=0 if request.logprobs else None,
            skip_special_tokens=not self._template.reasoning_is_special,
            structured_outputs=None
            if request.schema is None
            else StructuredOutputsParams(json=json.dumps(request.schema)),
            output_kind=RequestOutputKind.FINAL_ONLY,
        )

    def poll(self, timeout: float) -> list[tuple[str, Completion]]:
        """Whatever has finished, waiting at most `timeout` seconds for the first. Raises EngineDead."""
        done, self._ready = self._ready, []
        deadline = time.monotonic() + timeout
        while self._asked and not done and self._output_waits(deadline):
            try:
                outputs = self._llm.llm_engine.step()
            except Exception as error:
                raise self._dead(error) from error
            for output in outputs:
                if output.finished and (asked := self._asked.pop(output.request_id, None)):
                    del self._names[asked.request.id]
                    done.append((asked.request.id, _completion(asked, output)))
        return done

    def cancel(self, ids: Sequence[str]) -> None:
        """Forget requests; unknown ids are ignored."""
        gone = set(ids)
        self._ready = [(name, completion) for name, completion in self._ready if name not in gone]
        names = [self._names.pop(name) for name in ids if name in self._names]
        for name in names:
            del self._asked[name]
        if names and self._llm is not None:
            with contextlib.suppress(Exception):
                # An engine that died says so at the next `poll`.
                self._llm.llm_engine.abort_request(names)

    def _output_waits(self, deadline: float) -> bool:
        """True when a step returns at once. `step` alone would wait without end, even for a killed engine."""
        core = self._llm.llm_engine.engine_core
        queue = getattr(core, "outputs_queue", None)
        if queue is None:
            return True  # vLLM runs in this process: a step is work, not waiting
        while not queue.queue:
            self._require_alive(None)
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            with queue.not_empty:
                if not queue.queue:
                    queue.not_empty.wait(min(left, 1.0))
        return True

    def _require_alive(self, cause: Exception | None) -> None:
        from vllm.v1.engine.exceptions import EngineDeadError

        resources = getattr(self._llm.llm_engine.engine_core, "resources", None)
        if isinstance(cause, EngineDeadError) or getattr(resources, "engine_dead", False):
            raise self._dead(cause) from cause

    def _dead(self, cause: Exception | None) -> EngineDead:
        said = "; ".join(last_failures(self._log(), self._log_size, most=1)) or str(
            cause or "one of its processes was killed"
        )
        where = f"; its log: {self.log_path}" if self.log_path else ""
        return EngineDead(f"vLLM has died: {said}{where}")


_SAMPLING = ("temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty")


def _temperature_note(used: float, asked: float | None) -> tuple[str, ...]:
    return () if asked is None or used == asked else (f"vLLM raised temperature {asked:g} to {used:g}",)


def _too_long(rendered: Rendered, context: int) -> Completion:
    length = len(rendered.token_ids)
    return Completion.failure(
        f"the prompt has {length} tokens and the context holds {context}: no room for a reply",
        "too_long",
        prompt_tokens=length,
        neutralised=rendered.neutralised,
        notes=rendered.notes,
    )


def _completion(asked: _Asked, output: Any) -> Completion:
    """A finished request of vLLM as ours."""
    reply = output.outputs[0]
    prompt_tokens = len(asked.rendered.token_ids)
    if reply.finish_reason not in ("stop", "length"):
        return Completion.failure(f"vLLM ended the request: {reply.finish_reason}", prompt_tokens=prompt_tokens)
    split = split_reasoning(asked.request.prefill + reply.text, asked.rendered.opened_reasoning)
    logprobs = _logprobs(reply) if asked.request.logprobs else None
    lost = asked.request.logprobs and logprobs is None
    return Completion(
        text=split.text,
        reasoning=split.reasoning,
        raw=reply.text,
        finish_reason=reply.finish_reason,
        prompt_tokens=prompt_tokens,
        generated_tokens=len(reply.token_ids),
        cached_prompt_tokens=output.num_cached_tokens or 0,
        logprobs=logprobs,
        clipped=asked.clipped and reply.finish_reason == "length",
        neutralised=asked.rendered.neutralised,
        notes=(*asked.notes, "log-probabilities are missing") if lost else asked.notes,
    )


def _logprobs(reply: Any) -> tuple[tuple[str, float], ...] | None:
    """Piece and log-probability of each generated token; None when any is missing: it must not count as 0."""
    if reply.logprobs is None or len(reply.logprobs) != len(reply.token_ids):
        return None
    found = [at.get(token) for token, at in zip(reply.token_ids, reply.logprobs, strict=True)]
    if any(one is None for one in found):
        return None
    return tuple((one.decoded_token or "", float(one.logprob)) for one in found)
