"""From cells to runs: controls added, options checked, items loaded, engines constructed but not opened.

Everything that can fail without a GPU fails here (law 10). A run's id is a hash of what affects its result (law 11).
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from debate_local.core.chat import Engine, digest
from debate_local.core.protocol import ProtocolFacts, facts_of
from debate_local.core.setting import Setting
from debate_local.core.task import Task
from debate_local.core.transcript import Debate, Item

from . import machine, options
from .checks import check_cast, check_items, rehearse
from .config import Cell, Choice
from .engines import maker
from .labels import label as label_of
from .labels import slug, varying_settings
from .options import OptionFault
from .store import rows_hash

# Options that say where rows lie, and nothing of what is asked or read: a moved file is the same run.
WHERE_ROWS_LIE = ("path",)


@dataclass(frozen=True)
class PlannedTask:
    """A loaded task and the items that a cell runs on. rows, asked: hashes of what they hold and of what they ask."""

    task: Task
    items: list[Item]
    rows: str
    asked: str


@dataclass
class PlannedEngine:
    """An engine that is not open yet. group: cells with the same group share one load."""

    choice: Choice
    make: Callable[[], Engine]
    engine: Engine
    group: str
    identities: dict[str, str]


@dataclass
class PlannedRun:
    """One run: a cell, everything resolved. controls: its roles, as (control's name, id of the run held against it)."""

    id: str
    label: str
    cell: Cell
    asked: bool
    protocol: Callable[..., Debate]
    facts: ProtocolFacts
    setting: Setting
    task: PlannedTask
    engine: PlannedEngine
    controls: list[tuple[str, str]] = field(default_factory=list)

    @property
    def calls(self) -> int:
        """Requests of one debate, at most."""
        return self.facts.calls(**self.cell.protocol.options)

    def debate(self, item: Item) -> Debate:
        """The debate about one item, not yet begun."""
        return self.protocol(item, self.setting, **self.cell.protocol.options)

    def record(self) -> dict[str, Any]:
        """What run.json says of it, versions and hardware apart."""
        task = self.task.task
        return {
            "label": self.label,
            "task": _choice_json(self.cell.task),
            "protocol": _choice_json(self.cell.protocol),
            "engine": _choice_json(self.cell.engine),
            "engine_identity": {name: dict(i) for name, i in self.engine.engine.identity.items()},
            "cast": [asdict(agent) for agent in self.cell.cast],
            "templates": dict(self.setting.templates),
            "answer_format": task.answer_format,
            "example_prompt": task.ask(self.task.items[0]),
            "seed": self.cell.seed,
            "limit": self.cell.limit,
            "offset": self.cell.offset,
            "items": len(self.task.items),
            "rows_hash": self.task.rows,
            "source": dict(getattr(task, "source", {})),
            "metric": asdict(task.metric),
            "votable": task.votable,
            "calls_at_most": self.calls,
        }


@dataclass
class Plan:
    """All runs of a sweep, asked cells first, each followed by its controls; and what a person should know."""

    runs: list[PlannedRun]
    notes: list[str]

    @property
    def id(self) -> str:
        return digest([[run.id, run.controls] for run in self.runs])[:8]


def make_plan(cells: Sequence[Cell]) -> Plan:
    """Resolve cells and their controls. Raises OptionFault (or the task's own ValueError) for what cannot be run."""
    if not cells:
        raise OptionFault("there is nothing to run: no cell was given")
    planner = _Planner(cells)
    for cell in cells:
        planner.add_with_controls(cell)
    runs = list(planner.runs.values())
    rehearse(runs)
    return Plan(runs, planner.notes)


class _Planner:
    """Loads each task and makes each engine once, and meets each run once."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        self.runs: dict[str, PlannedRun] = {}
        self.notes: list[str] = []
        self._varying = varying_settings(cells)
        self._tasks: dict[str, PlannedTask] = {}
        self._engines: dict[str, PlannedEngine] = {}

    def add_with_controls(self, cell: Cell) -> None:
        run = self._add(cell, asked=True)
        if _agents_start_identical(run):
            self._note(
                f"{run.label}: temperature 0 and a cast of one: all agents start with the same answer, and only one "
                "request is sent for them. Give the cast personas, models or another temperature"
            )
        if not (cell.controls and run.facts.controls):
            return
        for name, protocol in _controls(run, self._note):
            known = facts_of(options.load("protocol", protocol.name)).templates
            templates = {key: text for key, text in cell.templates.items() if key in known}
            control = self._add(replace(cell, protocol=protocol, templates=templates), asked=False)
            if (name, run.id) not in control.controls:
                control.controls.append((name, run.id))

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def _add(self, cell: Cell, asked: bool) -> PlannedRun:
        run = self._resolve(cell, asked)
        known = self.runs.setdefault(run.id, run)
        known.asked |= asked
        return known

    def _resolve(self, cell: Cell, asked: bool) -> PlannedRun:
        function = options.load("protocol", cell.protocol.name)
        facts = facts_of(function)
        with _blamed_on("protocol", cell.protocol):
            if facts.check is not None:
                facts.check(**cell.protocol.options)
        with _blamed_on("prompt of protocol", cell.protocol):
            templates = facts.checked_templates(cell.templates)
        task, engine = self._task(cell), self._engine(cell)
        check_cast(cell, engine.engine)
        setting = Setting(task.task, cell.cast, cell.seed, templates)
        ingredients = {
            "task": task.task.name,
            "task_options": {key: value for key, value in cell.task.options.items() if key not in WHERE_ROWS_LIE},
            "rows": task.rows,
            "asked": task.asked,
            "metric": asdict(task.task.metric),
            "version": machine.versions().get("debate-local"),
            "protocol": _choice_json(cell.protocol),
            "templates": templates,
            "cast": [{**asdict(agent), "model": engine.identities[agent.model]} for agent in cell.cast],
            "seed": cell.seed,
        }
        run_id = slug(cell, digest(ingredients)[:8])
        label = label_of(cell, self._varying)
        return PlannedRun(run_id, label, cell, asked, function, facts, setting, task, engine)

    def _task(self, cell: Cell) -> PlannedTask:
        key = digest([_choice_json(cell.task), cell.limit, cell.offset])
        if key not in self._tasks:
            with _blamed_on("task", cell.task):
                task: Task = options.load("task", cell.task.name)(**cell.task.options)
                items = list(task.items())
            if not items:
                raise OptionFault(f"task {cell.task.name!r} has no items")
            if cell.offset >= len(items):
                raise OptionFault(
                    f"offset={cell.offset} leaves nothing: task {cell.task.name!r} has {len(items)} items"
                )
            stop = None if cell.limit is None else cell.offset + cell.limit
            if stop is not None and stop > len(items):
                self._note(
                    f"limit={cell.limit} (offset {cell.offset}) is more than task {cell.task.name!r} has: "
                    f"{len(items)} items in all"
                )
            kept = items[cell.offset : stop]
            check_items(cell.task.name, kept)
            with _blamed_on("task", cell.task):
                asked = digest([task.ask(item) for item in kept])
            self._tasks[key] = PlannedTask(task, kept, rows_hash(kept), asked)
        return self._tasks[key]

    def _engine(self, cell: Cell) -> PlannedEngine:
        key = digest(_choice_json(cell.engine))
        if key not in self._engines:
            make = maker(cell.engine)
            with _blamed_on("engine", cell.engine):
                engine = make()
            identities = {name: digest(dict(identity)) for name, identity in engine.identity.items()}
            self._engines[key] = PlannedEngine(cell.engine, make, engine, key, identities)
        return self._engines[key]


def _agents_start_identical(run: PlannedRun) -> bool:
    agents = run.facts.agents(**run.cell.protocol.options) if run.facts.agents else 1
    return agents > 1 and len(run.cell.cast) == 1 and run.cell.cast[0].sampling.greedy


@contextlib.contextmanager
def _blamed_on(what: str, choice: Choice) -> Iterator[None]:
    """What a task, protocol or engine says of its own options, as an OptionFault that names it."""
    try:
        yield
    except OptionFault:
        raise
    except (ValueError, OSError) as error:
        raise OptionFault(f"{what} {choice.name!r}: {error}") from error


def _controls(run: PlannedRun, note: Callable[[str], None]) -> list[tuple[str, Choice]]:
    """The cells that a debate must beat at equal cost (law 7)."""
    protocol, chosen = run.cell.protocol, []
    alone = run.facts.agents(**protocol.options) if run.facts.agents else 1
    chosen.append(("single", Choice("single", {"agents": alone})))
    if not run.task.task.votable:
        note(f"task {run.cell.task.name!r} has answers that cannot be voted on: no vote controls")
    else:
        if run.facts.agents:
            chosen.append(("vote0", Choice("self_consistency", {"samples": alone})))
        chosen.append(("sc_calls", Choice("self_consistency", {"samples": run.calls})))
    if run.facts.reflect is None:
        note(f"protocol {protocol.name!r} says nothing of how its agents check themselves alone: no reflect control")
    elif (alone_options := run.facts.reflect(**protocol.options)) is not None:
        checked = options.check("protocol", protocol.name, alone_options)
        chosen.append(("reflect", Choice(protocol.name, checked)))
    return chosen


def _choice_json(choice: Choice) -> dict[str, Any]:
    return {"name": choice.name, **choice.options}
