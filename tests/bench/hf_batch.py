"""The `hf` engine: 64 conversations in one batch against one conversation a call.

Alone they take minutes, one as long as another: 16 of them are asked, and times are compared by generated token.
"""

import statistics

from tests.bench._same_requests import CONVERSATIONS, TOKENS, Asked, per_token
from tests.bench.harness import keep

ALONE = 16


def main() -> None:
    """Both ways are the engine's own; it is loaded once."""
    from debate_local.engines.hf import hf

    engine = hf()
    together, alone = Asked(engine), Asked(engine, at_once=1, count=ALONE)
    try:
        measured = per_token(together, alone, pairs=3)
    finally:
        engine.close()
    ratios = measured["ratios_per_generated_token"]
    middle, low, high = statistics.median(ratios), min(ratios), max(ratios)
    keep(
        "hf_batch",
        {
            "conversations": {"a": CONVERSATIONS, "b": ALONE},
            "max_tokens": TOKENS,
            **measured,
            "summary": f"one a call / batched, a generated token: median {middle:.2f}, range {low:.2f} to {high:.2f}",
        },
    )
