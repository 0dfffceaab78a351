"""From the choice of an engine to what makes it: one engine, or a pool when `engine.models` names several models."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from debate_local.core.chat import Engine, digest
from debate_local.engines.pool import Pool

from . import options
from .config import Choice
from .options import POOL_OPTIONS, OptionFault


def maker(choice: Choice) -> Callable[[], Engine]:
    """What makes the engine of a choice. A model of a pool has the engine's options, its own put in their stead."""
    function = options.load("engine", choice.name)
    if not options.pools(choice.name):
        return partial(function, **choice.options)
    base = {key: value for key, value in choice.options.items() if key not in POOL_OPTIONS}
    if not choice.options["models"]:
        return partial(function, **base)
    # Names that stand for the same options get the same maker: their engine is loaded once.
    distinct: dict[str, Callable[[], Engine]] = {}
    makers: dict[str, Callable[[], Engine]] = {}
    for name, own in choice.options["models"].items():
        values = {**base, **own}
        makers[name] = distinct.setdefault(digest(values), partial(_member, function, name, values))
    return partial(Pool, makers, choice.options["share"])


def _member(function: Callable[..., Engine], name: str, values: Mapping[str, Any]) -> Engine:
    try:
        return function(**values)
    except ValueError as error:
        raise OptionFault(f"engine.models.{name}: {error}") from error
