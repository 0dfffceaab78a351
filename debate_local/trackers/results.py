"""Finished runs as trackers are told of them, and which of them were told already."""

import json
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from debate_local.analysis.summary import summarise
from debate_local.core.chat import digest
from debate_local.sweep.options import KINDS
from debate_local.sweep.store import Run, Sweep, SweepCell, load_run, times_rewritten
from debate_local.trackers.tracker import Told, Value

# Of a text, in characters: MLflow takes 6000.
_LONGEST = 5000
# Who has been telling of a run for so many seconds was ended over it.
_STALE_SECONDS = 600
_COSTS = ("calls", "prompt_tokens", "generated_tokens", "reasoning_share")
_COUNTS = ("truncated", "too_long", "failed", "empty", "errors", "ties")


def told(folder: Path, entry: Mapping[str, Any]) -> Told:
    """A finished run. entry: its line in sweep.json. Raises StoreFault for a run that cannot be read."""
    run = load_run(folder)
    (summary,) = summarise(Sweep(folder, {}, (SweepCell(run),)))
    score = summary.score
    numbers = {"score": score.value, "score_low": score.low, "score_high": score.high, "items": score.n}
    numbers |= {name: getattr(summary, name) for name in ("no_answer", *_COSTS, *_COUNTS)}
    place = {"asked": entry["asked"], "controls": ", ".join(c["control"] for c in entry["controls"])}
    finite = {name: float(value) for name, value in numbers.items() if math.isfinite(value)}
    return Told(run.id, run.label, _settings(run) | place, finite)


def _settings(run: Run) -> dict[str, Value]:
    """What a person may want to compare runs by, flat, under the names that are typed on the command line."""
    record = run.record
    flat: dict[str, Any] = {"metric": record["metric"]["name"], "model": record["cast"][0]["model"]}
    for kind in KINDS:
        options = {f"{kind}.{key}": value for key, value in record[kind].items() if key != "name"}
        flat |= {kind: record[kind]["name"], **options}
    flat |= {f"sampling.{key}": value for key, value in record["cast"][0]["sampling"].items() if key != "seed"}
    flat |= {key: record[key] for key in ("seed", "limit", "offset")}
    return {key: plain(value) for key, value in flat.items()}


def plain(value: Any) -> Value:
    """A value as every tracker takes it: whatever is no number or text becomes a text, and a long text is cut."""
    if isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 4]} ..."


class Ledger:
    """Which runs were told to a destination, as empty files in a folder that all workers share."""

    def __init__(self, folder: Path, destination: str) -> None:
        self._folder = folder / f"told-{digest(destination)[:8]}"
        self._folder.mkdir(parents=True, exist_ok=True)
        for claim in self._folder.glob("*.telling"):
            if time.time() - claim.stat().st_mtime > _STALE_SECONDS:
                claim.unlink(missing_ok=True)

    def knows(self, run: Path) -> bool:
        """Was this run told? One whose failed requests were asked anew is to be told again."""
        return self._told(run).exists()

    def _told(self, run: Path) -> Path:
        return self._folder / f"{run.name}-{times_rewritten(run)}"

    @contextmanager
    def claimed(self, run: Path) -> Iterator[bool]:
        """True for the one who is to tell of a run; it is known once the block is left without an error."""
        done = self._told(run)
        claim = done.with_name(f"{done.name}.telling")
        try:
            claim.open("x").close()
        except FileExistsError:
            yield False
            return
        try:
            fresh = not done.exists()
            yield fresh
            if fresh:
                done.touch()
        finally:
            claim.unlink(missing_ok=True)
