"""The typed configuration of one cell, from Hydra's composed config to plain values.

Hydra ends here: beyond this file there are frozen dataclasses only.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from debate_local.core.chat import Sampling
from debate_local.core.decisions import DECISION_TEMPLATES, check_decision
from debate_local.core.protocol import ProtocolFacts, facts_of
from debate_local.core.scheduler import Schedule
from debate_local.core.setting import Agent
from debate_local.protocols import single
from debate_local.tasks import quirks

from . import options
from .local_data import with_local_rows
from .options import FILES, KINDS, Kind, OptionFault, coerce, in_file, nearest
from .samples import SampleFile, read_samples
from .stopping import Stop, stop_from

CacheMode = Literal["on", "read", "off"]
# Each is a module of debate_local/trackers, an extra of ours, and the package that it needs.
TrackerName = Literal["none", "wandb", "mlflow", "tensorboard"]
PRESET_GROUPS = ("task", "protocol", "prompt", "engine", "sampling", "experiment")


@dataclass
class Schema:
    """What `conf/config.yaml` may hold: the types that Hydra enforces at the top level."""

    task: Any = None
    protocol: Any = None
    prompt: Any = None
    engine: Any = None
    sampling: Any = None
    cast: Any = field(default_factory=lambda: [{}])
    judge: Any = None
    summariser: Any = None
    decision: str | None = None
    convincing: str | None = None
    seed: int = 0
    limit: int | None = None
    offset: int = 0
    ids: Any = None
    shuffle: int | None = None
    suspects: Any = field(default_factory=list)
    data: str | None = None
    quirks: Any = field(default_factory=list)
    controls: bool = True
    extra_controls: Any = field(default_factory=list)
    max_samples: int = 64
    schedule: str = "rounds"
    max_live: int = 4096
    cache: str = "on"
    max_restarts: int = 2
    stop: Any = field(default_factory=lambda: {"at": None, "tokens": None})
    output: str = "runs"
    tracker: str | None = "none"


@dataclass(frozen=True)
class Choice:
    """A name and its checked options."""

    name: str
    options: Mapping[str, Any]


@dataclass(frozen=True)
class Cell:
    """One point of a sweep: everything that determines its result, but for the rows and the weights.

    prompt: what its wording is called, for people: the result is the templates'.
    """

    task: Choice
    protocol: Choice
    engine: Choice
    templates: Mapping[str, str]
    cast: tuple[Agent, ...]
    seed: int
    limit: int | None
    offset: int
    controls: bool
    ids: list[str] | None = None
    shuffle: int | None = None
    suspects: list[str] = field(default_factory=list)
    extra_controls: list[str] = field(default_factory=list)
    max_samples: int = 64
    decision: str | None = None
    judge: Agent | None = None
    summariser: Agent | None = None
    convincing: SampleFile | None = None
    prompt: str | None = None
    quirks: Sequence[str] = ()


@dataclass(frozen=True)
class HowToRun:
    """What does not change a result: where, in what order, how much at once."""

    schedule: Schedule = "rounds"
    max_live: int = 4096
    cache: CacheMode = "on"
    max_restarts: int = 2
    stop: Stop = field(default_factory=Stop)
    output: Path = Path("runs")
    tracker: TrackerName = "none"


def config_folder() -> Path:
    """The folder of Hydra configs: inside the installed package, or at the top of a checkout."""
    inside = Path(__file__).parents[1] / "conf"
    return inside if inside.is_dir() else Path(__file__).parents[2] / "conf"


def register(overrides: Sequence[str] = ()) -> None:
    """Give Hydra the schema and one config node a task, protocol and engine, dotted names in the overrides included.

    Raises OptionFault for overrides of which one would undo another without a word.
    """
    _check_overrides(overrides)
    from hydra.core.config_store import ConfigStore

    store = ConfigStore.instance()
    store.store(name="schema", node=Schema)
    templates: set[str] = set(DECISION_TEMPLATES)
    for kind in KINDS:
        for name in (*options.names(kind), *_dotted_names(kind, overrides)):
            store.store(group=kind, name=name, node=_node(kind, name))
            if kind == "protocol":
                templates |= set(_facts(name).templates)
    # Every template that may be worded otherwise, unset: a protocol's own wording stands at the foot of its file.
    store.store(group="prompt", name="default", node={"name": None, **dict.fromkeys(sorted(templates))})


def _facts(protocol: str) -> ProtocolFacts:
    try:
        return facts_of(options.load("protocol", protocol))
    except OptionFault:
        raise
    except ValueError as error:
        raise OptionFault(f"protocol={protocol}: {error}. The shortest one to begin from: {single.__file__}") from error


def _node(kind: Kind, name: str) -> Any:
    """A name and its defaults, for Hydra; a mapping takes new keys (engine.adapters.x=DIR) without Hydra's `+`."""
    from omegaconf import DictConfig, OmegaConf

    node = OmegaConf.create({"name": name, **{o.name: o.default for o in options.options(kind, name).values()}})
    for value in node.values():
        if isinstance(value, DictConfig):
            OmegaConf.set_struct(value, False)
    return node


