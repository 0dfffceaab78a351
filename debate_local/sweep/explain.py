"""Hydra's errors in our words: the wrong name, the nearest right one, and all valid ones with their defaults."""

import typing
from collections.abc import Sequence
from dataclasses import fields

from debate_local.core.chat import Sampling
from debate_local.core.protocol import facts_of

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

        # Composing raises plain ValueErrors too: task=null, or a GlobalHydra that somebody else holds.
        theirs = isinstance(error, ValueError) and _raised_in(error).split(".")[0] in ("hydra", "omegaconf")
        if error is None or not (theirs or isinstance(error, (HydraException, OmegaConfBaseException))):
            return
        raise OptionFault(_explain(error, self._overrides)) from error


def _raised_in(error: BaseException) -> str:
    """The module whose code raised."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return str(trace.tb_frame.f_globals.get("__name__", "")) if trace is not None else ""


def _explain(error: BaseException, overrides: Sequence[str]) -> str:
    from hydra.errors import OverrideParseException

    cause = f": {error.__cause__}" if error.__cause__ is not None else ""
    message = f"{error}{cause}"
    for check in (_unknown_name, _unknown_key, _comma_without_multirun):
        for override in overrides:
            key, found, value = override.partition("=")
            if found and (text := check(key.lstrip("+~"), value, overrides, message)):
                return text
    if isinstance(error, OverrideParseException):
        return (
            f"{message}\nA value with spaces, commas, colons and the like is written in two kinds of quotes: "
            "'prompt.debate=\"Others say: ...\"'; one that holds both kinds, with a backslash before the inner ones"
        )
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
    if not dot:
        return _wrong_value(key, value, message)
    if "not in struct" not in message:
        return None
    option = rest.partition(".")[0]
    if head == "sampling":
        valid_fields = sorted(f.name for f in fields(Sampling) if f.name != "seed")
        if option not in valid_fields:
            near = nearest(option, valid_fields)
            return f"sampling has no option {option!r}.{near} Its options: {', '.join(valid_fields)}"
    if head == "prompt":
        texts = [name for one in chosen("protocol", overrides) for name in _templates(one)]
        if option not in texts:
            near = nearest(option, texts)
            return f"no template is called {option!r}.{near} The protocol's: {', '.join(texts) or 'none'}"
    kind = as_kind(head)
    if kind is None:
        return None
    for name in chosen(kind, overrides):
        if (name in options.names(kind) or "." in name) and option not in (valid := options.options(kind, name)):
            near = nearest(option, valid)
            return f"{kind} {name!r} has no option {option!r}.{near}\n{options.describe_options(kind, name)}"
    return None


def _wrong_value(key: str, value: str, message: str) -> str | None:
    """A value that the schema's type refuses, in our words for the type."""
    wanted = typing.get_type_hints(Schema).get(key)
    if wanted is None or ("could not be converted" not in message and "is not a valid" not in message):
        return None
    return f"{key} must be {options.type_name(wanted)}, got {value!r}" if f"'{value}'" in message else None


def _templates(protocol: str) -> list[str]:
    try:
        return sorted(facts_of(options.load("protocol", protocol)).templates)
    except ValueError:
        return []


def _comma_without_multirun(key: str, value: str, overrides: Sequence[str], message: str) -> str | None:
    # A list has commas, too: the message names the override that is meant.
    if "Ambiguous value" in message and f"{key}={value}" in message:
        return (
            f"{key}={value} holds commas: to sweep over the values add -m (debate-local run -m {key}={value} ...); "
            f"for one text with commas write '{key}=\"...\"' in two kinds of quotes"
        )
    return None
