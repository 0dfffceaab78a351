"""What a protocol is to the rest: a function from an item to a debate, and the facts that plans and controls need."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from .prompts import check, names_used
from .setting import Setting
from .transcript import Debate, Item


class ProtocolFunction(Protocol):
    """`protocol(item, setting, **options)`: a debate, not yet begun."""

    def __call__(self, item: Item, setting: Setting, **options: Any) -> Debate: ...


def _nothing(**options: Any) -> Mapping[str, Any]:
    """A protocol whose first prompts hold nothing but the question."""
    return {}


def _no_samples(**options: Any) -> str:
    return "none"


def _no_zero_shot(**options: Any) -> None:
    return None


@dataclass(frozen=True, slots=True)
class ProtocolFacts:
    """calls: how many requests one debate makes at most, from its options. agents: how many independent round-0
    answers it has, None when it has none (MAD). controls: False for protocols that are themselves controls.
    templates: the default wording. names: the values that each template may use, beside `answer_format`.
    check: raises ValueError for options that cannot be. suits: the same for options that cannot be with a setting (its
    task, its cast); it is given the setting and the options. voters: how many debaters' answers are decided on at the
    end; None: nobody has said. alone: from its options to those that `single` and `self_consistency` need to ask the
    same first prompts. reflect: from its options to those of its `reflect` control (the same agents and rounds, nobody
    hears anybody), None where that would be the same; None: there is no such thing; with a `name` among them they are
    another protocol's. variants: further controls that are this protocol with other options, by name, each None where
    it would be the same. samples: from its options to the kind of samples that it shows, `none` where it shows none.
    zero_shot: from its options to those of `single` that ask each model without them; None where round 0 is that
    already. judged: a judge rules on its debaters.
    """

    calls: Callable[..., int]
    agents: Callable[..., int] | None
    templates: Mapping[str, str]
    names: Mapping[str, frozenset[str]]
    controls: bool = True
    check: Callable[..., None] | None = None
    reflect: Callable[..., Mapping[str, Any] | None] | None = None
    suits: Callable[..., None] | None = None
    voters: Callable[..., int] | None = None
    alone: Callable[..., Mapping[str, Any]] = _nothing
    variants: Mapping[str, Callable[..., Mapping[str, Any] | None]] = field(default_factory=dict)
    samples: Callable[..., str] = _no_samples
    zero_shot: Callable[..., Mapping[str, Any] | None] = _no_zero_shot
    judged: bool = False

    def checked_templates(self, overrides: Mapping[str, str]) -> dict[str, str]:
        """The default templates with overrides; raises ValueError for an unknown template or name in one."""
        if unknown := sorted(set(overrides) - set(self.templates)):
            known = ", ".join(sorted(self.templates)) or "none"
            raise ValueError(f"no template is called {', '.join(unknown)}; this protocol's templates: {known}")
        templates = {**self.templates, **overrides}
        for name, text in templates.items():
            check(name, text, self.names[name] | {"answer_format"})
        return templates

    def unfilled(self, overrides: Mapping[str, str]) -> list[str]:
        """Overrides that show nothing of what the default wording shows: no replies, no record. A line each."""
        told = []
        for name, text in overrides.items():
            shown = names_used(self.templates[name]) - {"answer_format"}
            if shown and not shown & names_used(text):
                told.append(
                    f"prompt.{name} shows nothing of a debate: its usual wording has {', '.join(sorted(shown))}"
                )
        return told


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
    suits: Callable[..., None] | None = None,
    voters: Callable[..., int] | None = None,
    alone: Callable[..., Mapping[str, Any]] = _nothing,
    variants: Mapping[str, Callable[..., Mapping[str, Any] | None]] | None = None,
    samples: Callable[..., str] = _no_samples,
    zero_shot: Callable[..., Mapping[str, Any] | None] = _no_zero_shot,
    judged: bool = False,
) -> Callable[[_F], _F]:
    """Attach a protocol's facts to its function. templates: name -> (text, the names it may use, parted by blanks)."""
    texts, names = parted(templates or {})
    facts = ProtocolFacts(
        calls=calls,
        agents=agents,
        templates=texts,
        names=names,
        controls=controls,
        check=check,
        reflect=reflect,
        suits=suits,
        voters=voters or agents,
        alone=alone,
        variants=variants or {},
        samples=samples,
        zero_shot=zero_shot,
        judged=judged,
    )

    return lambda function: attach(function, facts)


def parted(templates: Mapping[str, tuple[str, str]]) -> tuple[dict[str, str], dict[str, frozenset[str]]]:
    """The texts of templates by name, and the names that each may use."""
    texts = {name: text for name, (text, _) in templates.items()}
    return texts, {name: frozenset(names.split()) for name, (_, names) in templates.items()}


def attach(function: _F, facts: ProtocolFacts) -> _F:
    """The function, which has these facts."""
    setattr(function, _FACTS, facts)
    return function


def facts_of(function: Callable[..., Debate]) -> ProtocolFacts:
    """The facts that `@protocol` attached. Raises ValueError where there are none."""
    facts = getattr(function, _FACTS, None)
    if not isinstance(facts, ProtocolFacts):
        raise ValueError(
            f"{function.__module__}.{function.__qualname__} is no protocol: decorate it with @protocol(...)"
        )
    return facts