def _check_overrides(overrides: Sequence[str]) -> None:
    """Refuse `engine.models.a=X engine.models.a.dtype=Y`: in a mapping that takes any key the text would be lost."""
    given = [override.lstrip("+").split("=", 1) for override in overrides if "=" in override and override[0] != "~"]
    for key, value in given:
        below = next((other for other, _ in given if "." in key and other.startswith(f"{key}.")), None)
        if below is not None and not value.lstrip().startswith("{"):
            raise OptionFault(
                f"{key}={value} and {below}=... undo each other: a mapping is needed. Give a model of a pool as "
                f"{key}.model={value}, or the whole as one mapping: '{key}={{...}}'"
            )


def _dotted_names(kind: Kind, overrides: Sequence[str]) -> list[str]:
    found = []
    for override in overrides:
        match = re.fullmatch(rf"\+?{kind}(?:@[\w.]+)?=(.+)", override)
        if match:
            found += [name for part in match.group(1).split(",") if "." in (name := part.strip("'\" "))]
    return found


def cell_from(config: Mapping[str, Any]) -> Cell:
    """Check one composed config. Raises OptionFault with the valid names and values."""
    known = {f.name for f in fields(Schema)}
    for name in config:
        if name not in known | {"experiment"}:
            raise OptionFault(
                f"there is no setting {name!r}.{nearest(name, known)} The settings: {', '.join(sorted(known))}"
            )
    task, protocol, engine = (_choice(kind, config.get(kind)) for kind in KINDS)
    base = _sampling("sampling", config.get("sampling") or {}, Sampling())
    limit = coerce("limit", config.get("limit"), int | None)
    offset = coerce("offset", config.get("offset", 0), int)
    if limit is not None and limit < 1:
        raise OptionFault(f"limit must be at least 1, or null for all items; got {limit}")
    if offset < 0:
        raise OptionFault(f"offset must be 0 or more, got {offset}")
    ids = _ids("ids", config.get("ids"))
    if ids == []:
        raise OptionFault("ids names no item: give some, or null for all")
    return Cell(
        task=with_local_rows(task, coerce("data", config.get("data"), str | None)),
        protocol=protocol,
        engine=engine,
        templates=_templates(config.get("prompt")),
        prompt=coerce("prompt.name", (config.get("prompt") or {}).get("name"), str | None),
        cast=_cast(config.get("cast"), base),
        seed=coerce("seed", config.get("seed", 0), int),
        limit=limit,
        offset=offset,
        controls=coerce("controls", config.get("controls", True), bool),
        ids=ids,
        shuffle=coerce("shuffle", config.get("shuffle"), int | None),
        suspects=_ids("suspects", config.get("suspects")) or [],
        extra_controls=_extra_controls(config.get("extra_controls")),
        max_samples=_max_samples(config.get("max_samples", 64)),
        decision=_decision(config.get("decision")),
        judge=_helper("judge", config.get("judge"), base),
        summariser=_helper("summariser", config.get("summariser"), base),
        convincing=_samples(config.get("convincing")),
        quirks=_quirks(config.get("quirks")),
    )


