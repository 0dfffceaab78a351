"""A cell as JSON and back: what run.json and a frozen plan say of it."""

from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields
from functools import cache
from typing import Any

from debate_local.core.chat import Sampling
from debate_local.core.setting import Agent

from . import options
from .config import Cell, Choice
from .options import KINDS
from .samples import SampleFile
from .store import StoreFault

# Fields of a cell that hold one agent, or None.
HELPERS = ("judge", "summariser")


def choice_json(choice: Choice) -> dict[str, Any]:
    """A choice as one mapping: its name, then its options."""
    return {"name": choice.name, **choice.options}


def cell_json(cell: Cell) -> dict[str, Any]:
    """All of a cell, as JSON values."""
    values = {f.name: getattr(cell, f.name) for f in fields(cell)}
    values |= {kind: choice_json(values[kind]) for kind in KINDS}
    values |= {name: None if values[name] is None else agent_json(values[name]) for name in HELPERS}
    values["convincing"] = None if cell.convincing is None else cell.convincing.to_json()
    return values | {"templates": dict(cell.templates), "cast": [agent_json(agent) for agent in cell.cast]}


def agent_json(agent: Agent) -> dict[str, Any]:
    """All of an agent, as JSON values."""
    values = {f.name: getattr(agent, f.name) for f in fields(agent)}
    return values | {"sampling": dict(sampling_json(agent.sampling)), "template_args": dict(agent.template_args)}


@cache
def sampling_json(sampling: Sampling) -> Mapping[str, Any]:
    """The fields of a sampling; made once for each, because a sweep has thousands of cells and few samplings."""
    return asdict(sampling)


def cell_of(record: Mapping[str, Any], **instead: Any) -> Cell:
    """The cell that a record describes, some of its fields put in stead.

    Raises OptionFault for options that are gone by now, StoreFault for a record that names too little.
    """
    given = {**record, **instead}
    try:
        values = {f.name: given[f.name] for f in fields(Cell) if f.name in given or f.default is MISSING}
        values |= {kind: _choice(kind, given[kind]) for kind in KINDS}
        values |= {name: None if given.get(name) is None else _agent(given[name]) for name in HELPERS}
        convincing = given.get("convincing")
        values["convincing"] = None if convincing is None else SampleFile.from_json(convincing)
        values |= {"templates": dict(given["templates"]), "cast": tuple(_agent(member) for member in given["cast"])}
    except KeyError as missing:
        raise StoreFault(f"this record names no {missing}: it is not a whole record of a run") from missing
    return Cell(**values)


def _choice(kind: options.Kind, node: Mapping[str, Any]) -> Choice:
    values = {key: value for key, value in node.items() if key != "name"}
    return Choice(node["name"], options.check(kind, node["name"], values))


def _agent(member: Mapping[str, Any]) -> Agent:
    sampling = {**member["sampling"], "stop": tuple(member["sampling"]["stop"])}
    return Agent(**{**member, "sampling": Sampling(**sampling)})
