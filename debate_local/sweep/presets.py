"""Which names and presets a line of overrides chooses, read from the defaults lists in conf/ without Hydra."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import yaml

from .config import config_folder


def presets(group: str) -> list[str]:
    """The preset files of a group, sorted."""
    return sorted(path.stem for path in (config_folder() / group).glob("*.yaml"))


def chosen(group: str, overrides: Iterable[str]) -> list[str]:
    """What a group is by the overrides, their experiment, or config.yaml; presets are followed to what they extend."""
    told = dict(word.lstrip("+").split("=", 1) for word in overrides if "=" in word)
    names = told.get(group, "")
    if not names and (experiment := told.get("experiment", "").partition(",")[0]):
        names = _of_experiment(experiment, group)
    names = names or _defaults(config_folder() / "config.yaml").get(group, "")
    return [_extended(group, name) for name in names.split(",") if name]


def _of_experiment(experiment: str, group: str) -> str:
    """What an experiment, or the one that it extends, makes of a group; "" where neither says."""
    found = _defaults(config_folder() / "experiment" / f"{experiment}.yaml")
    return found.get(group, "") or (_of_experiment(found[""], group) if found.get("") else "")


def _extended(group: str, name: str) -> str:
    base = _defaults(config_folder() / group / f"{name}.yaml").get("")
    return _extended(group, base) if base else name


def _defaults(file: Path) -> dict[str, str]:
    """Hydra's defaults list of a file as group -> name; under "" the file of the same group that it extends."""
    if not file.is_file():
        return {}
    found = {}
    for entry in (yaml.safe_load(file.read_text(encoding="utf-8")) or {}).get("defaults") or ():
        if isinstance(entry, Mapping):
            ((group, name),) = entry.items()
            found[group.rpartition(" ")[2].lstrip("/")] = name or ""
        elif entry not in ("_self_", "schema"):
            # `gsm8k@task`: a preset that sets more than the task's own options names the package.
            found[""] = entry.partition("@")[0]
    return found
