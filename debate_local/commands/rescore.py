"""`debate-local rescore RUN`: read and score a run's stored replies by today's rules, and show what changed.

No engine is called and nothing is written. The debates are replayed over the stored completions, each found by its
agent, round and step, so that decisions follow the answers as they are read today. A debate that asks for what is not
stored (it would have gone on) cannot be replayed; it is named, and left out of both scores.
"""

import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from debate_local.commands.terminal import console
from debate_local.core.chat import ChatRequest, Completion
from debate_local.core.decisions import deciding
from debate_local.core.protocol import facts_of
from debate_local.core.scheduler import ask_in_turn
from debate_local.core.setting import request_id
from debate_local.core.task import Task
from debate_local.core.transcript import Debate, Item, Transcript, Turn
from debate_local.sweep import options as known
from debate_local.sweep.cells import cell_of
from debate_local.sweep.plan import setting_of, task_of
from debate_local.sweep.store import Run, StoreFault, load

# More changes than this are counted, not printed; --json has all.
_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Reading:
    """An answer as it was read. score: 1 is right."""

    answer: str | None
    rule: str
    score: float


@dataclass(frozen=True, slots=True)
class Change:
    """What is read otherwise: a turn (agent and round from 0), or the decision of a debate, where both are None."""

    item: str
    before: Reading
    after: Reading
    agent: int | None = None
    round: int | None = None
    step: str = ""


@dataclass(slots=True)
class Rescored:
    """What came of it. before, after: the mean scores of the debates that were replayed; None without any.

    other_rule: turns whose answer is the same by another rule. reworded: turns whose prompt is worded otherwise today.
    kept_grades: debates whose grade comes from a model, and is kept. not_replayed: item -> why.
    """

    turns_read: int = 0
    debates: int = 0
    before: float | None = None
    after: float | None = None
    no_answer_before: float = 0.0
    no_answer_after: float = 0.0
    turns: list[Change] = field(default_factory=list)
    decisions: list[Change] = field(default_factory=list)
    other_rule: int = 0
    reworded: int = 0
    new_golds: int = 0
    kept_grades: int = 0
    not_replayed: dict[str, str] = field(default_factory=dict)


def arguments(parser: ArgumentParser) -> None:
    """The options of `rescore`."""
    parser.add_argument("run", help="a run folder")
    parser.add_argument("--json", action="store_true", help="print all of it as JSON")


def main(options: Namespace) -> int:
    """Rescore and tell. Exit code 1 when a debate could not be replayed. Raises StoreFault and what the task raises."""
    run = load(options.run)
    if not isinstance(run, Run):
        raise StoreFault(f"{options.run} is a sweep; rescore takes a run: {', '.join(str(r.folder) for r in run.runs)}")
    found = rescored(run)
    if options.json:
        told = {"run": str(run.folder), "metric": run.record["metric"]["name"], **asdict(found)}
        json.dump(told, sys.stdout, indent=2, ensure_ascii=False)
        print()
    else:
        _print(run, found, console())
    return 1 if found.not_replayed else 0


def rescored(run: Run) -> Rescored:
    """Read and score a stored run again. Nothing is written."""
    # Whether the run's engine could be had today does not matter.
    cell = cell_of(run.record, controls=False, engine={"name": "scripted"})
    task = task_of(cell)
    protocol = deciding(known.load("protocol", cell.protocol.name), cell.decision)
    templates = facts_of(protocol).checked_templates(dict(run.record["templates"]))
    setting = setting_of(cell, task, templates)
    items = {item.id: item for item in task.items()}
    turns = run.turns.partition_by("item_id", as_dict=True, maintain_order=True)
    total = _Total()
    for row in run.debates.iter_rows(named=True):
        stored = turns.get((row["item_id"],))
        item = items.get(row["item_id"])
        if row["error"] or stored is None:
            total.found.not_replayed[row["item_id"]] = f"the debate failed: {row['error']}"
        elif item is None:
            total.found.not_replayed[row["item_id"]] = "the task has no such item today"
        else:
            debate = protocol(item, setting, **cell.protocol.options)
            total.add(row, _Replay(task, item, debate, stored.to_dicts()))
    return total.closed()


class _NotStored(Exception):
    """A debate asks for a completion that is not there."""


class _Replay:
    """One debate, spoken again by its stored turns."""

    def __init__(self, task: Task, item: Item, debate: Debate, rows: Sequence[Mapping[str, Any]]) -> None:
        self.task, self.item, self._debate = task, item, debate
        self._rows = {request_id(row["agent"], row["round"], row["step"]): row for row in rows}
        self.reworded = 0

    def transcript(self) -> Transcript:
        """The transcript as today's reading has it. Raises _NotStored."""
        return ask_in_turn(self._debate, self._answer)

    def score(self, transcript: Transcript) -> float | None:
        """The score of the decision; None where a model grades, which cannot be asked here."""
        try:
            return ask_in_turn(self.task.grade(transcript, self.item), self._answer).score
        except _NotStored:
            return None

    def stored(self, turn: Turn) -> Mapping[str, Any]:
        """The row of a turn."""
        return self._rows[turn.request.id]

    def _answer(self, requests: list[ChatRequest]) -> list[Completion]:
        missing = [request.id for request in requests if request.id not in self._rows]
        if missing:
            raise _NotStored(f"it asks for what is not stored (agent.round): {', '.join(sorted(missing))}")
        rows = [self._rows[request.id] for request in requests]
        self.reworded += sum(_reworded(request, row) for request, row in zip(requests, rows, strict=True))
        return [_completion(row) for row in rows]


