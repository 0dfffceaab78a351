"""Names and options of tasks, protocols and engines, read from function signatures.

The name in a config is a module's name, its options are the signature of the module's one public function of that
name. A dotted name loads one from the user's own package. Nothing heavy is imported here.
"""

import difflib
import importlib
import inspect
import math
import pkgutil
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

Kind = Literal["task", "protocol", "engine"]
KINDS: tuple[Kind, ...] = ("task", "protocol", "engine")
_PACKAGES: dict[Kind, str] = {
    "task": "debate_local.tasks",
    "protocol": "debate_local.protocols",
    "engine": "debate_local.engines",
}


def as_kind(group: str) -> Kind | None:
    """The kind that a config group holds, None for groups of presets only."""
    return next((kind for kind in KINDS if kind == group), None)


class OptionFault(ValueError):
    """A name or value that a person typed and that cannot be: the message says which are valid."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a task, protocol or engine: its default and the type that its signature gives."""

    name: str
    default: Any
    type: Any


# What every engine can be given that has no `models` of its own: several models, which are a pool (engines/pool.py).
POOL_OPTIONS: Mapping[str, Option] = {
    "models": Option("models", {}, dict[str, Any]),
    "share": Option("share", "auto", Literal["auto", "yes", "no"]),
}


def nearest(wrong: str, valid: Iterable[str]) -> str:
    """` Did you mean 'debate'?`, or nothing when no valid name is near."""
    near = difflib.get_close_matches(wrong, list(valid), n=1, cutoff=0.5)
    return f" Did you mean {near[0]!r}?" if near else ""


@cache
def names(kind: Kind) -> tuple[str, ...]:
    """The names that ship with the toolkit: modules with a public function of their own name."""
    package = importlib.import_module(_PACKAGES[kind])
    found = []
    for module in pkgutil.iter_modules(package.__path__):
        if not module.ispkg and _function_in(f"{_PACKAGES[kind]}.{module.name}") is not None:
            found.append(module.name)
    return tuple(sorted(found))


@cache
def load(kind: Kind, name: str) -> Callable[..., Any]:
    """The function behind a name. Raises OptionFault for an unknown one."""
    if "." in name:
        try:
            function = _function_in(name)
        except (ImportError, SyntaxError) as error:
            raise OptionFault(f"{kind}={name}: the module cannot be imported ({error})") from error
        if function is None:
            short = name.rpartition(".")[2]
            raise OptionFault(f"{kind}={name}: the module has no public function called {short!r}")
        return function
    if name not in names(kind):
        raise OptionFault(f"there is no {kind} {name!r}.{nearest(name, names(kind))}\n{describe(kind)}")
    function = _function_in(f"{_PACKAGES[kind]}.{name}")
    assert function is not None
    return function


def _function_in(module_name: str) -> Callable[..., Any] | None:
    module = importlib.import_module(module_name)
    function = getattr(module, module_name.rpartition(".")[2], None)
    if inspect.isfunction(function) and function.__module__ == module.__name__:
        return function
    return None


@cache
def options(kind: Kind, name: str) -> Mapping[str, Option]:
    """The options of a name: its function's keyword parameters (a protocol is given item and setting besides).

    Engines that have no `models` or `share` of their own have those of a pool.
    """
    function = load(kind, name)
    hints = typing.get_type_hints(function)
    found: dict[str, Option] = {}
    for parameter in inspect.signature(function).parameters.values():
        if kind == "protocol" and parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            continue
        if parameter.name == "name":
            raise OptionFault(f"{kind} {name!r}: no option may be called 'name', which says what is chosen; rename it")
        if parameter.default is inspect.Parameter.empty:
            raise OptionFault(f"{kind} {name!r}: option {parameter.name!r} has no default; every option needs one")
        default = list(parameter.default) if isinstance(parameter.default, tuple) else parameter.default
        found[parameter.name] = Option(parameter.name, default, hints.get(parameter.name, Any))
    if kind == "engine" and found.keys().isdisjoint(POOL_OPTIONS):
        found.update(POOL_OPTIONS)
    return found


def pools(engine: str) -> bool:
    """Whether an engine's `models` are a pool's, and not its own."""
    return options("engine", engine).get("models") is POOL_OPTIONS["models"]


def describe(kind: Kind) -> str:
    """All valid names of a kind, each with its options and their defaults, one a line."""
    lines = [f"The valid {kind} names, with their options and defaults:"]
    for name in names(kind):
        shown = ", ".join(f"{o.name}={_show(o.default)}" for o in options(kind, name).values())
        lines.append(f"  {kind}={name}" + (f"  ({shown})" if shown else ""))
    return "\n".join(lines)


def describe_options(kind: Kind, name: str) -> str:
    """The options of one name with types and defaults, one a line."""
    lines = [f"The options of {kind} {name!r}:"]
    lines += [f"  {kind}.{o.name}={_show(o.default)}  ({type_name(o.type)})" for o in options(kind, name).values()] or [
        "  none"
    ]
    return "\n".join(lines)


