"""Hydra's errors in our words: the wrong name, the nearest right one, and all valid ones with their defaults."""

from collections.abc import Sequence
from dataclasses import fields

from . import options
from .config import PRESET_GROUPS, Schema
from .options import OptionFault, as_kind, nearest
from .presets import chosen, presets


class explained:
    """A context in which Hydra's and OmegaConf's errors become OptionFaults that name what is valid."""

    def __init__(self, overrides: Sequence[str]) -> None:
        self._overrides = overrides

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        from hydra.errors import HydraException
        from omegaconf.errors import OmegaConfBaseException

        if isinstance(error, (HydraException, OmegaConfBaseException)):
            raise OptionFault(_explain(error, self._overrides)) from error


def _explain(error: BaseException, overrides: Sequence[str]) -> str:
    cause = f": {error.__cause__}" if error.__cause__ is not None else ""
    message = f"{error}{cause}"
    for check in (_unknown_name, _unknown_key, _comma_without_multirun):
        for override in overrides:
            key, found, value = override.partition("=")
            if found and (text := check(key.lstrip("+~"), value, overrides, message)):
                return text
    return message


def _unknown_name(key: str, value: str, overrides: Sequence[str], message: str) -> str | None:
    if key not in PRESET_GROUPS or "Could not find" not in message:
        return None
    files = presets(key)
    kind = as_kind(key)
    shipped = options.names(kind) if kind else ()
    for name in (part.strip("'\" ") for part in value.split(",")):
        if name and name not in files and name not in shipped and "." not in name:
            listing = options.describe(kind) if kind else ""
            extra = f"The presets: {', '.join(files)}" if files else "There are no presets."
            return f"there is no {key} {name!r}.{nearest(name, (*shipped, *files))}\n{listing}\n{extra}".replace(
                "\n\n", "\n"
            )
    return None


def _unknown_key(key: str, value: str, overrides: Sequence[str], message: str) -> str | None:
    head, dot, rest = key.partition(".")
    known = [field.name for field in fields(Schema)] + ["experiment", "hydra"]
    if head.partition("/")[0] not in known:
        return f"there is no setting {head!r}.{nearest(head, known)} The settings: {', '.join(sorted(known))}"
    kind = as_kind(head)
    if not dot or kind is None or "not in struct" not in message:
        return None
    option = rest.partition(".")[0]
    for name in chosen(kind, overrides):
        if name in options.names(kind) and option not in (valid := options.options(kind, name)):
            near = nearest(option, valid)
            return f"{kind} {name!r} has no option {option!r}.{near}\n{options.describe_options(kind, name)}"
    return None


def _comma_without_multirun(key: str, value: str, overrides: Sequence[str], message: str) -> str | None:
    if "Ambiguous value" in message and "," in value:
        return (
            f"{key}={value} holds commas: to sweep over the values add -m (debate-local run -m {key}={value} ...); "
            f"for one text with commas write '{key}=\"...\"' in two kinds of quotes"
        )
    return None
