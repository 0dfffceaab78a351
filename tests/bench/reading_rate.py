"""How many replies a second are read and graded on one core: a million graded cases of ours, after words of reasoning.

Each kind of answer in a process of its own. Expressions, which go to worker processes, are fewer, and printed apart.
"""

import json
import random
import sys
import time
from pathlib import Path
from typing import Any

from tests.bench.harness import alone, keep

CASES = Path(__file__).parents[1] / "tasks" / "cases"
KINDS = {
    "number": ("gsm8k", "arithmetic"),
    "choice": ("mmlu", "aqua"),
    "yes_no": ("strategyqa", "yesno"),
    "move": ("chess_move",),
    "confidence": ("confidence",),
    "judge_json": ("judge_json",),
    "expression": ("math",),
}
REPLIES = 1_000_000
EXPRESSIONS = 5_000
_WORDS = "first we look at what is given and then take it step by step so that nothing is left out or counted twice"


def _reasoning(draw: random.Random) -> str:
    """Some 60 words in sentences, other ones each time, so that nothing is remembered."""
    words = _WORDS.split()
    sentences = (" ".join(draw.choices(words, k=12)).capitalize() for _ in range(5))
    return ". ".join(sentences) + ".\n"


def measure(kind: str, count: int) -> dict[str, Any]:
    """Read and grade so many replies of a kind."""
    from debate_local.tasks.answers.graded import grade_case

    lines = [
        line for name in KINDS[kind] for line in (CASES / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    cases = [json.loads(line) for line in lines]
    draw = random.Random(0)
    seconds, characters, done = 0.0, 0, 0
    while done < count:
        batch = [{**case, "text": _reasoning(draw) + (case["text"] or "")} for case in cases][: count - done]
        started = time.perf_counter()
        for case in batch:
            grade_case(case)
        seconds += time.perf_counter() - started
        characters += sum(len(case["text"]) for case in batch)
        done += len(batch)
    return {"replies": done, "seconds": seconds, "characters_a_reply": characters / done, "a_second": done / seconds}


def main() -> None:
    """Measure all kinds, one core each."""
    others = [kind for kind in KINDS if kind != "expression"]
    found = {kind: alone("tests.bench.reading_rate", kind, str(REPLIES // len(others))) for kind in others}
    rate = sum(one["replies"] for one in found.values()) / sum(one["seconds"] for one in found.values())
    found["expression"] = alone("tests.bench.reading_rate", "expression", str(EXPRESSIONS))
    told = ", ".join(f"{kind} {one['a_second']:,.0f}" for kind, one in found.items())
    keep("reading_rate", {"kinds": found, "summary": f"{rate:,.0f} replies a second, expressions apart ({told})"})


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
