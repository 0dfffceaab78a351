"""What could be read of replies, by who spoke, round and length of the prompt: long prompts cost open models much.

Everything is counted among replies that were asked for it; a failed request is no reply, a prompt that did not fit is
one in which nothing could be read.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from debate_local.core.fields import RULES
from debate_local.sweep.store import Run

# Prompts up to so many tokens, in words; the last has no end.
LENGTHS = (256, 512, 1024, 2048, 4096, 8192)


@dataclass(frozen=True, slots=True)
class Readable:
    """Replies of one kind. role: `debater`, `judge`, ... prompt: how long their prompts were, such as `<= 512`.

    answer: the share with a readable answer, ballot or ruling. confidence, stance, json: the share of those asked for
    that could be read, None where none was asked for; a reply may be asked for several stances.
    """

    model: str
    role: str
    round: int
    prompt: str
    replies: int
    answer: float
    confidence: float | None
    stance: float | None
    json: float | None


def readable(run: Run) -> list[Readable]:
    """One line for each model, role, round and length of prompt that occurs, in that order."""
    asked = asks_confidence(run)
    parts: dict[tuple[str, str, int, int], list[Mapping[str, Any]]] = {}
    for turn in run.turns.iter_rows(named=True):
        # Helpers that write no answer (a summary, a critique) are asked for nothing that is read.
        if turn["finish_reason"] != "error" and _is_asked(turn):
            length = sum(turn["prompt_tokens"] > most for most in LENGTHS)
            parts.setdefault((turn["model"], turn["role"], turn["round"], length), []).append(turn)
    return [_line(*key, parts[key], asked) for key in sorted(parts)]


def asks_confidence(run: Run) -> bool:
    """Were agents asked how sure they are? By the run's option, or where it has none by what they said."""
    option = run.record["protocol"].get("confidence")
    stated = "confidence" in run.turns.columns and run.turns["confidence"].null_count() < len(run.turns)
    return stated if option is None else option not in ("none", "off", False)


def _is_asked(turn: Mapping[str, Any]) -> bool:
    return turn["role"] not in ("summariser", "critic", "donor")


def _line(model: str, role: str, round: int, length: int, turns: Sequence[Mapping[str, Any]], asked: bool) -> Readable:
    stances = [word for turn in turns for _, word in json.loads(turn.get("stances") or "[]")]
    rules = [turn["json_rule"] for turn in turns if turn.get("json_rule")]
    return Readable(
        model=model,
        role=role,
        round=round,
        prompt=f"<= {LENGTHS[length]:,}" if length < len(LENGTHS) else f"> {LENGTHS[-1]:,}",
        replies=len(turns),
        answer=sum(_read(turn) for turn in turns) / len(turns),
        confidence=sum(turn["confidence"] is not None for turn in turns) / len(turns)
        if asked and role == "debater"
        else None,
        stance=sum(bool(word) for word in stances) / len(stances) if stances else None,
        json=sum(rule in RULES for rule in rules) / len(rules) if rules else None,
    )


def _read(turn: Mapping[str, Any]) -> bool:
    """A ballot, and a ruling that decides nothing, are no answers, and are read all the same."""
    return turn["answer"] is not None or (turn["answer_rule"] or "").startswith(("ballot:", "undecided:"))