def _quirks(value: Any) -> list[str]:
    """Names of quirks; one alone need not stand in a list."""
    names = coerce("quirks", [value] if isinstance(value, str) else value or [], list[str])
    try:
        return quirks.checked(names)
    except ValueError as error:
        raise OptionFault(str(error)) from error


def _ids(label: str, value: Any) -> list[str] | None:
    """Item ids. One that looks like a whole number is taken as written; other numbers have lost their digits."""
    if isinstance(value, (str, int)) and not isinstance(value, bool):
        value = [value]
    if isinstance(value, list):
        value = [str(one) if isinstance(one, int) and not isinstance(one, bool) else one for one in value]
        if any(isinstance(one, float) for one in value):
            raise OptionFault(f"{label}: an id that looks like a number needs quotes: {label}=['12e45'], got {value!r}")
    checked: list[str] | None = coerce(label, value, list[str] | None)
    return checked


def _extra_controls(value: Any) -> list[str]:
    """Controls beside the usual ones. Raises OptionFault for a name that no protocol has."""
    found: list[str] = coerce("extra_controls", [value] if isinstance(value, str) else value or [], list[str])
    known = sorted({name for p in options.names("protocol") for name in facts_of(options.load("protocol", p)).variants})
    for name in found:
        if name not in known:
            raise OptionFault(
                f"extra_controls has {name!r}, and no protocol has such a control.{nearest(name, known)} They are: "
                f"{', '.join(known)}; the usual ones come with controls=true"
            )
    return found


def _max_samples(value: Any) -> int:
    found: int = coerce("max_samples", value, int)
    if found < 0:
        raise OptionFault(f"max_samples must be 0 (no second phase) or more, got {found}")
    return found


def how_from(config: Mapping[str, Any]) -> HowToRun:
    """Check the part of a config that does not change a result."""
    max_live = coerce("max_live", config.get("max_live", 4096), int)
    if max_live < 1:
        raise OptionFault(f"max_live must be at least 1, got {max_live}")
    max_restarts = coerce("max_restarts", config.get("max_restarts", 2), int)
    if max_restarts < 0:
        raise OptionFault(f"max_restarts must be 0 or more, got {max_restarts}")
    return HowToRun(
        schedule=coerce("schedule", config.get("schedule", "rounds"), Schedule),
        max_live=max_live,
        cache=coerce("cache", _on_off(config.get("cache", "on")), CacheMode),
        max_restarts=max_restarts,
        stop=_stop(config.get("stop") or {}),
        output=Path(coerce("output", config.get("output", "runs"), str)).expanduser(),
        tracker=coerce("tracker", config.get("tracker") or "none", TrackerName),
    )


def require_tracker(name: TrackerName) -> None:
    """Raise OptionFault when the tracker's package is not installed."""
    # A folder of that name in the working folder passes for a package, but has no origin.
    if name != "none" and ((found := find_spec(name)) is None or found.origin is None):
        raise OptionFault(
            f"tracker={name}: its package is not installed. Install it (pip install 'debate-local[{name}]'), or run "
            "without a tracker (tracker=none)"
        )


def _stop(node: Any) -> Stop:
    if not isinstance(node, Mapping) or set(node) - {"at", "tokens"}:
        raise OptionFault(f"stop has the settings at and tokens, such as stop.at=07:00 stop.tokens=50M; got {node!r}")
    return stop_from(node.get("at"), node.get("tokens"))


def _on_off(value: Any) -> Any:
    # The schema types `cache` as text, so YAML's bare on/off arrive here as "True"/"False".
    return {"True": "on", "False": "off", "true": "on", "false": "off"}.get(str(value), value)


def _choice(kind: Kind, node: Any) -> Choice:
    if not isinstance(node, Mapping) or not node.get("name"):
        raise OptionFault(f"no {kind} was chosen: add {kind}=NAME.\n{options.describe(kind)}")
    values = {key: value for key, value in node.items() if key != "name"}
    return Choice(node["name"], options.check(kind, node["name"], values))


