"""vLLM's place taken: what it is started with and asked is kept, what it answers was written beforehand.

It has as much of vLLM as the engine uses, so that what needs a GPU, an unlucky moment or half a minute can be tried.
"""

import dataclasses
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from debate_local.engines.memory import GIB


@dataclass(frozen=True)
class Said:
    """One reply, as vLLM's CompletionOutput tells it. logprobs: by token id, one mapping a token."""

    text: str
    token_ids: Sequence[int] = (1, 2)
    finish_reason: str = "stop"
    stop_reason: str | int | None = None
    logprobs: Sequence[Mapping[int, Any]] | None = None


@dataclass
class FakeVllm:
    """starts: what each start raises, None for one that works; more starts work. answer: the reply to a request.

    Kept of every start are its arguments and the environment that it saw, of every request its sampling parameters;
    events are "start", "sleep", "wake" and "end", in their order. holds: told how many bytes of its GPU vLLM now holds.
    """

    starts: list[Exception | None] = field(default_factory=list)
    answer: Callable[[Any], Said] = lambda params: Said("Four.")
    context: int = 512
    arguments: list[dict[str, Any]] = field(default_factory=list)
    environments: list[dict[str, str]] = field(default_factory=list)
    asked: dict[str, Any] = field(default_factory=dict)
    events: list[str] = field(default_factory=list)
    holds: Callable[[int], Any] = lambda size: None

    def install(self, monkeypatch: pytest.MonkeyPatch, *, cpu: bool = True) -> "FakeVllm":
        """Stand in for the package `vllm`, as a build for the CPU or for GPUs."""
        parts: dict[str, dict[str, Any]] = {
            "vllm": {"LLM": self._started, "SamplingParams": SimpleNamespace},
            "vllm.engine": {},
            "vllm.engine.arg_utils": {"EngineArgs": dataclasses.make_dataclass("EngineArgs", _ARGUMENTS)},
            "vllm.sampling_params": {
                "StructuredOutputsParams": SimpleNamespace,
                "RequestOutputKind": SimpleNamespace(FINAL_ONLY="final only"),
            },
            "vllm.lora": {},
            "vllm.lora.request": {"LoRARequest": SimpleNamespace},
            "vllm.platforms": {"current_platform": SimpleNamespace(get_device_name=lambda: "a GPU")},
            "vllm.v1": {},
            "vllm.v1.engine": {},
            "vllm.v1.engine.exceptions": {"EngineDeadError": type("EngineDeadError", (Exception,), {})},
        }
        for name, values in parts.items():
            module = ModuleType(name)
            vars(module).update(values)
            monkeypatch.setitem(sys.modules, name, module)
        monkeypatch.setattr("debate_local.engines.vllm.cpu_build", lambda: cpu)
        return self

    def _started(self, **arguments: Any) -> SimpleNamespace:
        self.arguments.append(arguments)
        self.environments.append(dict(os.environ))
        fault = self.starts.pop(0) if self.starts else None
        if fault is not None:
            raise fault
        self._happens("start", 70 * GIB)
        return SimpleNamespace(
            llm_engine=_Core(self),
            get_default_sampling_params=SimpleNamespace,
            sleep=lambda level: self._happens("sleep", level * 2 * GIB),
            wake_up=lambda: self._happens("wake", 70 * GIB),
        )

    def _happens(self, event: str, held: int) -> None:
        self.events.append(event)
        self.holds(held)


_ARGUMENTS = [
    *("model", "dtype", "max_model_len", "gpu_memory_utilization", "kv_cache_memory_bytes", "tensor_parallel_size"),
    *("pipeline_parallel_size", "quantization", "enforce_eager", "kv_cache_dtype", "max_num_seqs", "seed"),
    *("max_num_batched_tokens", "enable_prefix_caching", "trust_remote_code", "enable_chunked_prefill"),
    *("scheduling_policy", "logprobs_mode", "disable_log_stats", "use_tqdm_on_load", "enable_sleep_mode"),
]


class _Core:
    """What the engine uses of `LLM.llm_engine`: all that was asked is answered by one step."""

    def __init__(self, fake: FakeVllm) -> None:
        self._fake, self._waiting = fake, dict[str, Any]()
        self.model_config = SimpleNamespace(max_model_len=fake.context)
        self.engine_core = SimpleNamespace(shutdown=lambda: fake._happens("end", 0))
        arguments = fake.arguments[-1]
        self.vllm_config = SimpleNamespace(
            scheduler_config=SimpleNamespace(max_num_seqs=arguments.get("max_num_seqs", 256)),
            cache_config=SimpleNamespace(enable_prefix_caching=arguments["enable_prefix_caching"]),
        )

    def add_request(self, name: str, prompt: Any, params: Any, **others: Any) -> None:
        self._waiting[name] = self._fake.asked[name] = params

    def step(self) -> list[SimpleNamespace]:
        waiting, self._waiting = self._waiting, {}
        return [
            SimpleNamespace(request_id=name, finished=True, num_cached_tokens=0, outputs=[self._fake.answer(params)])
            for name, params in waiting.items()
        ]

    def abort_request(self, names: Sequence[str]) -> None:
        for name in names:
            self._waiting.pop(name, None)
