"""From cells to runs: controls added, options checked, items loaded, engines constructed but not opened.

Everything that can fail without a GPU fails here (law 10). A run's id is a hash of what affects its result (law 11).
"""

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from debate_local.core.chat import Engine, Message, digest
from debate_local.core.protocol import ProtocolFacts, facts_of
from debate_local.core.setting import Agent, Setting
from debate_local.core.task import Task
from debate_local.core.transcript import Debate, Item

from . import options
from .config import Cell, Choice, Schema
from .engines import maker
from .options import OptionFault, nearest
from .store import rows_hash


@dataclass(frozen=True)
class PlannedTask:
    """A loaded task and the items that a cell runs on."""

    task: Task
    items: list[Item]
    rows: str


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
    return Plan(list(planner.runs.values()), planner.notes)


class _Planner:
    """Loads each task and makes each engine once, and meets each run once."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        self.runs: dict[str, PlannedRun] = {}
        self.notes: list[str] = []
        self._varying = _varying_settings(cells)
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
        _check_cast(cell, engine.engine)
        setting = Setting(task.task, cell.cast, cell.seed, templates)
        ingredients = {
            "task": task.task.name,
            "answer_format": task.task.answer_format,
            "rows": task.rows,
            "protocol": _choice_json(cell.protocol),
            "templates": templates,
            "cast": [{**asdict(agent), "model": engine.identities[agent.model]} for agent in cell.cast],
            "seed": cell.seed,
        }
        slug = _slug(cell, digest(ingredients)[:8])
        label = _label(cell, self._varying)
        return PlannedRun(slug, label, cell, asked, function, facts, setting, task, engine)

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
            ids = [item.id for item in kept]
            if len(set(ids)) < len(ids):
                raise OptionFault(f"task {cell.task.name!r} gave one item id twice: {_first_repeated(ids)}")
            self._tasks[key] = PlannedTask(task, kept, rows_hash(kept))
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
    except ValueError as error:
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
    if protocol.options.get("topology", "none") != "none" and protocol.options.get("rounds", 1) > 1:
        chosen.append(("reflect", Choice(protocol.name, {**protocol.options, "topology": "none"})))
    return chosen


def _check_cast(cell: Cell, engine: Engine) -> None:
    limits = engine.limits
    for index, agent in enumerate(cell.cast):
        if agent.model not in limits.models:
            unset = f"; name one for each agent: cast=[{{model: {limits.models[0]}}}, ...]"
            raise OptionFault(
                f"cast[{index}].model is {agent.model!r}, which engine {cell.engine.name!r} does not have."
                f"{nearest(agent.model, limits.models)} It has: {', '.join(limits.models)}"
                f"{unset if agent.model == Agent().model else ''}"
            )
        if limits.context_length is not None and agent.sampling.max_tokens >= limits.context_length:
            raise OptionFault(
                f"sampling.max_tokens={agent.sampling.max_tokens} leaves no room for a prompt: the context is "
                f"{limits.context_length} tokens. Lower sampling.max_tokens"
            )
        if agent.logprobs and not limits.logprobs:
            raise OptionFault(f"cast[{index}].logprobs: engine {cell.engine.name!r} gives no log-probabilities")
        if agent.prefill and not limits.prefill:
            raise OptionFault(
                f"cast[{index}].prefill: engine {cell.engine.name!r} cannot begin a reply with given text"
            )


def check_lengths(runs: Sequence[PlannedRun]) -> list[str]:
    """Notes on first prompts that do not fit the context: the longest item of each task, counted by the engine."""
    notes = []
    for run in _first_of_each_task_and_engine(runs):
        context = run.engine.engine.limits.context_length
        if context is None:
            continue
        asked = [(len(text), item.id, text) for item in run.task.items if (text := run.task.task.ask(item))]
        _, item_id, longest = max(asked)
        tokens = run.engine.engine.count_tokens([Message("user", longest)])
        room = context - max(agent.sampling.max_tokens for agent in run.cell.cast)
        if tokens > room:
            notes.append(
                f"item {item_id} of task {run.cell.task.name!r} takes {tokens} tokens; with the reply's max_tokens the "
                f"context of {context} leaves {room}: its replies will be cut short, or it will be too long"
            )
    return notes


def _first_of_each_task_and_engine(runs: Sequence[PlannedRun]) -> list[PlannedRun]:
    return list({(run.task.rows, run.engine.group): run for run in reversed(runs)}.values())


def _choice_json(choice: Choice) -> dict[str, Any]:
    return {"name": choice.name, **choice.options}


def _first_repeated(ids: Sequence[str]) -> str:
    return next(i for i in ids if ids.count(i) > 1)


def _settings(cell: Cell) -> dict[str, Any]:
    """A cell, flat: what may vary between cells, under the names that a person would type."""
    first = cell.cast[0].sampling
    flat: dict[str, Any] = {"task": cell.task.name, "protocol": cell.protocol.name, "engine": cell.engine.name}
    for kind, choice in (("task", cell.task), ("engine", cell.engine)):
        flat |= {f"{kind}.{key}": value for key, value in choice.options.items()}
    flat |= {f"sampling.{key}": value for key, value in asdict(first).items() if key != "seed"}
    flat |= {"seed": cell.seed, "limit": cell.limit, "offset": cell.offset}
    flat |= {f"prompt.{key}": digest(text)[:4] for key, text in cell.templates.items()}
    flat["model"] = "+".join(dict.fromkeys(agent.model for agent in cell.cast))
    if len(cell.cast) > 1 or cell.cast[0].persona:
        flat["cast"] = digest([asdict(agent) for agent in cell.cast])[:4]
    return flat


def _varying_settings(cells: Sequence[Cell]) -> set[str]:
    flat = [_settings(cell) for cell in cells]
    keys = {key for one in flat for key in one}
    return {key for key in keys if len({str(one.get(key)) for one in flat}) > 1} - {"protocol"}


def _label(cell: Cell, varying: set[str]) -> str:
    """A cell's name in tables: the protocol, its whole numbers, and whatever else varies in the sweep."""
    words = [cell.protocol.name, *_protocol_words(cell.protocol)]
    settings = _settings(cell)
    words += [f"{key.rpartition('.')[2]}={settings[key]}" for key in sorted(varying) if key in settings]
    return " ".join(words)


def _protocol_words(protocol: Choice) -> list[str]:
    defaults = options.options("protocol", protocol.name)
    return [
        f"{key}={value}"
        for key, value in protocol.options.items()
        if (isinstance(value, int) and not isinstance(value, bool)) or value != defaults[key].default
    ]


def _slug(cell: Cell, short_hash: str) -> str:
    """A folder's name: legible, at most 100 characters, the same whatever launched it."""
    temperature = cell.cast[0].sampling.temperature
    words = [cell.task.name.rpartition(".")[2], cell.protocol.name.rpartition(".")[2], *_protocol_words(cell.protocol)]
    words += [f"t{temperature:g}" if temperature is not None else "tmodel"]
    if cell.seed != Schema.seed:
        words.append(f"seed{cell.seed}")
    text = re.sub(r"[^A-Za-z0-9.]+", "-", "-".join(words)).strip("-.")
    return f"{text[:90].rstrip('-.')}-{short_hash}"
