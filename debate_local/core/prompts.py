"""Render a template (jinja2, sandboxed). One pass: a value that looks like a template is shown, never run.

Unknown names are errors when a template is checked, before anything is asked.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from jinja2 import StrictUndefined, Template, TemplateSyntaxError, meta
from jinja2.sandbox import ImmutableSandboxedEnvironment

_ENVIRONMENT = ImmutableSandboxedEnvironment(
    undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=False, autoescape=False
)


class TemplateFault(ValueError):
    """A template that does not parse or names a value that is not given."""


@lru_cache(maxsize=1024)
def _compiled(template: str) -> Template:
    return _ENVIRONMENT.from_string(template)


def render(template: str, **values: Any) -> str:
    """Fill a template. Raises jinja2.UndefinedError for a name that is not given."""
    return _compiled(template).render(values)


@lru_cache(maxsize=1024)
def names_used(template: str) -> frozenset[str]:
    """The names that a template fills in. Raises jinja2.TemplateSyntaxError."""
    return frozenset(meta.find_undeclared_variables(_ENVIRONMENT.parse(template)))


def check(name: str, template: str, known: Iterable[str]) -> None:
    """Raise TemplateFault when the template does not parse or uses a name outside `known`."""
    try:
        used = names_used(template)
    except TemplateSyntaxError as error:
        raise TemplateFault(f"template {name!r}, line {error.lineno}: {error.message}") from error
    if unknown := sorted(used - set(known)):
        raise TemplateFault(f"template {name!r} uses {', '.join(unknown)}; it may use: {', '.join(sorted(known))}")
