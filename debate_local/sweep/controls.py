"""The cells that a debate must beat at equal cost (law 7), and its variants; what its bill pays for: purchases."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from debate_local.core.decisions import ASKED, deciding
from debate_local.core.protocol import facts_of

from . import options
from .config import Cell, Choice

if TYPE_CHECKING:
    from .plan import PlannedRun


def controls_of(run: "PlannedRun", note: Callable[[str], None]) -> list[tuple[str, Cell]]:
    """The cells that a debate must beat at equal cost (law 7); those that its bill pays for come later."""
    protocol, chosen = run.cell.protocol, []
    # Without independent answers of its own, as many agents alone as debate: all models of the cast are in the mean.
    count = run.facts.agents or run.facts.voters
    alone = count(**protocol.options) if count else 1
    asked = run.facts.alone(**protocol.options)
    chosen.append(("single", Choice("single", options.check("protocol", "single", {"agents": alone, **asked}))))
    if not run.task.task.votable:
        note(f"task {run.cell.task.name!r} has answers that cannot be voted on: no vote controls")
    else:
        if run.facts.agents:
            chosen.append(("vote0", votes(alone, asked)))
        chosen.append(("sc_calls", votes(run.calls, asked)))
    if run.facts.reflect is None:
        note(f"protocol {protocol.name!r} says nothing of how its agents check themselves alone: no reflect control")
    elif (alone_options := run.facts.reflect(**protocol.options)) is not None:
        # Where debaters have no reply of their own to check, another protocol stands for them.
        name = str(alone_options.get("name", protocol.name))
        given = {key: value for key, value in alone_options.items() if key != "name"}
        chosen.append(("reflect", Choice(name, options.check("protocol", name, given))))
    chosen += _variants(run, note)
    cells = [(name, control_cell(run, name, choice)) for name, choice in chosen]
    return [*cells, *_members_alone(run, asked), *_zero_shot(run)]


def _variants(run: "PlannedRun", note: Callable[[str], None]) -> list[tuple[str, Choice]]:
    """The further controls that were asked for: the same debate with one option otherwise."""
    protocol, found = run.cell.protocol, []
    for name in run.cell.extra_controls:
        variant = run.facts.variants.get(name)
        if variant is None:
            known = ", ".join(sorted(run.facts.variants)) or "none"
            note(f"protocol {protocol.name!r} has no control {name!r}; it has {known}")
        elif (changed := variant(**protocol.options)) is not None:
            found.append((name, Choice(protocol.name, options.check("protocol", protocol.name, changed))))
    return found


def _members_alone(run: "PlannedRun", asked: Mapping[str, Any]) -> list[tuple[str, Cell]]:
    """Where several models have a part in it: each alone at equal calls, so that the best of them can be told."""
    helpers = [agent for agent in (run.cell.judge, run.cell.summariser) if agent is not None]
    members = {agent.model: agent for agent in reversed([*run.cell.cast, *helpers])}
    if len(members) < 2 or not run.task.task.votable:
        return []
    cell = control_cell(run, "sc_member", votes(run.calls, asked))
    return [("sc_member", replace(cell, cast=(member,))) for member in reversed(members.values())]


def _zero_shot(run: "PlannedRun") -> list[tuple[str, Cell]]:
    """Each member of the cast alone, asked the question only, where round 0 asks or shows more: one cell a member."""
    alone = run.facts.zero_shot(**run.cell.protocol.options)
    if alone is None:
        return []
    cell = control_cell(run, "zero_shot", Choice("single", options.check("protocol", "single", alone)))
    cast = run.cell.cast
    distinct = [member for place, member in enumerate(cast) if member not in cast[:place]]
    return [("zero_shot", replace(cell, cast=(member,))) for member in distinct]


def votes(samples: int, asked: Mapping[str, Any]) -> Choice:
    """Self-consistency of so many samples, which ask what `asked` says."""
    return Choice("self_consistency", options.check("protocol", "self_consistency", {"samples": samples, **asked}))


def control_cell(run: "PlannedRun", control: str, protocol: Choice) -> Cell:
    """The cell of a control: all as in the run's cell, but for the protocol and what only the run's own has."""
    decision = decision_of_control(run.cell, control)
    facts = facts_of(deciding(options.load("protocol", protocol.name), decision))
    templates = {key: text for key, text in run.cell.templates.items() if key in facts.templates}
    # Where nobody judges, runs do not differ in their judge.
    judge = run.cell.judge if facts.judged else None
    return replace(run.cell, protocol=protocol, templates=templates, decision=decision, judge=judge)


def decision_of_control(cell: Cell, control: str) -> str | None:
    """The cell's own decision where it would be fair; a vote without debate is decided without asking anybody."""
    if control in ("single", "zero_shot"):
        return None
    asks = cell.decision in ASKED or cell.decision == "none"
    votes_only = control == "vote0" or control.startswith("sc_")
    return None if asks and votes_only else cell.decision
