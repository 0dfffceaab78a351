"""A plan as it was when somebody asked for it: `plan.json` in the sweep's folder, and what is no longer so.

Whoever works on a sweep later (a shard in a queue, `resume`) composes nothing and reads no config file: cells, shards
and settings are taken from here (C07), and what has changed since is told before anything is run.
"""

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from debate_local.core.chat import digest

from . import machine
from .cells import cell_json, cell_of
from .config import HowToRun
from .plan import Plan, PlannedRun, make_plan
from .purchases import Purchase, only_bought, second_phase, with_purchases
from .shards import Shard, shards_of, split_items
from .sharing import alone_in
from .stopping import Stop
from .store import SCHEMA_VERSION, NewerSchema, StoreFault, refuse_newer_schema, root_of, write_json

NAME = "plan.json"
_NEEDED = {"cells", "runs", "rows", "how", "made_with", "split", "splits", "launchers"}


@dataclass(frozen=True, slots=True)
class FrozenRun:
    """What is told of a run without planning it. rows: the hash of its rows. calls: of one debate, at most.

    bought: it belongs to the second phase, and came into the plan when debates' bills were known.
    """

    id: str
    label: str
    task: str
    rows: str
    calls: int
    bought: bool = False


@dataclass(frozen=True)
class FrozenPlan:
    """What plan.json holds. cells: as asked for, without controls, which come out of planning again."""

    folder: Path
    record: Mapping[str, Any]

    @property
    def id(self) -> str:
        return self.folder.resolve().name

    @property
    def how(self) -> HowToRun:
        """How it is run; the output root is wherever the sweep's folder lies now."""
        known = {f.name for f in fields(HowToRun)}
        values = {key: value for key, value in self.record["how"].items() if key in known}
        values |= {"stop": Stop(**values["stop"]), "output": root_of(self.folder)}
        return HowToRun(**values)

    @property
    def shards(self) -> list[Shard]:
        """The shards of the latest split; empty when the sweep was never split."""
        return self.split(self.record["split"]) if self.record["split"] else []

    def split(self, count: int) -> list[Shard]:
        """The shards of the split into so many. Raises StoreFault when it was never split so."""
        if (slices := self.record["splits"].get(str(count))) is None:
            known = ", ".join(self.record["splits"]) or "none"
            raise StoreFault(f"sweep {self.id} was never split into {count} shards; its splits: {known}")
        return shards_of(slices)

    @property
    def runs(self) -> list[FrozenRun]:
        """All its runs, in the order of the plan."""
        return [FrozenRun(**run) for run in self.record["runs"]]

    def items(self, run: FrozenRun) -> list[str]:
        """The ids of a run's items, in their order."""
        return list(self.record["rows"][run.rows])

    @property
    def buys(self) -> bool:
        """Does it have a second phase, which begins once debates have ended and their bills are known?"""
        return bool(self.record.get("buys"))

    def plan(self) -> Plan:
        """Today's plan of the same cells. Its runs may differ from the frozen ones: see `changes`."""
        plan = make_plan([cell_of(cell) for cell in self.record["cells"]])
        return with_purchases(plan, [Purchase(**one) for one in self.record.get("bought", ())])

    def changes(self, plan: Plan) -> list[str]:
        """What is not as it was when the plan was frozen, a line each; empty when all is the same."""
        then, now = self.record["made_with"], _made_with(plan)
        found = [
            f"{name}: was {_short(then.get(name))}, is {_short(now.get(name))}"
            for name in sorted({*then, *now})
            if then.get(name) != now.get(name)
        ]
        if self.other_runs(plan) and not found:
            found.append("the identity of runs")
        return found

    def other_runs(self, plan: Plan) -> bool:
        """Would today's plan make other runs than the frozen one?"""
        return [run.id for run in self.runs] != [run.id for run in plan.runs]


def freeze(
    plan: Plan,
    how: HowToRun,
    command: Sequence[str],
    shards: int | None = None,
    launchers: Mapping[str, Mapping[str, Any]] | None = None,
) -> FrozenPlan:
    """Write a sweep's folder: sweep.json for readers, plan.json for workers.

    shards: how many to split the items into, None for no split. A split that is there already stays as it is, so that a
    worker that is queued finds its slice. launchers: what started it, with its settings. Raises OptionFault for more
    shards than items.
    """
    folder = how.output / "sweeps" / plan.id
    if shards is not None:
        # Before anything is written: it may be refused.
        slices = [dict(one) for one in split_items(plan, shards)]
    (folder / "logs").mkdir(parents=True, exist_ok=True)
    with alone_in(folder):
        splits, known_launchers = _known(folder)
        if shards is not None:
            splits.setdefault(str(shards), slices)
        record = _record(plan, how, command, shards, splits, known_launchers | _plain(launchers))
        write_json(folder / "sweep.json", _for_readers(plan, command))
        write_json(folder / NAME, record, indent=None)
    return FrozenPlan(folder, record)


