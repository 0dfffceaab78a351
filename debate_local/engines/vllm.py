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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import psutil

from debate_local.core.chat import ChatRequest, Completion, Engine, EngineDead, Limits, Message
from debate_local.engines.chat_template import CannotRender, ChatTemplate
from debate_local.engines.local import Asked, LocalModel, fitted
from debate_local.engines.memory import GIB, Footprint, gpu_names, ram
from debate_local.engines.place import Place
from debate_local.engines.silence import log_file
from debate_local.engines.vllm_settings import (
    SLEEP_MODE,
    SPEED,
    EngineStartFailed,
    Options,
    Settings,
    check_visible_devices,
    context_of,
    cpu_build,
    dtype_of,
    footprint_of,
    no_batch_invariance,
    seeds_reach,
    settings_for,
    version_of,
)
from debate_local.engines.vllm_start import batching_of, last_failures, processes_of, start, stop
from debate_local.engines.weights import kv_bytes_a_token, weight_bytes

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
    batch_invariant: bool | None = None,
    extra: dict[str, Any] = {},  # noqa: B006  never changed
) -> Engine:
    """vLLM in this process, on GPUs or, with a CPU build, on the CPU.

    model: smollm2-135m-instruct, a folder, a .gguf file or a hub id. kv_cache_gib: GiB of KV cache a device, instead of
    gpu_memory_utilization. chat_template: a template's text or file, instead of the model's own. adapters: name ->
    folder of a LoRA adapter; each name is a model. seed: of the engine; requests bring their own. batch_invariant:
    replies that do not depend on what is answered with them, on the same GPU and version, for some speed (GPUs only);
    without it rounding does, and now and then a word; null: as VLLM_BATCH_INVARIANT says. extra: any further argument
    of vllm.EngineArgs. Raises WeightsMissing, ValueError; EngineStartFailed at the first `submit`.
    """
    return VllmEngine(Options(**locals()))