def _reworded(request: ChatRequest, row: Mapping[str, Any]) -> bool:
    """Would the model be asked otherwise today?"""
    new = [{"role": message.role, "content": message.content} for message in request.messages[row["history"] :]]
    return bool(new != json.loads(row["prompt"]))


def _completion(row: Mapping[str, Any]) -> Completion:
    text = row["text"]
    return Completion(
        text=text,
        reasoning=row["reasoning"] or "",
        raw=text if row["raw"] is None else row["raw"],
        finish_reason=row["finish_reason"],
        prompt_tokens=row["prompt_tokens"],
        generated_tokens=row["generated_tokens"],
        # The pieces are not stored; their probabilities are.
        logprobs=None if row["logprobs"] is None else tuple(("", value) for value in row["logprobs"]),
        error=row["error"],
        clipped=row["clipped"],
        neutralised=row["neutralised"],
        notes=tuple(row["notes"] or ()),
    )


class _Total:
    """Adds up the debates of a run."""

    def __init__(self) -> None:
        self.found = Rescored()
        self._before: list[float] = []
        self._after: list[float] = []

    def add(self, row: Mapping[str, Any], replay: _Replay) -> None:
        """One debate, as stored and as today."""
        found, item = self.found, replay.item
        try:
            transcript = replay.transcript()
        except _NotStored as why:
            found.not_replayed[item.id] = str(why)
            return
        score = replay.score(transcript)
        found.kept_grades += score is None
        found.reworded += replay.reworded
        found.new_golds += row["target"] != item.target
        found.debates += 1
        self._before.append(row["score"])
        self._after.append(row["score"] if score is None else score)
        answers = transcript.decision.answers
        found.no_answer_before += row["no_answer"]
        found.no_answer_after += sum(answer.missing for answer in answers) / max(1, len(answers))
        for turn in transcript.turns:
            self._turn(item.id, replay, turn)
        decided = transcript.decision.answer
        before = Reading(row["answer"], row["rule"], row["score"])
        after = Reading(decided.value, transcript.decision.rule, self._after[-1])
        if row["answer_key"] != decided.key or before.score != after.score:
            found.decisions.append(Change(item.id, before, after))

    def _turn(self, item: str, replay: _Replay, turn: Turn) -> None:
        row, answer = replay.stored(turn), turn.answer
        self.found.turns_read += 1
        score = 0.0 if answer.missing else replay.task.score(answer, replay.item)
        before = Reading(row["answer"], row["answer_rule"], row["score"])
        after = Reading(answer.value, answer.rule, score)
        if row["answer_key"] != answer.key or before.score != after.score:
            self.found.turns.append(Change(item, before, after, turn.agent, turn.round, turn.step))
        elif before.rule != after.rule:
            self.found.other_rule += 1

    def closed(self) -> Rescored:
        """The totals as means."""
        if self._before:
            count = len(self._before)
            self.found.before, self.found.after = sum(self._before) / count, sum(self._after) / count
            self.found.no_answer_before /= count
            self.found.no_answer_after /= count
        return self.found


def _print(run: Run, found: Rescored, out: Console) -> None:
    out.print(Text(f"{run.label}  {run.folder}", style="bold"), soft_wrap=True)
    if found.turns:
        out.print(_table("turns that are read otherwise", found.turns))
    if found.decisions:
        out.print(_table("decisions that are others", found.decisions))
    for line in _lines(run, found):
        out.print(Text(line), soft_wrap=True)


def _table(title: str, changes: Sequence[Change]) -> Table:
    table = Table(box=SIMPLE_HEAD, title=f"{len(changes)} {title}", title_justify="left")
    of_turns = changes[0].agent is not None
    for heading in ("item", *(["agent", "round"] if of_turns else []), "was", "by", "score", "is", "by", "score"):
        table.add_column(heading, overflow="fold")
    for change in changes[:_SHOWN]:
        place = [str((change.agent or 0) + 1), f"{change.round} {change.step}".strip()] if of_turns else []
        cells = [change.item, *place, *_cells(change.before), *_cells(change.after)]
        table.add_row(*(Text(cell) for cell in cells))
    if len(changes) > _SHOWN:
        table.caption = f"... and {len(changes) - _SHOWN} more, all in --json"
    return table


def _cells(reading: Reading) -> list[str]:
    return ["no answer" if reading.answer is None else reading.answer, reading.rule, f"{reading.score:.2g}"]


def _lines(run: Run, found: Rescored) -> Iterator[str]:
    yield (
        f"{found.turns_read:,} turns of {found.debates:,} debates read again: {len(found.turns)} answers are others, "
        f"{found.other_rule} the same by another rule"
    )
    if found.before is not None and found.after is not None:
        yield (
            f"{run.record['metric']['name']}: was {found.before:.4g}, is {found.after:.4g}; without an answer: "
            f"was {found.no_answer_before:.2%}, is {found.no_answer_after:.2%}"
        )
    if found.new_golds:
        yield f"{found.new_golds} items have another gold today; it is the one that counts here"
    if found.kept_grades:
        yield f"{found.kept_grades} debates are graded by a model; their grades are kept as they are stored"
    if found.reworded:
        yield f"{found.reworded} turns would be asked in other words today; what was said to the old ones is read"
    for item, why in list(found.not_replayed.items())[:_SHOWN]:
        yield f"not replayed: item {item}: {why}"
    if len(found.not_replayed) > _SHOWN:
        yield f"... and {len(found.not_replayed) - _SHOWN} more that could not be replayed"
    yield "nothing was written: the run is as it was"