def check(kind: Kind, name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values with types checked and defaults filled in. Raises OptionFault for what cannot be."""
    known = options(kind, name)
    for key in values:
        if key not in known:
            raise OptionFault(
                f"{kind} {name!r} has no option {key!r}.{nearest(key, known)}\n{describe_options(kind, name)}"
            )
    checked = {key: coerce(f"{kind}.{key}", values.get(key, o.default), o.type) for key, o in known.items()}
    if kind == "engine" and pools(name):
        checked["models"] = {str(key): _pooled(name, str(key), given) for key, given in checked["models"].items()}
    return checked


def _pooled(engine: str, model: str, given: Any) -> dict[str, Any]:
    """The options that a pool's model has of its own: a text is the option `model`, a mapping may hold any."""
    label = f"engine.models.{model}"
    known = {key: option for key, option in options("engine", engine).items() if key not in POOL_OPTIONS}
    if not model or "." in model:
        raise OptionFault(f"engine.models: a model's name may not be empty and may hold no dot, got {model!r}")
    if isinstance(given, str) and "model" in known:
        given = {"model": given}
    if not isinstance(given, Mapping):
        ways = "the engine's option `model` or a mapping" if "model" in known else "a mapping"
        raise OptionFault(f"{label} must be {ways} of the options that differ, got {given!r}")
    for key in given:
        if key not in known:
            raise OptionFault(
                f"{label}: engine {engine!r} has no option {key!r} (a model's name may hold no dot)."
                f"{nearest(str(key), known)} Its options: {', '.join(known)}"
            )
    return {key: coerce(f"{label}.{key}", value, known[key].type) for key, value in given.items()}


def coerce(label: str, value: Any, wanted: Any) -> Any:
    """The value as the wanted type, without loss: 3.0 is an int, "3" is not, an int is a float.

    Raises OptionFault naming the label, the value, and what is valid.
    """
    for alternative in _alternatives(wanted):
        fitted = _fit(label, value, alternative)
        if fitted is not _MISFIT:
            return fitted
    quotes = ""
    if str in _alternatives(wanted) and isinstance(value, (bool, int, float)):
        # What was typed may have been 0012 or 1e10: only the person knows.
        key, listed, _ = label.partition("[")
        quoted = f"\"{key}=['...']\"" if listed else f"\"{key}='...'\""
        quotes = f". A text that looks like a number or a truth value needs two kinds of quotes: {quoted}"
    raise OptionFault(f"{label} must be {type_name(wanted)}, got {value!r}{quotes}")


_MISFIT = object()
# What the name of a file ends with that a list or mapping may be kept in.
FILES = (".yaml", ".yml", ".json")


def _fit(label: str, value: Any, wanted: Any) -> Any:
    """The value as one plain type, or _MISFIT."""
    origin = typing.get_origin(wanted) or wanted
    if wanted is Any:
        return value
    if origin is Literal:
        words = typing.get_args(wanted)
        if isinstance(value, bool):
            # YAML 1.1 turns a bare on/off or yes/no into a boolean; the word was meant.
            value = next((word for word in (("on", "yes") if value else ("off", "no")) if word in words), value)
        return value if value in words else _MISFIT
    if isinstance(value, bool) or value is None:
        return value if origin is type(value) else _MISFIT
    if origin is float:
        # Neither nan nor inf: no strict reader of JSON takes them, and no option means them.
        return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else _MISFIT
    if origin is int:
        return int(value) if isinstance(value, int) or (isinstance(value, float) and value.is_integer()) else _MISFIT
    if origin is str:
        return value if isinstance(value, str) else _MISFIT
    if not inspect.isclass(origin):
        return _MISFIT
    if isinstance(value, str) and value.endswith(FILES):
        value = in_file(label, value)
    if issubclass(origin, Mapping):
        return _mapping(label, value, *typing.get_args(wanted)) if isinstance(value, Mapping) else _MISFIT
    if issubclass(origin, Sequence) and isinstance(value, (list, tuple)):
        inner = (typing.get_args(wanted) or (Any,))[0]
        return [coerce(f"{label}[{i}]", v, inner) for i, v in enumerate(value)]
    return _MISFIT


def _mapping(label: str, value: Mapping[Any, Any], keys: Any = Any, values: Any = Any) -> dict[Any, Any]:
    """Keys are texts where that is wanted, as they will be in run.json."""
    named = {str(key) if keys is str else key: one for key, one in value.items()}
    return named if values is Any else {key: coerce(f"{label}.{key}", one, values) for key, one in named.items()}


def in_file(label: str, path: str) -> Any:
    """A list or mapping that is kept in a file: what it holds is the option's value, wherever it lies."""
    import yaml

    try:
        return yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise OptionFault(f"{label}={path}: the file cannot be read: {error}") from error


def _alternatives(wanted: Any) -> tuple[Any, ...]:
    if typing.get_origin(wanted) in (typing.Union, types.UnionType):
        return typing.get_args(wanted)
    return (wanted,)


def type_name(wanted: Any) -> str:
    """A type in the words of a person: `a whole number or null`, `one of: full, none`."""
    words = []
    for alternative in _alternatives(wanted):
        origin = typing.get_origin(alternative) or alternative
        if origin is Literal:
            words.append("one of: " + ", ".join(str(v) for v in typing.get_args(alternative)))
        elif alternative is type(None):
            words.append("null")
        else:
            name = getattr(origin, "__name__", str(origin))
            words.append(_TYPE_WORDS.get(name, name))
    return " or ".join(words)


_TYPE_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "bool": "true or false",
    "list": "a list",
    "tuple": "a list",
    "Sequence": "a list",
    "dict": "a mapping",
    "Mapping": "a mapping",
    "Any": "any value",
}


def _show(value: Any) -> str:
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)
