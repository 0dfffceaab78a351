"""Multiagent debate (Du et al. 2023, arXiv 2305.14325), with what the field has varied since.

Everyone answers alone (round 0), then reads all the others' last replies and answers again. Simultaneous: in round r
everybody reads round r-1 only. Each agent keeps its own history whole; there is no system message and
all agents get the same starting prompt. The answer is the majority of the last round's answers, a tie going to
the earliest agent. Rounds are fixed. So it is with the defaults; every option says who does it otherwise.

Words: the paper's and the released code's `rounds` are ours: rounds=2 is one answer and one exchange.
Calls: agents x rounds (3 agents x 2 rounds: 6); one less agent with an odd one out; with summaries one more call for
each reader and exchange; with noise one more for each agent. Fewer where the debate stops early or agents are skipped.

One agent alone, or an agent none of whose peers said anything, is asked to verify its own answer: the reflection
baseline (released code, the branch for no peers). `topology=none` asks that of everybody.
"""

from collections.abc import Mapping
from typing import Any, Literal

from debate_local.core.chat import derive_seed
from debate_local.core.conversation import History
from debate_local.core.donors import check_donors
from debate_local.core.opening import (
    OPENING_TEMPLATES,
    SAMPLES_TEMPLATES,
    Confidence,
    Opening,
    Shown,
    asked_alone,
    asking,
    check_evidence,
    check_opening,
    check_shown,
    parts_among,
    zero_shot,
)
from debate_local.core.peers import Names, Order, Peers, Showing, check_names, check_readable, check_showing
from debate_local.core.protocol import protocol
from debate_local.core.rounds import DEBATE_NAMES, ROUNDS_TEMPLATES, Rules, Stop, check_stop, discuss, share_to_stop
from debate_local.core.samples import Samples
from debate_local.core.setting import Setting
from debate_local.core.topology import Hears, check_topology, hears
from debate_local.core.transcript import Debate, Item, Transcript
from debate_local.core.voting import majority

DEBATE = """\
{{ replies }}

{% if restated %}
The question again: {{ restated }}

{% endif %}
Check these replies against your own reasoning. Then, with their opinions in mind, give your updated answer. \
{{ answer_format }}"""

LONG = """\
{{ replies }}

{% if restated %}
The question again: {{ restated }}

{% endif %}
Take these replies as additional advice only: trust your own reasoning where it holds, and change your answer only \
where they show you a mistake. Work through the question once more, and then give your answer. {{ answer_format }}"""


def _whom(agents: int, topology: str, peers: str, graph: Mapping[str, Any] | None, seed: int = 0) -> Hears:
    """Whom each agent hears."""
    return hears("none" if peers == "none" else topology, agents, seed, graph)


def _what(agents: int, peers: Peers, summary_from: int | None) -> Peers:
    """Which part of a reply is shown."""
    return "summary" if summary_from is not None and agents >= summary_from else peers


def _calls(agents: int, rounds: int, odd_one_out: int | None, noise: bool, **o: Any) -> int:
    heard = _whom(agents, o["topology"], o["peers"], o["graph"])
    if o["topology"].startswith("random") and any(heard):
        # Another seed may let others hear: at most everybody does.
        heard = hears("full", agents)
    listening = [agent for agent in range(agents) if heard[agent] and agent + 1 != odd_one_out]
    speakers = agents - (odd_one_out is not None)
    summaries = len(listening) * (rounds - 1) if _what(agents, o["peers"], o["summary_from"]) == "summary" else 0
    return speakers * rounds + summaries + (speakers if noise and any(heard) and rounds > 1 else 0)


def _check(agents: int, rounds: int, **o: Any) -> None:
    if agents < 1:
        raise ValueError(f"protocol.agents must be at least 1, got {agents}")
    if rounds < 1:
        raise ValueError(f"protocol.rounds must be at least 1 (round 0 is the independent answers), got {rounds}")
    check_topology(o["topology"], agents, o["graph"])
    check_showing(o["peers"], o["peer_tokens"], o["confidence"], o["show_confidence"])
    check_stop(o["stop"], o["threshold"])
    check_opening(o["evidence"], o["evidence_parts"], least_parts=0)
    if o["summary_from"] is not None and o["peers"] != "full":
        raise ValueError(f"protocol.summary_from turns peers=full into summaries; protocol.peers is {o['peers']}")
    odd = o["odd_one_out"]
    if odd is not None and not 1 <= odd <= agents:
        raise ValueError(f"protocol.odd_one_out must be an agent from 1 to {agents}, or null for nobody; got {odd}")
    if odd is not None and agents == 1:
        raise ValueError("protocol.odd_one_out needs at least one other agent: protocol.agents is 1")
    if odd is not None and o["noise"]:
        raise ValueError("protocol.noise replaces all that is heard, so nobody would hear protocol.odd_one_out")


def _suits(setting: Setting, agents: int, **o: Any) -> None:
    if len(setting.cast) > agents:
        raise ValueError(
            f"the cast has {len(setting.cast)} members and the debate {agents} agents: some would never speak. Give as "
            "many agents, or a shorter cast (it is repeated in order)"
        )
    check_readable(setting, o["peers"])
    check_names(setting, o["peer_names"], range(agents))
    check_evidence(setting, o["evidence"])
    check_shown(setting, o["samples"], o["shots"])
    if o["noise"] or o["odd_one_out"] is not None:
        check_donors(setting)


def _reflect(agents: int, rounds: int, odd_one_out: int | None, **o: Any) -> dict[str, Any] | None:
    if o["topology"] == "none" or o["peers"] == "none" or rounds == 1:
        return None
    return {
        **asked_alone(o, agents),
        "agents": agents,
        "rounds": rounds,
        "odd_one_out": odd_one_out,
        "topology": "none",
        "history": "last" if o["history"] == "fresh" else o["history"],
    }


