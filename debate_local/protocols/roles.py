"""A debate among roles (the overview article): each has instructions, sees whom it is to see, speaks when it is to.

Round 0 is the independent answers of those who speak then. In later rounds each reads the standing replies of those it
sees, one role after another in the order of the list (the article's in-place update), with the question and its own
last reply before it. By default: a positive critic, a negative critic, and a synthesizer who reads both. All answer the
question, and the majority of their last answers decides; `decision=mediator` lets a mediator decide instead.

Words: the article's max_rounds counts exchanges: its 3 are rounds=4 here.
Calls: for each round, the roles that speak in it (3 roles x 2 rounds: 6). Fewer where the debate stops early.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from debate_local.core.conversation import History
from debate_local.core.opening import (
    OPENING_TEMPLATES,
    Confidence,
    Opening,
    Shown,
    asked_alone,
    asking,
    check_evidence,
    check_opening,
    parts_among,
)
from debate_local.core.peers import Showing
from debate_local.core.protocol import protocol
from debate_local.core.rounds import DEBATE_NAMES, ROUNDS_TEMPLATES, Rules, Stop, check_stop, discuss, share_to_stop
from debate_local.core.setting import Setting
from debate_local.core.transcript import Debate, Item, Transcript
from debate_local.core.voting import majority

Role = Mapping[str, Any]

ROLES: tuple[dict[str, Any], ...] = (
    {
        "name": "the positive critic",
        "instructions": "You are the positive critic of a discussion. Look for what is right in the replies of others: "
        "name it, back it with reasons of your own, and build on it. Support nothing that you cannot justify.",
    },
    {
        "name": "the negative critic",
        "instructions": "You are the negative critic of a discussion. Look for what is wrong in the replies of others: "
        "check each step, name each mistake and each claim without support, and say what would be right.",
    },
    {
        "name": "the synthesizer",
        "instructions": "You are the synthesizer of a discussion. Weigh what the others say, keep what holds, drop "
        "what does not, and work out the answer that follows.",
    },
)

TAKE_PART = """\
{{ replies }}

