"""From cells to runs: controls added, options checked, items loaded, engines constructed but not opened.

Everything that can fail without a GPU fails here (law 10). A run's id is a hash of what affects its result (law 11).
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from debate_local.core.chat import Engine, digest
from debate_local.core.confidence import ConfidenceReader
from debate_local.core.decisions import deciding
from debate_local.core.protocol import ProtocolFacts, facts_of
from debate_local.core.setting import Agent, Setting
from debate_local.core.task import Task
from debate_local.core.transcript import Debate, Item
from debate_local.tasks.answers import confidence
from debate_local.tasks.hygiene import Oddity
from debate_local.tasks.quirks import kept_items, told

from . import machine, options
from .cells import HELPERS, agent_json, cell_json, choice_json
from .checks import check_cast, check_items, notes_on_models, rehearse
from .config import Cell, Choice
from .controls import control_cell, controls_of, votes
from .engines import maker
from .labels import label as label_of
from .labels import slug, varying_settings
from .options import OptionFault
from .samples import check_samples_of
from .sources import model_sources
from .store import rows_hash
from .subset import chosen_items, oddities_of
from .tasks import task_of

# Options that say where rows lie, and nothing of what is asked or read: a moved file is the same run.
WHERE_ROWS_LIE = ("path", "shots_path")


@dataclass(frozen=True)
class PlannedTask:
    """A loaded task and the items that a cell runs on.

    rows, asked: hashes of what they hold and of what they ask. oddities: what is wrong with these rows.
    """

    task: Task
    items: list[Item]
    rows: str
    asked: str
    oddities: list[Oddity]


@dataclass
class PlannedEngine:
    """An engine that is not open yet. group: cells with the same group share one load."""

    choice: Choice
    make: Callable[[], Engine]
    engine: Engine
    group: str
    identities: dict[str, str]

    def member(self, agent: Agent) -> dict[str, Any]:
        """All of an agent, its model told by identity."""
        return {**agent_json(agent), "model": self.identities[agent.model]}


@dataclass
class PlannedRun:
    """One run: a cell, everything resolved. varying: the settings that differ within its sweep, which its label tells.

    controls: its roles, as (control's name, id of the run held against it).
    """

    id: str
    label: str
    cell: Cell
    asked: bool
    protocol: Callable[..., Debate]
    facts: ProtocolFacts
    setting: Setting
    task: PlannedTask
    engine: PlannedEngine
    varying: frozenset[str]
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
            **cell_json(self.cell),
            "engine_identity": {name: dict(i) for name, i in self.engine.engine.identity.items()},
            "templates": dict(self.setting.templates),
            "answer_format": task.answer_format,
            "example_prompt": task.ask(self.task.items[0]),
            "items": len(self.task.items),
            "rows_hash": self.task.rows,
            "source": dict(getattr(task, "source", {})),
            "models": model_sources(self.cell.engine, self.engine.engine.identity),
            "oddities": [asdict(oddity) for oddity in self.task.oddities],
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
        self._varying = frozenset(varying_settings(cells))
        self._tasks: dict[str, PlannedTask] = {}
        self._engines: dict[str, PlannedEngine] = {}

    def add_with_controls(self, cell: Cell) -> None:
        run = self._add(cell, asked=True)
        if _agents_start_identical(run):
            self._note(
                f"{run.label}: temperature 0 and a cast of one: all agents start with the same answer, and only one "
                "request is sent for them. Give the cast personas, models or another temperature"
            )
        for note in notes_on_models(run):
            self._note(f"{run.label}: {note}")
        if not run.facts.agents and cell.controls and run.facts.controls and _all_greedy(cell):
            self._note(
                f"protocol {cell.protocol.name!r}: at temperature 0 the samples of a model are all alike, and so its "
                "control sc_calls is no more than `single`. A control that votes needs another temperature"
            )
        if not (cell.controls and run.facts.controls):
            return
        for name, changed in controls_of(run, self._note):
            # A member alone is told by its model.
            told = () if changed.cast == cell.cast else ("model", "cast")
            control = self._add(changed, asked=False, told=told)
            if (name, run.id) not in control.controls:
                control.controls.append((name, run.id))

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def _add(self, cell: Cell, asked: bool, told: Sequence[str] = ()) -> PlannedRun:
        """Plan a cell. told: what its label says beside what varies between the cells that were asked for."""
        run = self._resolve(cell, asked, self._varying.union(told))
        known = self.runs.setdefault(run.id, run)
        known.asked |= asked
        return known

    def _resolve(self, cell: Cell, asked: bool, varying: frozenset[str]) -> PlannedRun:
        worded = _worded(cell)
        facts = worded[1]
        task, engine = self._task(cell), self._engine(cell)
        cell = _without_unshown(cell, facts)
        if cell.convincing is not None:
            with _blamed_on("convincing samples for protocol", cell.protocol):
                check_samples_of(cell.convincing, task.task.name, task.items, engine.identities)
        for note in (*facts.unfilled(cell.templates), *check_cast(cell, engine.engine)):
            self._note(note)
        if not engine.engine.limits.seed and any(not agent.sampling.greedy for agent in cell.cast):
            self._note(
                f"engine {cell.engine.name!r} does not honour seeds with these options: what it says is in the cache, "
                "and cannot be had again without it"
            )
        run = _planned(cell, asked, worded, task, engine, varying)
        with _blamed_on("protocol", cell.protocol):
            if facts.suits is not None:
                facts.suits(run.setting, **cell.protocol.options)
        return run

    def _task(self, cell: Cell) -> PlannedTask:
        key = digest(
            [choice_json(cell.task), cell.limit, cell.offset, cell.ids, cell.shuffle, cell.suspects]
            + ([list(cell.quirks), cell.seed] if cell.quirks else [])
        )
        if key not in self._tasks:
            with _blamed_on("task", cell.task):
                task = task_of(cell)
                items = list(task.items())
            kept = kept_items(task, chosen_items(cell, items, self._note))
            for name in cell.quirks:
                self._note(f"task {cell.task.name!r} with quirk {name}, as in released code. {told(name)}")
            check_items(cell.task.name, kept)
            with _blamed_on("task", cell.task):
                asked = digest([task.ask(item) for item in kept])
            oddities = oddities_of(task, kept)
            for oddity in oddities:
                self._note(oddity.told(cell.task.name))
            self._tasks[key] = PlannedTask(task, kept, rows_hash(kept), asked, oddities)
        return self._tasks[key]

    def _engine(self, cell: Cell) -> PlannedEngine:
        key = digest(choice_json(cell.engine))
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


# A protocol with its decision, the facts of both, and their wording.
_Worded = tuple[Callable[..., Debate], ProtocolFacts, dict[str, str]]


def _worded(cell: Cell) -> _Worded:
    """A cell's protocol with its decision, the facts of both, and their wording; options that cannot be are refused."""
    function = deciding(options.load("protocol", cell.protocol.name), cell.decision)
    facts = facts_of(function)
    with _blamed_on("protocol", cell.protocol):
        if facts.check is not None:
            facts.check(**cell.protocol.options)
    with _blamed_on("prompt of protocol", cell.protocol):
        return function, facts, facts.checked_templates(cell.templates)


def _without_unshown(cell: Cell, facts: ProtocolFacts) -> Cell:
    """Samples that are not shown are no part of a run."""
    shown = facts.samples(**cell.protocol.options) != "none"
    return cell if shown else replace(cell, convincing=None)


def _ingredients(cell: Cell, templates: Mapping[str, str], task: PlannedTask, engine: PlannedEngine) -> dict[str, Any]:
    """All that affects a run's result."""
    helpers = {name: getattr(cell, name) for name in HELPERS}
    return {
        "task": task.task.name,
        "task_options": {key: value for key, value in cell.task.options.items() if key not in WHERE_ROWS_LIE},
        "rows": task.rows,
        "asked": task.asked,
        "metric": asdict(task.task.metric),
        "version": machine.versions().get("debate-local"),
        "protocol": choice_json(cell.protocol),
        "templates": dict(templates),
        "cast": [engine.member(agent) for agent in cell.cast],
        "helpers": {name: agent and engine.member(agent) for name, agent in helpers.items()},
        "decision": cell.decision,
        "seed": cell.seed,
        # Only where there are some, so that they take nothing from the identity of other runs.
        **({"quirks": list(cell.quirks)} if cell.quirks else {}),
        **({} if cell.convincing is None else {"convincing": cell.convincing.hash}),
    }


def _planned(
    cell: Cell, asked: bool, worded: _Worded, task: PlannedTask, engine: PlannedEngine, varying: frozenset[str]
) -> PlannedRun:
    """The run of a cell of which everything is known."""
    function, facts, templates = worded
    run_id = slug(cell, digest(_ingredients(cell, templates, task, engine))[:8])
    setting, label = setting_of(cell, task.task, templates), label_of(cell, varying)
    return PlannedRun(run_id, label, cell, asked, function, facts, setting, task, engine, varying)


def votes_instead(run: PlannedRun, control: str, samples: int) -> PlannedRun:
    """Self-consistency of so many samples as a control of a run, on its rows and its engine."""
    cell = control_cell(run, control, votes(samples, run.facts.alone(**run.cell.protocol.options)))
    worded = _worded(cell)
    cell = _without_unshown(cell, worded[1])
    return _planned(cell, False, worded, run.task, run.engine, run.varying)


def _all_greedy(cell: Cell) -> bool:
    return all(agent.sampling.greedy for agent in cell.cast)


def setting_of(cell: Cell, task: Task, templates: Mapping[str, str]) -> Setting:
    """What the cell's debates are given beside their items."""
    reader = ConfidenceReader(confidence.FORMAT, confidence.read_confidence)
    samples = () if cell.convincing is None else cell.convincing.samples
    return Setting(task, cell.cast, cell.seed, templates, cell.judge, cell.summariser, reader, samples=samples)


@contextlib.contextmanager
def _blamed_on(what: str, choice: Choice) -> Iterator[None]:
    """What a task, protocol or engine says of its own options, as an OptionFault that names it."""
    try:
        yield
    except OptionFault:
        raise
    except (ValueError, OSError) as error:
        raise OptionFault(f"{what} {choice.name!r}: {error}") from error