class VllmEngine:
    """An engine (core.chat.Engine) around `vllm.LLM`. One thread at a time may use it.

    log_path: a file for all that vLLM says, set before the first `submit`; by default DEBATE_LOCAL_ENGINE_LOG, or a
    file that is gone with the engine. on_open: called when loading begins, which takes half a minute and more.
    takes_turns: other engines want its GPU in between, and it may be asked to sleep; set before anything is asked.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._model = LocalModel(options, options.extra.get("tokenizer"))
        self._cpu = cpu_build()
        if options.invariant and (reason := no_batch_invariance(self._cpu)):
            raise ValueError(f"engine.batch_invariant=true: {reason}; set it to false")
        self._seeds = seeds_reach(options, self._cpu)
        self._stated_context = context_of(options, self._model.weights, self._cpu)
        self._llm: Any = None
        self._place: Place | None = None
        self._closed = False
        self._processes: list[psutil.Process] = []
        self._asked: dict[str, Asked] = {}
        self._names: dict[str, str] = {}
        self._ready: list[tuple[str, Completion]] = []
        self._numbers = itertools.count()
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._load_seconds: float | None = None
        # Bytes that it has given back and takes again at its next `submit`.
        self._lent: int | None = None
        self.takes_turns = False
        self._log_size = 0
        self.log_path: str | None = os.environ.get("DEBATE_LOCAL_ENGINE_LOG")
        self.on_open: Callable[[], None] | None = None

    # What is known without the model

    @cached_property
    def identity(self) -> Mapping[str, Mapping[str, Any]]:
        """Model name -> what determines its replies: never the speed settings, never a path."""
        options = self._options
        return self._model.identity(
            "vllm",
            dtype=dtype_of(options, self._model.config, self._cpu),
            quantization=options.quantization,
            kv_cache_dtype=options.kv_cache_dtype,
            # A reply that one context cut off, or had no room for, another one may hold.
            max_model_len=self._stated_context if self._cpu else options.max_model_len,
            **{name: value for name, value in options.extra.items() if name not in SPEED},
            # Only where it is on, so that it makes a record of its own.
            **({"batch_invariant": True} if options.invariant else {}),
        )

    @property
    def limits(self) -> Limits:
        """The context is what config.json and the options say, and vLLM's own word once it is loaded."""
        length = self._stated_context if self._llm is None else self._context
        seeds, models = self._seeds, self._model.names
        return Limits(length, models, seed=seeds, logprobs=True, prefill=True, schema=True, priority=True)

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
            "weights": self._model.facts,
            "settings": dict(settings.arguments),
            # A turn's sleep changes nothing of the turn itself.
            "speed": {n: value for n, value in settings.arguments.items() if n in SPEED and n != SLEEP_MODE},
            "environment": dict(settings.environment),
            "batches": {} if self._llm is None else batching_of(self._llm),
            # What one batch answered another one may round to other words: only what is stored can be had again.
            "texts_depend_on_batches": not self._options.invariant,
            "seeds_honoured": self._seeds,
            "why": list(settings.why),
            "load_seconds": self._load_seconds,
            "counters": self._counters(),
        }

    @property
    def footprint(self) -> Footprint:
        """What it takes on its device while it is open, about, and what is free there now."""
        found = footprint_of(self._options, self._model.weights, self._cpu)
        return found if self._lent is None else replace(found, needed=self._lent)

    @property
    def kv_tokens(self) -> int | None:
        """Tokens that the KV cache holds, about; None where its size is vLLM's to choose, or config.json is silent."""
        size, each = self._settings.arguments.get("kv_cache_memory_bytes"), kv_bytes_a_token(self._model.config)
        return size // each if size and each else None

    def count_tokens(self, messages: Sequence[Message]) -> int:
        """The length of the prompt of these messages, by the tokenizer alone. Raises CannotRender."""
        return self._template.count(messages)

    @cached_property
    def _template(self) -> ChatTemplate:
        return self._model.template(log_file(self.log_path))

    @cached_property
    def _settings(self) -> Settings:
        return settings_for(self._options, self._model, self._cpu, self.takes_turns)

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
        """Load the model, once. Raises EngineStartFailed, and CannotRender without a tokenizer or a chat template."""
        if self._llm is not None:
            self._wake()
            return
        if self._closed:
            raise EngineDead("this engine is closed; make a new one")
        if not self._cpu:
            options = self._options
            elsewhere = options.extra.keys() & {"distributed_executor_backend", "nnodes"}
            wanted = 1 if elsewhere else options.tensor_parallel_size * options.pipeline_parallel_size
            check_visible_devices(os.environ.get("CUDA_VISIBLE_DEVICES"), wanted, gpu_names())
        _ = self._template
        if self.on_open is not None:
            self.on_open()
        began = time.monotonic()
        self._llm, self._place = start(self._settings, self._log())
        self._processes = processes_of(self._llm)
        self._load_seconds = round(time.monotonic() - began, 1)
        self._log_size = self._log().stat().st_size

    @property
    def can_sleep(self) -> bool:
        """True when it can give its GPU's memory back without ending: its weights wait in RAM, if they fit there."""
        if self._llm is None or self._cpu or not self._settings.arguments.get(SLEEP_MODE):
            return False
        return ram().free > weight_bytes(self._model.weights.path) + GIB

    def sleep(self) -> None:
        """Give the GPU's memory back until the next `submit`; nothing may be outstanding. Raises EngineDead."""
        before = self.footprint.free
        with self._dying():
            self._llm.sleep(level=1)
        after = self.footprint.free
        self._lent = 0 if before is None or after is None else max(0, after - before)

    def _wake(self) -> None:
        if self._lent is not None:
            with self._dying():
                self._llm.wake_up()
            self._lent = None

    def close(self) -> None:
        """End vLLM and all its processes, and free the memory. What is outstanding is lost. Twice is fine."""
        llm, self._llm, self._closed = self._llm, None, True
        self._asked.clear()
        self._names.clear()
        self._ready.clear()
        if llm is not None:
            stop(llm, self._processes)
            self._processes = []
        if self._place is not None:
            self._place.release()
            self._place = None
        if self._scratch is not None:
            self._scratch.cleanup()
            self._scratch = None

    def _log(self) -> Path:
        if self.log_path is None:
            self._scratch = self._scratch or tempfile.TemporaryDirectory(prefix="debate-local-vllm-")
            return Path(self._scratch.name) / "vllm.log"
        return log_file(self.log_path)

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
        self._model.require(request.model)
        rendered = self._template.render(request)
        asked = fitted(request, rendered, self._context)
        if not isinstance(asked, Asked):
            self._ready.append((request.id, asked))
            return
        name = str(next(self._numbers))
        try:
            params = self._sampling_params(request, asked.most)
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
        notes = _temperature_note(params.temperature, request.sampling.temperature)
        if not self._seeds and not request.sampling.greedy:
            notes = (*notes, "the seed is not honoured")
        self._asked[name] = replace(asked, notes=notes)

    @cached_property
    def _context(self) -> int:
        return int(self._llm.llm_engine.model_config.max_model_len)

    @cached_property
    def _adapters(self) -> dict[str, Any]:
        from vllm.lora.request import LoRARequest

        return {
            name: LoRARequest(name, number, folder)
            for number, (name, folder) in enumerate(self._model.adapters.items(), start=1)
        }

    @cached_property
    def _defaults(self) -> Any:
        return self._llm.get_default_sampling_params()

    def _sampling_params(self, request: ChatRequest, most: int) -> Any:
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
            max_tokens=most,
            seed=None if sampling.greedy or not self._seeds else sampling.seed,
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
            with self._dying():
                outputs = self._llm.llm_engine.step()
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

    @contextlib.contextmanager
    def _dying(self) -> Iterator[None]:
        """Whatever vLLM raises meanwhile is its end."""
        try:
            yield
        except Exception as error:
            raise self._dead(error) from error

    def _dead(self, cause: Exception | None) -> EngineDead:
        said = "; ".join(last_failures(self._log(), self._log_size, most=1)) or str(
            cause or "one of its processes was killed"
        )
        where = f"; its log: {self.log_path}" if self.log_path else ""
        return EngineDead(f"vLLM has died: {said}{where}")


