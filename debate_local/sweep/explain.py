"""Hydra's errors in our words: the wrong name, the nearest right one, and all valid ones with their defaults."""

import re
from collections.abc import Sequence
from dataclasses import fields

from . import options
from .config import PRESET_GROUPS, Schema, config_folder
from .options import KINDS, Kind, OptionFault, nearest


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
    presets = _presets(key)
    kind = _kind(key)
    shipped = options.names(kind) if kind else ()
    for name in (part.strip("'\" ") for part in value.split(",")):
        if name and name not in presets and name not in shipped and "." not in name:
            listing = options.describe(kind) if kind else ""
            extra = f"The presets: {', '.join(presets)}" if presets else "There are no presets."
            return f"there is no {key} {name!r}.{nearest(name, (*shipped, *presets))}\n{listing}\n{extra}".replace(
                "\n\n", "\n"
            )
    return None


def _unknown_key(key: str, value: str, overrides: Sequence[str], message: str) -> str | None:
    head, dot, rest = key.partition(".")
    known = [field.name for field in fields(Schema)] + ["experiment", "hydra"]
    if head.partition("/")[0] not in known:
        return f"there is no setting {head!r}.{nearest(head, known)} The settings: {', '.join(sorted(known))}"
    kind = _kind(head)
    if not dot or kind is None or "not in struct" not in message:
        return None
    option = rest.partition(".")[0]
    for name in _chosen(kind, overrides):
        if name in options.names(kind) and option not in (valid := options.options(kind, name)):
            near = nearest(option, valid)
            return f"{kind} {name!r} has no option {option!r}.{near}\n{options.describe_options(kind, name)}"
    return None


def _kind(group: str) -> Kind | None:
    return next((kind for kind in KINDS if kind == group), None)


def _comma_without_multirun(key: str, value: str, overrides: Sequence[str], message: str) -> str | None:
    if "Ambiguous value" in message and "," in value:
        return (
            f"{key}={value} holds commas: to sweep over the values add -m (debate-local run -m {key}={value} ...); "
            f"for one text with commas write '{key}=\"...\"' in two kinds of quotes"
        )
    return None


def _presets(group: str) -> list[str]:
    return sorted(path.stem for path in (config_folder() / group).glob("*.yaml"))


def _chosen(group: str, overrides: Sequence[str]) -> list[str]:
    """The names chosen for a group on the command line, presets followed to the name they extend; else the default."""
    names = [value for key, _, value in (o.partition("=") for o in overrides) if key.lstrip("+") == group]
    chosen = [name for value in names for name in value.split(",")] or [_default(group)]
    return [_base_of(group, name) for name in chosen]


def _default(group: str) -> str:
    text = (config_folder() / "config.yaml").read_text(encoding="utf-8")
    match = re.search(rf"^\s*- {group}: (\S+)", text, re.MULTILINE)
    return match.group(1) if match else ""


def _base_of(group: str, name: str) -> str:
    path = config_folder() / group / f"{name}.yaml"
    if path.exists() and (
        match := re.search(r"^defaults:\s*\n\s*- (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    ):
        return match.group(1)
    return name
