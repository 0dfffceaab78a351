"""The same 64 requests in one batch: the `openai` engine and vLLM's server against in-process `vllm`."""

import tempfile
from pathlib import Path

from tests.bench._same_requests import CONVERSATIONS, TOKENS, Asked, per_token
from tests.bench.harness import keep


def main() -> None:
    """Both vLLMs have the same settings, prefix caching off; each waits idle while the other works."""
    from debate_local.engines.openai import openai
    from debate_local.engines.vllm import vllm
    from debate_local.engines.weights import resolve
    from tests.engines.real_server import serving

    folder = resolve("smollm2-135m-instruct").path
    options = ("--dtype", "bfloat16", "--no-enable-prefix-caching", "--scheduling-policy", "priority")
    with tempfile.TemporaryDirectory() as scratch, serving(folder, Path(scratch) / "vllm.log", *options) as server:
        inside = vllm(max_model_len=2048, kv_cache_gib=1, enable_prefix_caching=False)
        outside = openai([server.ready()], concurrency=CONVERSATIONS)
        try:
            measured = per_token(Asked(inside), Asked(outside), pairs=3)
        finally:
            outside.close()
            inside.close()
    keep(
        "openai_overhead",
        {
            "conversations": CONVERSATIONS,
            "max_tokens": TOKENS,
            **measured,
            "summary": f"openai / vllm: median {measured['median_ratio']:.3f}, range {measured['range']}",
        },
    )
