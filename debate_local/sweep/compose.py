"""Hydra's side of a sweep: from overrides to checked cells, and Hydra's errors in our words."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from . import options
from .config import Cell, HowToRun, Schema, cell_from, config_folder, how_from, register
from .options import KINDS, Kind, OptionFault, nearest

VERSION_BASE = "1.3"
PRESET_GROUPS = ("task", "protocol", "prompt", "engine", "sampling", "experiment")


def compose(overrides: Sequence[str], multirun: bool = False) -> tuple[list[Cell], HowToRun]:
    """The cells that overrides mean; with multirun, commas are sweeps as on the command line. Raises OptionFault."""
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
    from hydra.core.override_parser.overrides_parser import OverridesParser

    register(overrides)
    with explained(overrides), initialize_config_dir(str(config_folder().resolve()), version_base=VERSION_BASE):
        jobs: list[list[str]] = [list(overrides)]
        if multirun:
            parsed = OverridesParser.create().parse_overrides(list(overrides))
            jobs = BasicSweeper.split_arguments(parsed, max_batch_size=None)[0]
        return cells_from([hydra_compose("config", overrides=job) for job in jobs])


def cells_from(composed: Sequence[Any]) -> tuple[list[Cell], HowToRun]:
    """Check composed configs. What does not affect results must be the same in all of them."""
    from omegaconf import OmegaConf

    plain: list[Mapping[str, Any]] = []
    for config in composed:
        container = OmegaConf.to_container(config, resolve=True)
        assert isinstance(container, dict)
        plain.append({str(key): value for key, value in container.items()})
    hows = {how_from(config) for config in plain}
    if len(hows) > 1:
        raise OptionFault(
            "schedule, max_live, cache, max_restarts and output do not change a result: they are not swept"
        )
    return [cell_from(config) for config in plain], hows.pop()


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
    for check in (_unknown_name, _unknown_key, _comma_without_multirun):
        for override in overrides:
            key, found, value = override.partition("=")
            if found and (text := check(key.lstrip("+~"), value, overrides, str(error))):
                return text
    cause = f": {error.__cause__}" if error.__cause__ is not None else ""
    return f"{error}{cause}"


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