def _templates(node: Any) -> dict[str, str]:
    values = {} if node is None else node
    if not isinstance(values, Mapping):
        raise OptionFault(f"prompt must be a mapping from template names to texts, got {values!r}")
    return {
        str(name): coerce(f"prompt.{name}", text, str)
        for name, text in values.items()
        if text is not None and name != "name"
    }


_SAMPLING_TYPES: dict[str, Any] = {f.name: f.type for f in fields(Sampling)}


def _sampling(label: str, values: Mapping[str, Any], base: Sampling) -> Sampling:
    """`base` with values changed; null means the model's own default."""
    if not isinstance(values, Mapping):
        raise OptionFault(f"{label} must be a mapping such as {{temperature: 0.7}}, got {values!r}")
    known = {name: getattr(base, name) for name in _SAMPLING_TYPES if name != "seed"}
    for name, value in values.items():
        if name == "seed":
            raise OptionFault(f"{label}.seed cannot be set: each request's seed comes from the run's `seed`")
        if name not in known:
            raise OptionFault(
                f"{label} has no option {name!r}.{nearest(name, known)} Its options: {', '.join(sorted(known))}"
            )
        checked = coerce(f"{label}.{name}", value, _SAMPLING_TYPES[name])
        known[name] = tuple(checked) if isinstance(checked, list) else checked
    try:
        return Sampling(**known)
    except ValueError as error:
        raise OptionFault(str(error)) from error


def _decision(value: Any) -> str | None:
    """The word of a decision; None: the protocol's own."""
    rule: str | None = coerce("decision", value, str | None)
    try:
        if rule is not None:
            check_decision(rule)
    except ValueError as error:
        raise OptionFault(str(error)) from error
    return rule


def _samples(value: Any) -> SampleFile | None:
    path: str | None = coerce("convincing", value, str | None)
    return None if path is None else read_samples(path)


_AGENT_TYPES: dict[str, Any] = {f.name: f.type for f in fields(Agent) if f.name != "sampling"}


def _cast(node: Any, sampling: Sampling) -> tuple[Agent, ...]:
    """The members, each a mapping of what differs from the default agent; sampling fields may be given by member.

    A text names a list that is kept in a file: a cast of conf/casts/, or any YAML file.
    """
    if isinstance(node, str):
        node = _named_cast(node)
    if not isinstance(node, (list, tuple)) or not node:
        raise OptionFault(f"cast must be a list of one or more agents, such as [{{persona: ...}}], got {node!r}")
    return tuple(_member(f"cast[{index}]", values, sampling) for index, values in enumerate(node))


def _named_cast(name: str) -> Any:
    shipped = sorted(path.stem for path in (config_folder() / "casts").glob("*.yaml"))
    if not name.endswith(FILES) and name not in shipped:
        raise OptionFault(
            f"there is no cast {name!r}.{nearest(name, shipped)} cast is a list of agents such as [{{persona: ...}}], "
            f"the path of a YAML file of one, or one of: {', '.join(shipped)}"
        )
    return in_file("cast", name if name.endswith(FILES) else str(config_folder() / "casts" / f"{name}.yaml"))


def _helper(label: str, values: Any, sampling: Sampling) -> Agent | None:
    """A judge or summariser, a mapping like a member of the cast; None: as the protocol has it."""
    return None if values is None else _member(label, values, sampling)


def _member(label: str, values: Any, sampling: Sampling) -> Agent:
    if not isinstance(values, Mapping):
        like = f", such as {label}={{model: {values}}}" if isinstance(values, str) and "[" not in label else ""
        raise OptionFault(f"{label} must be a mapping{like}; got {values!r}")
    known = {*_AGENT_TYPES, "sampling"}
    for name in values:
        if name not in known:
            near = nearest(str(name), known)
            raise OptionFault(f"{label} has no option {name!r}.{near} Its options: {', '.join(sorted(known))}")
    own = {name: coerce(f"{label}.{name}", values[name], _AGENT_TYPES[name]) for name in values if name != "sampling"}
    if "persona" in own and not own["persona"].strip():
        raise OptionFault(f"{label}.persona has no text; leave it out for an agent without a persona")
    return Agent(sampling=_sampling(f"{label}.sampling", values.get("sampling") or {}, sampling), **own)
