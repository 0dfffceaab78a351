"""The same requests in the same batches: the toolkit (core, cache, store) against `LLM.chat` called directly."""

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from debate_local.core.chat import ChatRequest, Completion
from tests.bench.harness import in_pairs, keep

ITEMS, TOKENS = 32, 96


class KeptOpen:
    """A vLLM engine that outlives the runs, and remembers what was submitted together."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.identity, self.limits = engine.identity, engine.limits
        self.cancel, self.count_tokens = engine.cancel, engine.count_tokens
        self.batches: list[list[ChatRequest]] = []
        self.generated = 0

    def submit(self, requests: Sequence[ChatRequest]) -> None:
        """Note and pass on."""
        self.batches.append(list(requests))
        self._engine.submit(requests)

    def poll(self, timeout: float) -> list[tuple[str, Completion]]:
        """Count and pass on."""
        finished: list[tuple[str, Completion]] = self._engine.poll(timeout)
        self.generated += sum(completion.generated_tokens for _, completion in finished)
        return finished

    def close(self) -> None:
        """The runs come and go; the engine stays."""


def main() -> None:
    """3 agents x 2 rounds over 32 items: two batches of 96."""
    from vllm import SamplingParams

    from debate_local.engines.vllm import vllm
    from debate_local.sweep.compose import compose
    from debate_local.sweep.plan import make_plan
    from debate_local.sweep.run import run_plan

    engine = vllm()
    engine.open()
    kept = KeptOpen(engine)
    tokens: dict[str, list[int]] = {"a": [], "b": []}

    def toolkit() -> None:
        root = Path(tempfile.mkdtemp())
        cells, how = compose(
            ["task=arithmetic", "task.operands=2", 'task.operators="+"', f"limit={ITEMS}", "controls=false",
             f"sampling.max_tokens={TOKENS}", f"output={root}"]
        )  # fmt: skip
        plan = make_plan(cells)
        plan.runs[0].engine.engine = kept
        kept.batches, kept.generated = [], 0
        engine._llm.reset_prefix_cache()
        result = run_plan(plan, how)
        assert not result.problems
        tokens["b"].append(kept.generated)
        shutil.rmtree(root)

    toolkit()
    tokens["b"].clear()
    recorded = list(kept.batches)

    def direct() -> None:
        engine._llm.reset_prefix_cache()
        generated = 0
        for batch in recorded:
            conversations = [[{"role": m.role, "content": m.content} for m in r.messages] for r in batch]
            params = [
                SamplingParams(temperature=s.temperature, seed=s.seed, max_tokens=s.max_tokens)
                for s in (request.sampling for request in batch)
            ]
            outputs = engine._llm.chat(conversations, params, use_tqdm=False)
            generated += sum(len(output.outputs[0].token_ids) for output in outputs)
        tokens["a"].append(generated)

    try:
        measured = in_pairs(direct, toolkit)
    finally:
        engine.close()
    per_token = [
        (b / tb) / (a / ta)
        for a, ta, b, tb in zip(
            measured["seconds"]["a"], tokens["a"][1:], measured["seconds"]["b"], tokens["b"][1:], strict=True
        )
    ]
    keep(
        "vllm_overhead",
        {
            "batches": [len(batch) for batch in recorded],
            "generated_tokens": {name: counts[1:] for name, counts in tokens.items()},
            "ratios_per_generated_token": per_token,
            **measured,
            "summary": f"toolkit / LLM.chat: median {measured['median_ratio']:.3f}, range {measured['range']}",
        },
    )
