"""What cells and run folders are called."""

import re
from collections import Counter
from collections.abc import Sequence, Set
from typing import Any

from debate_local.core.chat import Sampling, digest
from debate_local.core.setting import Agent

from . import options
from .cells import HELPERS, agent_json, sampling_json
from .config import Cell, Choice, Schema


def _settings(cell: Cell) -> dict[str, Any]:
    """A cell, flat: what may vary between cells, under the names that a person would type."""
    first = cell.cast[0].sampling
    flat: dict[str, Any] = {"task": cell.task.name, "protocol": cell.protocol.name, "engine": cell.engine.name}
    for kind, choice in (("task", cell.task), ("engine", cell.engine)):
        flat |= {f"{kind}.{key}": value for key, value in choice.options.items()}
    flat |= {f"sampling.{key}": value for key, value in sampling_json(first).items() if key != "seed"}
    flat |= {name: agent and _helper(agent, first) for name in HELPERS for agent in [getattr(cell, name)]}
    flat |= {"seed": cell.seed, "limit": cell.limit, "offset": cell.offset}
    flat |= {"shuffle": cell.shuffle, "ids": cell.ids and digest(sorted(cell.ids))[:4]}
    flat["convincing"] = cell.convincing and cell.convincing.hash[:4]
    flat |= {f"prompt.{key}": digest(text)[:4] for key, text in cell.templates.items()}
    models = [agent.model for agent in cell.cast]
    flat |= {"prompt": cell.prompt, "model": "+".join(models if len(set(models)) > 1 else models[:1])}
    members = [{**agent_json(agent), "model": ""} for agent in cell.cast]
    if cell.cast[0].persona or any(member != members[0] for member in members):
        names = [agent.name for agent in cell.cast]
        flat["cast"] = "+".join(names) if all(names) else digest(members)[:4]
    return flat


# Where rows lie says nothing of what is run.
_UNTOLD = ("task.path", "task.shots_path")
# Which items: that depends on the task, as its options do.
_OF_THE_TASK = ("limit", "offset", "shuffle", "ids")


def _helper(agent: Agent, usual: Sampling) -> str:
    """A judge or summariser by its model; with a hash of what else it has of its own."""
    plain = agent == Agent(model=agent.model, sampling=usual)
    return agent.model if plain else f"{agent.model}-{digest(agent_json(agent))[:4]}"


def varying_settings(cells: Sequence[Cell]) -> set[str]:
    """What tells cells apart. What belongs to a task, an engine or a wording is held against its like only."""
    values: dict[str, dict[str, set[str]]] = {}
    flat = [_settings(cell) for cell in cells]
    for key in {key for one in flat for key in one}:
        owner = "task" if key in _OF_THE_TASK else key.partition(".")[0]
        owner = owner if owner in ("task", "engine", "prompt") and owner != key else ""
        for one in flat:
            values.setdefault(key, {}).setdefault(str(one.get(owner)), set()).add(str(one.get(key)))
    return {key for key, by_owner in values.items() if any(len(found) > 1 for found in by_owner.values())} - {
        "protocol"
    }


def label(cell: Cell, varying: Set[str]) -> str:
    """A cell's name in tables: the protocol, its whole numbers, and whatever else varies in the sweep."""
    words = [cell.protocol.name, *_protocol_words(cell.protocol), *_rule_words(cell)]
    settings = _settings(cell)
    last = {key: key.rpartition(".")[2] for key in varying}
    # `seed` may be the run's, the task's and the engine's: what one word does not tell apart is written whole.
    often = Counter(last.values())
    words += [
        f"{last[k] if often[last[k]] == 1 else k}={settings[k]}"
        for k in sorted(varying)
        if settings.get(k) is not None and k not in _UNTOLD
    ]
    return " ".join(words)


def _protocol_words(protocol: Choice) -> list[str]:
    defaults = options.options("protocol", protocol.name)
    return [
        f"{key}={_short(value)}"
        for key, value in protocol.options.items()
        if (isinstance(value, int) and not isinstance(value, bool)) or value != defaults[key].default
    ]


def _short(value: Any) -> Any:
    """A value as a label has it: of a list or mapping, which may be long, a hash."""
    return digest(value)[:4] if isinstance(value, (list, dict)) else value


def _rule_words(cell: Cell) -> list[str]:
    words = [] if cell.decision is None else [f"decision={cell.decision}"]
    return words + ([f"quirks={'+'.join(cell.quirks)}"] if cell.quirks else [])


def slug(cell: Cell, short_hash: str) -> str:
    """A folder's name: legible, at most 100 characters, the same whatever launched it."""
    temperature = cell.cast[0].sampling.temperature
    words = [cell.task.name.rpartition(".")[2], cell.protocol.name.rpartition(".")[2], *_protocol_words(cell.protocol)]
    words += _rule_words(cell)
    words += [f"t{temperature:g}" if temperature is not None else "tmodel"]
    if cell.seed != Schema.seed:
        words.append(f"seed{cell.seed}")
    text = re.sub(r"[^A-Za-z0-9.]+", "-", "-".join(words)).strip("-.")
    return f"{text[:90].rstrip('-.')}-{short_hash}"
