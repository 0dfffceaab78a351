"""One row an option of debate, on 20 real items of GSM8K with SmolLM2 on vLLM: calls, tokens, no answer, consensus.

All rows are cells of one fused sweep, so that what they share is asked once. A 135M model debates badly: this shows
what options do to cost, and nothing of what they do for a model that can solve the problems. With 96 tokens a reply
97 % of first replies are cut off, so that hardly anybody has an answer to agree on.
"""

import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.bench.harness import keep
from tests.tasks.data import SHARED

ITEMS, ROUNDS = 20, 3
BASE = [
    "task=gsm8k",
    f"limit={ITEMS}",
    "controls=false",
    "sampling.max_tokens=96",
    "engine=vllm",
    "engine.kv_cache_gib=2",
]
OF_DEBATE = {
    "default": [],
    "prompt long": ["protocol.prompt=long"],
    "cot": ["protocol.cot=true"],
    "restate": ["protocol.restate=true"],
    "peers answers": ["protocol.peers=answers"],
    "peers summary": ["protocol.peers=summary"],
    "history last": ["protocol.history=last"],
    "history fresh": ["protocol.history=fresh"],
    "sequential": ["protocol.order=sequential"],
    "star": ["protocol.topology=star"],
    "nearest:1": ["protocol.topology=nearest:1"],
    "random:0.5": ["protocol.topology=random:0.5"],
    "topology none": ["protocol.topology=none"],
    "stop consensus": ["protocol.stop=consensus"],
    "skip, nearest:1": ["protocol.skip_agreed=true", "protocol.topology=nearest:1"],
    "confidence shown": ["protocol.confidence=verbal", "protocol.show_confidence=true"],
    "noise": ["protocol.noise=true"],
    "odd one out": ["protocol.odd_one_out=3"],
    "personas": ["cast=experts"],
}
OTHERS = {
    "roles": ["protocol=roles", f"protocol.rounds={ROUNDS}"],
    "reflection": ["protocol=reflection", "protocol.agents=3", f"protocol.rounds={ROUNDS}"],
    "self_refine": ["protocol=self_refine", "protocol.samples=3", "protocol.iterations=1"],
}
OPTIONS = {name: [f"protocol.rounds={ROUNDS}", *given] for name, given in OF_DEBATE.items()} | OTHERS
Row = dict[str, Any]


def plan_of(output: Path, base: Sequence[str], data: Path) -> tuple[Any, Any]:
    """The plan of all options as one sweep, in their order, and how it is run."""
    from debate_local.sweep.compose import compose
    from debate_local.sweep.plan import make_plan

    jobs = [compose([*base, f"data={data}", f"output={output}", *given]) for given in OPTIONS.values()]
    return make_plan([cell for cells, _ in jobs for cell in cells]), jobs[0][1]


def row_of(run: Any) -> Row:
    """What a run says of its option: means an item, shares of turns, and agreement round by round."""
    debates, turns = run.debates, run.turns
    spoken = turns.filter((turns["role"] == "debater") & (turns["step"] == ""))
    return {
        "label": run.label,
        "calls": debates["calls"].mean(),
        "tokens_in": round(debates["prompt_tokens"].mean()),
        "tokens_out": round(debates["generated_tokens"].mean()),
        "no_answer": round(debates["no_answer"].mean(), 3),
        "turns_without_answer": round(spoken["answer_key"].null_count() / len(spoken), 3),
        "turns_cut_off": round((spoken["finish_reason"] == "length").mean(), 3),
        "accuracy": round(debates["score"].mean(), 3),
        "consensus_by_round": agreement(spoken.to_dicts(), lambda answers: float(len(set(answers)) == 1)),
        "agreeing_pairs_by_round": agreement(spoken.to_dicts(), agreeing_pairs),
    }


def agreement(turns: Sequence[Row], measure: Callable[[Sequence[str]], float]) -> list[float]:
    """Round by round the mean of a measure of an item's answers; who is not asked again stands by its last.

    Whoever has no answer agrees with nobody.
    """
    means = []
    for round_ in range(1 + max(turn["round"] for turn in turns)):
        standing: dict[str, dict[int, str]] = {}
        for turn in turns:
            if turn["round"] <= round_:
                key = turn["answer_key"] or f"none of agent {turn['agent']}"
                standing.setdefault(turn["item_id"], {})[turn["agent"]] = key
        means.append(round(statistics.mean(measure(list(answers.values())) for answers in standing.values()), 3))
    return means


def agreeing_pairs(answers: Sequence[str]) -> float:
    """The share of pairs of agents that give one answer."""
    return statistics.mean(one == other for one, other in itertools.combinations(answers, 2))


def table(rows: dict[str, Row]) -> str:
    """The rows for a person."""
    lines = [f"{'option':17} calls tokens in   out  no answer  (turns)  right  pairs that agree, by round; all agree"]
    for name, row in rows.items():
        pairs, everybody = (
            " ".join(f"{100 * share:3.0f}" for share in row[key])
            for key in ("agreeing_pairs_by_round", "consensus_by_round")
        )
        lines.append(
            f"{name:17} {row['calls']:5.1f} {row['tokens_in']:9,} {row['tokens_out']:5,} {row['no_answer']:9.0%} "
            f"{row['turns_without_answer']:8.0%} {row['accuracy']:6.0%}  {pairs}; {everybody}"
        )
    return "\n".join(lines)


def main() -> None:
    """One fused sweep, in a folder that is named and kept, to be read: `debate-local show`."""
    from debate_local.sweep.run import run_plan

    if not SHARED.is_dir():
        sys.exit(f"options_table needs gsm8k_test.jsonl in {SHARED}")
    output = Path(tempfile.mkdtemp(prefix="options_table_"))
    plan, how = plan_of(output, BASE, SHARED)
    started = time.perf_counter()
    result = run_plan(plan, how)
    seconds = round(time.perf_counter() - started)
    if result.problems:
        sys.exit("\n".join(result.problems))
    rows = {name: row_of(run) for name, run in zip(OPTIONS, result.sweep.runs, strict=True)}
    print(f"{table(rows)}\nto read: {result.sweep.folder}")
    keep(
        "options_table",
        {
            "items": ITEMS,
            "settings": BASE,
            "options": OPTIONS,
            "rows": rows,
            "seconds": seconds,
            "sent": result.sent,
            "summary": f"{len(rows)} options, {result.sent} requests sent in {seconds} s",
        },
    )
