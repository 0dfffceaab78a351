"""Which models a run asks, and under which licence they come: what run.json and citations say of them.

A licence is what the model's own card (README.md, in the front matter) states, where it lies beside the weights or in
the hub's local cache. Nothing is fetched, and nothing is guessed: None where no card is at hand.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from debate_local.engines.weights import BUILTIN

from .config import Choice

_BUILTIN_LICENCE = "Apache-2.0"


def model_sources(engine: Choice, identity: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Name in the pool -> model (as a person named it), revision, licence, and the adapter put on top of it, if any."""
    found = {}
    for name, facts in identity.items():
        options = _options_of(engine, name)
        model = facts.get("model") or options.get("model")
        if not isinstance(model, str) or facts.get("kind") == "scripted":
            # The scripted engine has none, whatever it is called.
            continue
        revision = facts.get("revision") or options.get("revision")
        found[name] = {"model": model, "revision": revision, "licence": _licence(model, revision)}
        if "adapter" in facts:
            found[name]["adapter"] = str((options.get("adapters") or {}).get(name.rpartition(".")[2], name))
    return found


def _options_of(engine: Choice, name: str) -> Mapping[str, Any]:
    """The engine's options, those of the pool's model on top; an adapter is `model.adapter`."""
    pool = engine.options.get("models")
    own = pool.get(name, pool.get(name.partition(".")[0], {})) if isinstance(pool, Mapping) else {}
    return {**engine.options, **(own if isinstance(own, Mapping) else {"model": own})}


@cache
def _licence(model: str, revision: str | None) -> str | None:
    if model == BUILTIN:
        return _BUILTIN_LICENCE
    folder = Path(model).expanduser()
    card = (folder if folder.is_dir() else folder.parent) / "README.md" if folder.exists() else _cached(model, revision)
    return _stated_in(card) if card is not None and card.is_file() else None


def _cached(model: str, revision: str | None) -> Path | None:
    """A hub model's card in the hub's local cache."""
    try:
        from huggingface_hub import try_to_load_from_cache

        found = try_to_load_from_cache(model, "README.md", revision=revision)
    except (ImportError, ValueError):
        # No hub client here, or no hub id.
        return None
    return Path(found) if isinstance(found, str) else None


def _stated_in(card: Path) -> str | None:
    """`license:` of the front matter, between two lines of ---."""
    lines = card.read_text(encoding="utf-8", errors="replace").splitlines()
    if not lines or lines[0].strip() != "---" or "---" not in (marks := [line.strip() for line in lines[1:]]):
        return None
    try:
        matter = yaml.safe_load("\n".join(lines[1 : 1 + marks.index("---")]))
    except yaml.YAMLError:
        return None
    licence = matter.get("license") if isinstance(matter, Mapping) else None
    return str(licence) if licence else None
