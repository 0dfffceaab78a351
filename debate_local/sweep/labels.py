"""What cells and run folders are called."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from debate_local.core.chat import digest

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
    flat |= {name: agent and digest(agent_json(agent))[:4] for name in HELPERS for agent in [getattr(cell, name)]}
    flat |= {"seed": cell.seed, "limit": cell.limit, "offset": cell.offset}
    flat |= {"shuffle": cell.shuffle, "ids": cell.ids and digest(sorted(cell.ids))[:4]}
    flat["convincing"] = cell.convincing and cell.convincing.hash[:4]
    flat |= {f"prompt.{key}": digest(text)[:4] for key, text in cell.templates.items()}
    flat["model"] = "+".join(dict.fromkeys(agent.model for agent in cell.cast))
    if len(cell.cast) > 1 or cell.cast[0].persona:
        flat["cast"] = digest([agent_json(agent) for agent in cell.cast])[:4]
    return flat


def varying_settings(cells: Sequence[Cell]) -> set[str]:
    flat = [_settings(cell) for cell in cells]
    keys = {key for one in flat for key in one}
    return {key for key in keys if len({str(one.get(key)) for one in flat}) > 1} - {"protocol"}


def label(cell: Cell, varying: set[str]) -> str:
    """A cell's name in tables: the protocol, its whole numbers, and whatever else varies in the sweep."""
    words = [cell.protocol.name, *_protocol_words(cell.protocol), *_decision_words(cell)]
    settings = _settings(cell)
    last = {key: key.rpartition(".")[2] for key in varying}
    # `seed` may be the run's, the task's and the engine's: what one word does not tell apart is written whole.
    often = Counter(last.values())
    words += [f"{last[k] if often[last[k]] == 1 else k}={settings[k]}" for k in sorted(varying) if k in settings]
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


def _decision_words(cell: Cell) -> list[str]:
    return [] if cell.decision is None else [f"decision={cell.decision}"]


def slug(cell: Cell, short_hash: str) -> str:
    """A folder's name: legible, at most 100 characters, the same whatever launched it."""
    temperature = cell.cast[0].sampling.temperature
    words = [cell.task.name.rpartition(".")[2], cell.protocol.name.rpartition(".")[2], *_protocol_words(cell.protocol)]
    words += _decision_words(cell)
    words += [f"t{temperature:g}" if temperature is not None else "tmodel"]
    if cell.seed != Schema.seed:
        words.append(f"seed{cell.seed}")
    text = re.sub(r"[^A-Za-z0-9.]+", "-", "-".join(words)).strip("-.")
    return f"{text[:90].rstrip('-.')}-{short_hash}"