Deal with these replies as your role asks. Then give your answer to the question. {{ answer_format }}"""


def _speaks(role: Role, round: int, rounds: int) -> bool:
    """Is a role asked in this round?"""
    when = role.get("speaks", "every")
    if isinstance(when, str):
        return {"every": True, "first": round == 0, "later": round > 0, "last": round == rounds - 1}[when]
    return round in when


def _sees(roles: Sequence[Role]) -> tuple[tuple[int, ...], ...]:
    """Whom each role sees, by place."""
    names = [role["name"] for role in roles]
    everybody = {place: [n for n in names if n != name] for place, name in enumerate(names)}
    return tuple(
        tuple(sorted(names.index(name) for name in (everybody[place] if given == "all" else given)))
        for place, role in enumerate(roles)
        for given in [role.get("sees", "all")]
    )


def _check(roles: Sequence[Role], rounds: int, **o: Any) -> None:
    if rounds < 1:
        raise ValueError(f"protocol.rounds must be at least 1 (round 0 is the independent answers), got {rounds}")
    if not roles:
        raise ValueError("protocol.roles is empty: give at least one {name: ..., instructions: ...}")
    names = [role.get("name") for role in roles]
    for place, role in enumerate(roles):
        _check_role(f"protocol.roles[{place}]", role, names)
    for round in range(rounds):
        if not any(_speaks(role, round, rounds) for role in roles):
            raise ValueError(f"protocol.roles: nobody speaks in round {round} of {rounds}")
    check_stop(o["stop"], o["threshold"])
    check_opening(o["evidence"], o["evidence_parts"], least_parts=0)


def _check_role(label: str, role: Role, names: Sequence[Any]) -> None:
    known = ("name", "instructions", "sees", "speaks")
    if unknown := sorted(set(role) - set(known)):
        raise ValueError(f"{label} has no field {', '.join(unknown)}; its fields: {', '.join(known)}")
    for field in ("name", "instructions"):
        if not isinstance(role.get(field), str) or not role[field].strip():
            raise ValueError(f"{label}.{field} must be a text that is not empty, got {role.get(field)!r}")
    if names.count(role["name"]) > 1:
        raise ValueError(f"{label}.name {role['name']!r} is given to several roles; each needs a name of its own")
    sees, when = role.get("sees", "all"), role.get("speaks", "every")
    others = [name for name in names if name != role["name"]]
    if sees != "all" and not (isinstance(sees, (list, tuple)) and all(name in others for name in sees)):
        raise ValueError(
            f"{label}.sees must be `all` or a list of other roles ({', '.join(map(str, others))}), got {sees!r}"
        )
    in_words = ("every", "first", "later", "last")
    in_rounds = isinstance(when, (list, tuple)) and bool(when) and all(type(one) is int and one >= 0 for one in when)
    if when not in in_words and not in_rounds:
        words = ", ".join(in_words)
        raise ValueError(f"{label}.speaks must be one of {words}, or a list of rounds from 0, got {when!r}")


def _calls(roles: Sequence[Role], rounds: int, **_: Any) -> int:
    return sum(_speaks(role, round, rounds) for role in roles for round in range(rounds))


def _suits(setting: Setting, roles: Sequence[Role], evidence: Shown, **_: Any) -> None:
    if len(setting.cast) > len(roles):
        raise ValueError(
            f"the cast has {len(setting.cast)} members and there are {len(roles)} roles: some would never speak. Give "
            "as many roles, or a shorter cast (it is repeated in order)"
        )
    check_evidence(setting, evidence)


def _reflect(roles: Sequence[Role], rounds: int, **o: Any) -> dict[str, Any] | None:
    if rounds == 1 or not any(_sees(roles)):
        return None
    history = "last" if o["history"] == "fresh" else o["history"]
    alone = {"order": "simultaneous", "history": history, "stop": "never", "threshold": None}
    return {**o, **alone, "rounds": rounds, "roles": [{**role, "sees": []} for role in roles]}


@protocol(
    calls=_calls,
    agents=lambda roles, rounds, **_: sum(_speaks(role, 0, rounds) for role in roles) or 1,
    voters=lambda roles, **_: len(roles),
    templates={"take_part": (TAKE_PART, DEBATE_NAMES), **ROUNDS_TEMPLATES, **OPENING_TEMPLATES},
    check=_check,
    suits=_suits,
    alone=lambda roles, **o: asked_alone(o, len(roles)),
    reflect=_reflect,
)
def roles(
    item: Item,
    setting: Setting,
    *,
    roles: Sequence[dict[str, Any]] = ROLES,
    rounds: int = 2,
    order: Literal["simultaneous", "sequential"] = "sequential",
    history: History = "last",
    cot: bool = False,
    confidence: Confidence = "none",
    stop: Stop = "never",
    threshold: float | None = None,
    evidence: Shown = "none",
    evidence_parts: int | None = None,
) -> Debate:
    """Hold a debate among roles; the cast gives their models, sampling and personas, by place.

    roles: a list of {name, instructions, sees, speaks}, or the path of a YAML file of one. instructions: the system
      message, after the persona. sees: `all` (default) or names of others, [] for nobody. speaks: in `every` round
      (default), the `first`, every `later` one, the `last`, or a list of rounds from 0.
    rounds: how many there are, round 0 included. order: one role after another, each reading what stands (sequential,
      the article), or all at once. history: what a role sees of its own: its last reply (last, the article), all
      (full), or the question only (fresh).
    stop, threshold: never, when all agree (consensus, the article), or when this share does (threshold).
    cot, confidence, evidence, evidence_parts: what first prompts hold, see core/opening.py; 0 parts: one a role.
    """
    cast = []
    for place, role in enumerate(roles):
        member = setting.agent(place)
        persona = f"{member.persona}\n\n{role['instructions']}" if member.persona else role["instructions"]
        cast.append(replace(member, persona=persona, name=role["name"]))
    setting = replace(asking(setting, confidence), cast=cast)
    rules = Rules(
        rounds=rounds,
        hears=_sees(roles),
        opening=Opening(cot, evidence, parts_among(evidence_parts, len(roles))),
        showing=Showing(names="named"),
        template="take_part",
        history=history,
        sequential=order == "sequential",
        speaks=lambda place, round: _speaks(roles[place], round, rounds),
        stop=share_to_stop(stop, threshold),
    )
    talk = yield from discuss(item, setting, rules)
    return Transcript(item.id, talk.turns, majority(talk.answers), talk.stopped)
