"""Hydra's side of a sweep: from overrides to checked cells."""

import contextlib
import threading
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from .config import (
    PRESET_GROUPS,
    Cell,
    HowToRun,
    Schema,
    cell_from,
    config_folder,
    how_from,
    register,
    require_tracker,
)
from .explain import explained
from .options import OptionFault

VERSION_BASE = "1.3"
Plain = dict[str, Any]


def compose(overrides: Sequence[str], multirun: bool = False) -> tuple[list[Cell], HowToRun]:
    """The cells that overrides mean; with multirun, commas are sweeps as on the command line. Raises OptionFault."""
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
    from hydra.core.override_parser.overrides_parser import OverridesParser

    register(overrides)
    with (
        explained(overrides),
        _own_hydra(),
        initialize_config_dir(str(config_folder().resolve()), version_base=VERSION_BASE),
    ):
        jobs: Sequence[Sequence[str]] = [overrides]
        if multirun:
            parsed = OverridesParser.create().parse_overrides(list(overrides))
            (jobs,) = BasicSweeper.split_arguments(parsed, max_batch_size=None)
        return cells_from(compose_jobs(jobs, lambda job: hydra_compose("config", overrides=list(job))))


_ONE_AT_A_TIME = threading.RLock()


@contextlib.contextmanager
def _own_hydra() -> Iterator[None]:
    """Hydra's one global state, for us alone for a moment: the caller may be a Hydra program, or have threads."""
    from hydra.core.global_hydra import GlobalHydra

    with _ONE_AT_A_TIME:
        before = GlobalHydra.instance()
        # Not GlobalHydra(): that is the singleton itself.
        GlobalHydra.set_instance(object.__new__(GlobalHydra))
        GlobalHydra.instance().hydra = None
        try:
            yield
        finally:
            GlobalHydra.set_instance(before)


def compose_jobs(jobs: Sequence[Sequence[str]], load: Callable[[Sequence[str]], Any]) -> list[Plain]:
    """Each job's config as plain values.

    `load` is Hydra's composing, some 40 ms a job. Jobs that choose the same files and set the same keys differ in
    values only: the first of them is composed, and the others are copies with their own values put in. Whatever is
    not a plain value (a mapping, an interpolation, an added or removed key, a value that the schema would convert) is
    composed by Hydra, and so is a job that sets one of its plain values again in such a way: the later one counts.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser

    # The jobs of a sweep are made of few distinct overrides: each is parsed once.
    parsed = cache(lambda text: OverridesParser.create().parse_override(text))
    composed: dict[Any, Plain | None] = {}
    configs = []
    for job in jobs:
        values: dict[str, Any] = {}
        chosen, others = [], []
        for override in map(parsed, job):
            if _is_plain_value(override):
                values[override.key_or_group] = override.value()
                continue
            chosen.append(override.input_line)
            if not _chooses_a_file(override):
                others.append(override.key_or_group)
        like = (tuple(chosen), tuple(values))
        if any(_overlap(key, other) for key in values for other in others):
            configs.append(plain(load(job)))
        elif like not in composed:
            config = load(job)
            configs.append(plain(config))
            composed[like] = None if _interpolates(config) else configs[-1]
        elif (known := composed[like]) is None:
            configs.append(plain(load(job)))
        else:
            configs.append(_with_values(known, values))
    return configs


def plain(config: Any) -> Plain:
    """A composed config, resolved, as plain values; Hydra's own node is left out.

    What interpolates stands here as it was when the sweep was started: whoever works on it later has no resolvers.
    """
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import OmegaConf

    if "hydra" in config:
        # As Hydra does for a single job, so that ${hydra:...} is known in a sweep, too.
        HydraConfig.instance().set_config(config)
    nodes = {str(key): config[key] for key in config if key != "hydra"}
    return {
        key: OmegaConf.to_container(node, resolve=True) if OmegaConf.is_config(node) else node
        for key, node in nodes.items()
    }


def _is_plain_value(override: Any) -> bool:
    from hydra.core.override_parser.types import OverrideType

    if override.type is not OverrideType.CHANGE or override.is_sweep_override() or override.package is not None:
        return False
    if override.key_or_group in PRESET_GROUPS or override.key_or_group.startswith("hydra"):
        return False
    value = override.value()
    if not _as_typed(override.key_or_group, value):
        return False
    if isinstance(value, list):
        return all(isinstance(v, (str, int, float, bool)) and "${" not in str(v) for v in value)
    return value is None or (isinstance(value, (str, int, float, bool)) and "${" not in str(value))


_TYPES = typing.get_type_hints(Schema)


def _as_typed(key: str, value: Any) -> bool:
    """Whether the schema leaves a value as it is: limit='5' would become 5, and controls=no false."""
    wanted = _TYPES.get(key, Any)
    return wanted is Any or type(value) in (typing.get_args(wanted) or (wanted,))


def _chooses_a_file(override: Any) -> bool:
    """Whether it names a file of a config group: such are read first, wherever they stand among the overrides."""
    return override.key_or_group in PRESET_GROUPS and isinstance(override.value(), str)


def _overlap(a: str, b: str) -> bool:
    """Is one key the other, or within it?"""
    return f"{a}.".startswith(f"{b}.") or f"{b}.".startswith(f"{a}.")


def _interpolates(config: Any) -> bool:
    from omegaconf import OmegaConf

    nodes = (config._get_node(key) for key in config if key != "hydra")
    return any("${" in (OmegaConf.to_yaml(node) if OmegaConf.is_config(node) else str(node)) for node in nodes)


def _with_values(known: Plain, values: Mapping[str, Any]) -> Plain:
    """A copy of nested mappings down the paths that are set, and their values put in."""
    changed = dict(known)
    for path, value in values.items():
        *above, last = path.split(".")
        node = changed
        for key in above:
            node[key] = dict(node[key])
            node = node[key]
        node[last] = value
    return changed


def cells_from(configs: Sequence[Plain]) -> tuple[list[Cell], HowToRun]:
    """Check composed configs. What does not affect results must be the same in all of them."""
    hows = {how_from(config) for config in configs}
    if len(hows) > 1:
        raise OptionFault(
            "schedule, max_live, cache, max_restarts, stop, output and tracker do not change a result: they are not "
            "swept"
        )
    how = hows.pop()
    require_tracker(how.tracker)
    return [cell_from(config) for config in configs], how