def _varied(name: str, value: Any) -> Any:
    """A variant of a debate as a control: the same with one option otherwise, None where nobody hears anybody."""

    def options(**o: Any) -> dict[str, Any] | None:
        heard = _whom(o["agents"], o["topology"], o["peers"], o["graph"])
        if o["rounds"] == 1 or not any(heard) or o[name] == value or o["odd_one_out"] is not None:
            return None
        return {**o, name: value, "summary_from": None if name == "peers" else o["summary_from"]}

    return options


@protocol(
    calls=_calls,
    agents=lambda agents, odd_one_out, **_: agents - (odd_one_out is not None),
    templates={
        "debate": (DEBATE, DEBATE_NAMES),
        "long": (LONG, DEBATE_NAMES),
        **ROUNDS_TEMPLATES,
        **OPENING_TEMPLATES,
        **SAMPLES_TEMPLATES,
    },
    check=_check,
    suits=_suits,
    alone=lambda agents, **o: asked_alone(o, agents),
    reflect=_reflect,
    variants={"noise": _varied("noise", True), "answers": _varied("peers", "answers")},
    samples=lambda samples, **_: samples,
    zero_shot=lambda **o: zero_shot(o),
)
def debate(
    item: Item,
    setting: Setting,
    *,
    agents: int = 3,
    rounds: int = 2,
    topology: str = "full",
    graph: dict[str, list[int]] | None = None,
    prompt: Literal["short", "long"] = "short",
    restate: bool = False,
    cot: bool = False,
    peers: Peers = "full",
    summary_from: int | None = None,
    history: History = "full",
    order: Literal["simultaneous", "sequential"] = "simultaneous",
    peer_order: Order = "fixed",
    peer_names: Names = "numbered",
    peer_tokens: int | None = None,
    confidence: Confidence = "none",
    show_confidence: bool = False,
    stop: Stop = "never",
    threshold: float | None = None,
    skip_agreed: bool = False,
    noise: bool = False,
    odd_one_out: int | None = None,
    evidence: Shown = "none",
    evidence_parts: int | None = None,
    samples: Samples = "none",
    shots: int | None = None,
) -> Debate:
    """Hold one debate. Personas, models and sampling by agent are the cast's; other decisions are `decision=`.

    agents, rounds: how many answer, and how often each speaks, round 0 included (Du et al.: 3 and 2).
    topology, graph: who hears whom, see core/topology.py (Du et al.: full; sparse ones: 2406.11776).
    prompt: short asks for an updated answer in view of the others' opinions, long offers them as advice (Du et al.,
      figures 12 and 14: long converges slower and better).
    restate: each debate prompt repeats the question (Du et al. on GSM8K).
    cot: the first prompt asks to think step by step (Du et al. debate on top of that; the trigger is ours).
    peers: what is shown of others: whole replies (full, Du et al.), answers without reasoning (answers, 2606.00820), a
      summary made for each reader with the answers beside it (summary, Du et al., figure 13), or nothing (none).
    summary_from: from so many agents on, full is a summary (Du et al.: 5); null: never, so that a sweep over agents
      changes one thing only.
    history: what an agent sees of its own: all (full, Du et al.), its last reply (last, the overview article), or the
      question only (fresh).
    order: all at once (simultaneous, Du et al.), or one after another, each hearing what stands (sequential, the
      overview article).
    peer_order, peer_names: replies in agent order or shuffled by seed; told by number, by the cast's names, or not.
    peer_tokens: at most so many tokens of each reply, by its own tokens a character; the cut is marked. At least 32.
    confidence, show_confidence: every turn says how sure it is, from 0 to 1 (verbal, Chen et al. 2024), and peers are
      told, or not.
    stop, threshold: never (Du et al.), when all agree (consensus, Chen et al. 2024), or this share does (threshold).
      Looked at after every round, round 0 too; who gives no answer agrees with nobody.
    skip_agreed: who hears its own answer only is not asked again, and its last turn stands (released code of Chen et
      al. 2024: no debate prompt when all agree).
    noise: what is heard are round-0 replies of the same agents to other items (control of 2605.00914).
    odd_one_out: the agent, from 1, who is never asked and says one wrong answer in every round (Du et al.: how easily a
      fact is argued away); it has no vote. null: nobody.
    evidence, evidence_parts: which of the item's evidence the first prompts show, and to whom: null to everybody, 0
      dealt out among the agents, n dealt out in n parts (overview article: shared evidence).
    samples, shots: which samples first prompts begin with, and how many of each other member of the cast (Chen et al.
      2024: convincing, 4, put into debate too); null: all that the file has. See core/samples.py.
    """
    setting = asking(setting, confidence)
    seed = derive_seed(setting.seed, item.id, -1, 0, "topology")
    talk = yield from discuss(
        item,
        setting,
        Rules(
            rounds=rounds,
            hears=_whom(agents, topology, peers, graph, seed),
            opening=Opening(cot, evidence, parts_among(evidence_parts, agents), samples, shots),
            showing=Showing(_what(agents, peers, summary_from), peer_names, peer_order, peer_tokens, show_confidence),
            template="debate" if prompt == "short" else "long",
            history=history,
            sequential=order == "sequential",
            stop=share_to_stop(stop, threshold),
            skip_agreed=skip_agreed,
            restate=restate,
            noise=noise,
            odd_one_out=None if odd_one_out is None else odd_one_out - 1,
        ),
    )
    return Transcript(item.id, talk.turns, majority(talk.answers), talk.stopped)