_SAMPLING = ("temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty")


def _temperature_note(used: float, asked: float | None) -> tuple[str, ...]:
    return () if asked is None or used == asked else (f"vLLM raised temperature {asked:g} to {used:g}",)


def _completion(asked: Asked, output: Any) -> Completion:
    """A finished request of vLLM as ours."""
    reply = output.outputs[0]
    if reply.finish_reason not in ("stop", "length"):
        return asked.failure(f"vLLM ended the request: {reply.finish_reason}")
    logprobs = _logprobs(reply) if asked.request.logprobs else None
    lost = asked.request.logprobs and logprobs is None
    return asked.completion(
        reply.text,
        reply.finish_reason,
        ("log-probabilities are missing",) if lost else (),
        generated_tokens=len(reply.token_ids),
        cached_prompt_tokens=output.num_cached_tokens or 0,
        logprobs=logprobs,
        # A number is the token that ended the reply.
        stop_reason=reply.stop_reason if isinstance(reply.stop_reason, str) else "",
    )


def _logprobs(reply: Any) -> tuple[tuple[str, float], ...] | None:
    """Piece and log-probability of each generated token; None when any is missing: it must not count as 0."""
    if reply.logprobs is None or len(reply.logprobs) != len(reply.token_ids):
        return None
    found = [at.get(token) for token, at in zip(reply.token_ids, reply.logprobs, strict=True)]
    if any(one is None for one in found):
        return None
    return tuple((one.decoded_token or "", float(one.logprob)) for one in found)
