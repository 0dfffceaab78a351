"""What a protocol is to the rest: a function from an item to a debate, and the facts that plans and controls need."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from .prompts import check
from .setting import Setting
from .transcript import Debate, Item


class ProtocolFunction(Protocol):
    """`protocol(item, setting, **options)`: a debate, not yet begun."""

    def __call__(self, item: Item, setting: Setting, **options: Any) -> Debate: ...


@dataclass(frozen=True, slots=True)
class ProtocolFacts:
    """calls: how many requests one debate makes at most, from its options. agents: how many independent round-0
    answers it has, None when it has none (MAD). controls: False for protocols that are themselves controls.
    templates: the default wording. names: the values that each template may use, beside `answer_format`.
    check: raises ValueError for options that cannot be. reflect: from its options to those of its `reflect` control
    (the same agents and rounds, nobody hears anybody), None where that would be the same; None: there is no such thing.
    """

    calls: Callable[..., int]
    agents: Callable[..., int] | None
    templates: Mapping[str, str]
    names: Mapping[str, frozenset[str]]
    controls: bool = True
    check: Callable[..., None] | None = None
    reflect: Callable[..., Mapping[str, Any] | None] | None = None

    def checked_templates(self, overrides: Mapping[str, str]) -> dict[str, str]:
        """The default templates with overrides; raises ValueError for an unknown template or name in one."""
        if unknown := sorted(set(overrides) - set(self.templates)):
            known = ", ".join(sorted(self.templates)) or "none"
            raise ValueError(f"no template is called {', '.join(unknown)}; this protocol's templates: {known}")
        templates = {**self.templates, **overrides}
        for name, text in templates.items():
            check(name, text, self.names[name] | {"answer_format"})
        return templates


_F = TypeVar("_F", bound=Callable[..., Debate])
_FACTS = "protocol_facts"


def protocol(
    *,
    calls: Callable[..., int],
    agents: Callable[..., int] | None,
    templates: Mapping[str, tuple[str, str]] | None = None,
    controls: bool = True,
    check: Callable[..., None] | None = None,
    reflect: Callable[..., Mapping[str, Any] | None] | None = None,
) -> Callable[[_F], _F]:
    """Attach a protocol's facts to its function. templates: name -> (text, the names it may use, parted by blanks)."""
    given = templates or {}
    facts = ProtocolFacts(
        calls=calls,
        agents=agents,
        templates={name: text for name, (text, _) in given.items()},
        names={name: frozenset(names.split()) for name, (_, names) in given.items()},
        controls=controls,
        check=check,
        reflect=reflect,
    )

    def attach(function: _F) -> _F:
        setattr(function, _FACTS, facts)
        return function

    return attach


def facts_of(function: Callable[..., Debate]) -> ProtocolFacts:
    """The facts that `@protocol` attached. Raises ValueError where there are none."""
    facts = getattr(function, _FACTS, None)
    if not isinstance(facts, ProtocolFacts):
        raise ValueError(
            f"{function.__module__}.{function.__qualname__} is no protocol: decorate it with @protocol(...)"
        )
    return facts