def with_bought(frozen: FrozenPlan, plan: Plan, bought: Sequence[Purchase]) -> FrozenPlan:
    """Write what was bought, and the plan with it, into a sweep's folder: readers and workers see the new runs."""
    with alone_in(frozen.folder):
        # Another process may have split the sweep in between.
        latest = read_frozen(frozen.folder).record
        record = {**latest, "runs": _runs(plan), "bought": [asdict(one) for one in bought]}
        write_json(frozen.folder / "sweep.json", _for_readers(plan, latest["command"]))
        write_json(frozen.folder / NAME, record, indent=None)
    return FrozenPlan(frozen.folder, record)


def _runs(plan: Plan) -> list[dict[str, Any]]:
    return [
        asdict(FrozenRun(run.id, run.label, run.cell.task.name, run.task.rows, run.calls, only_bought(run)))
        for run in plan.runs
    ]


def _record(
    plan: Plan, how: HowToRun, command: Sequence[str], split: int | None, splits: Mapping[str, Any], launchers: Any
) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "command": list(command),
        "cells": [cell_json(run.cell) for run in plan.runs if run.asked],
        "runs": _runs(plan),
        "buys": second_phase(plan),
        "bought": [],
        "rows": {run.task.rows: [item.id for item in run.task.items] for run in plan.runs},
        "how": {**asdict(how), "output": str(how.output)},
        "made_with": _made_with(plan),
        "started_in": str(Path.cwd()),
        "split": split,
        "splits": splits,
        "launchers": launchers,
    }


def _plain(launchers: Mapping[str, Mapping[str, Any]] | None) -> dict[str, dict[str, Any]]:
    return {name: dict(settings) for name, settings in (launchers or {}).items()}


@contextlib.contextmanager
def where_it_started(frozen: FrozenPlan) -> Iterator[FrozenPlan]:
    """Be in the folder in which the sweep was started, while it lasts: task.path=rows.jsonl and the like lie there.

    Where there is no such folder (another machine) nothing is changed.
    """
    there = Path(frozen.record.get("started_in", "."))
    if not there.is_dir() or there.resolve() == Path.cwd():
        yield frozen
        return
    named = FrozenPlan(frozen.folder.resolve(), frozen.record)
    with contextlib.chdir(there):
        yield named


def without_stop(frozen: FrozenPlan) -> FrozenPlan:
    """Take the stop out of a frozen plan, so that workers that begin from now on go to the end."""
    record = {**frozen.record, "how": {**frozen.record["how"], "stop": asdict(Stop())}}
    write_json(frozen.folder / NAME, record, indent=None)
    return FrozenPlan(frozen.folder, record)


def _known(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The splits and launchers that a sweep's folder knows already."""
    try:
        record = read_frozen(folder).record
    except NewerSchema:
        raise
    except StoreFault:
        return {}, {}
    return dict(record["splits"]), dict(record["launchers"])


def read_frozen(folder: Path) -> FrozenPlan:
    """The plan of a sweep's folder. Raises StoreFault when it is gone, torn or newer."""
    path = folder / NAME
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        frozen = FrozenPlan(folder, record)
        refuse_newer_schema(path, record["schema_version"])
        assert set(record) >= _NEEDED
    except FileNotFoundError as error:
        what = "the frozen plan of this sweep is gone" if (folder / "sweep.json").exists() else "this is no sweep"
        raise StoreFault(
            f"{path} does not exist: {what}. Give a folder below <output>/sweeps, or run the command that made it again"
        ) from error
    except (ValueError, TypeError, KeyError, AssertionError) as error:
        if isinstance(error, StoreFault):
            raise
        raise StoreFault(f"{path} cannot be read ({error!r}): run the command that made the sweep again") from error
    return frozen


def _for_readers(plan: Plan, command: Sequence[str]) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "command": list(command),
        "notes": plan.notes,
        "cells": [
            {
                "run": run.id,
                "label": run.label,
                "asked": run.asked,
                "controls": [{"control": name, "of": of} for name, of in run.controls],
            }
            for run in plan.runs
        ],
    }


def _made_with(plan: Plan) -> dict[str, Any]:
    """What results may depend on: code, versions, and hashes of each task's rows, each template and each model."""
    found: dict[str, Any] = {"commit": machine.commit()}
    found |= {f"version of {name}": version for name, version in machine.versions().items()}
    for run in {run.task.rows: run for run in plan.runs}.values():
        found[f"rows of task {run.cell.task.name} ({len(run.task.items)} items)"] = run.task.rows[:12]
    for run in {run.cell.protocol.name: run for run in plan.runs}.values():
        found |= _templates(run)
    for run in {run.engine.group: run for run in plan.runs}.values():
        for model, identity in run.engine.identities.items():
            found[f"model {model!r} of engine {run.engine.choice.name} {run.engine.group[:6]}"] = identity[:12]
    return found


def _templates(run: PlannedRun) -> dict[str, str]:
    """The default wording of the run's protocol; what a cell words otherwise is frozen with the cell."""
    name = run.cell.protocol.name
    return {f"template {key!r} of protocol {name}": digest(text)[:12] for key, text in run.facts.templates.items()}


def _short(value: Any) -> str:
    return "not there" if value is None else str(value)
