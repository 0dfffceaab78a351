"""ReConcile (Chen et al. 2024, arXiv 2309.13007): a round table of different models, and a vote weighted by confidence.

Round 0: each agent answers with an explanation (zero-shot chain of thought) and says how sure it is, from 0 to 1.
Then discussion rounds: each agent gets a fresh prompt with the question, and the answers of the round before grouped by
what they answer, with every explanation and its confidence as it was stated, its own among them and nobody named. It
agrees or disagrees with each group and answers again. It ends when all agree, which is looked at after round 0 too.
Every prompt, that of round 0 included, begins with samples that convince the other agents, where some are given.
The team's answer is that of the greatest sum of rescaled confidences (core/confidence.py), of a tie the earliest
agent's. With `confidence=none` nobody is asked or told, and the majority decides.

Words: the paper's R discussion rounds are `rounds` - 1; R = 3 is rounds=4, the default.
Calls: agents x rounds (3 agents x 4 rounds: 12); fewer where all agree before.

On purpose not as in the released code: all groups are shown and not only the two largest (`groups=2` is that); an
answer that cannot be read is no vote and no group, and not a random label; a confidence that cannot be read, or is out
of range, has no weight, and nothing is put in its stead. Ours, because it is not stated: the wording, a stance as one
line for each group, groups in order of size, samples by the cast's members (core/samples.py), and that where all agree
and no confidence can be read the answer of all is taken.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from debate_local.core.chat import ChatRequest, Completion, Message
from debate_local.core.opening import (
    OPENING_TEMPLATES,
    SAMPLES_TEMPLATES,
    Confidence,
    Opening,
    asking,
    check_shown,
    independent,
    samples_alone,
)
from debate_local.core.peers import Voice
from debate_local.core.protocol import protocol
from debate_local.core.samples import Samples
from debate_local.core.setting import Setting
from debate_local.core.stances import FORMAT, read_stances, with_answers
from debate_local.core.transcript import Debate, Decision, Item, Transcript, Turn
from debate_local.core.voting import agree, decide, majority, votes_of

DISCUSS = """\
{{ question }}

{% if agents > 1 %}
{{ agents }} agents, you among them, were asked this. Their answers in groups{% if fewer %}, of which the largest are \
shown{% endif %}, each with all explanations given for it{% if confidence %}, and how sure those who gave it say they \
are, from 0 to 1{% endif %}:
{% else %}
You have answered it before. Your answer, with your explanation{% if confidence %} and how sure you said you were, \
from 0 to 1{% endif %}:
{% endif %}
{% for group in groups %}

Group {{ loop.index }}: the answer {{ group.answer }}, given by {{ group.voices | length }} of {{ agents }}
{% for voice in group.voices %}

Explanation{% if confidence %} (confidence: {{ voice.confidence }}){% endif %}:
{{ voice.text }}
{% endfor %}
{% endfor %}
{% if unread %}

Without an answer that could be read:
{% for voice in unread %}

Explanation{% if confidence %} (confidence: {{ voice.confidence }}){% endif %}:
{{ voice.text }}
{% endfor %}
{% endif %}

Review all of this with care: each explanation may be right or wrong, however sure it sounds and however many share it.
{% if groups %}
{{ stances }}
{% endif %}
Then explain step by step what you hold to be right, and give your answer, which may be one of these or another. \
{{ answer_format }}"""


def _check(agents: int, rounds: int, groups: int | None, grouped: bool, **_: Any) -> None:
    if agents < 1:
        raise ValueError(f"protocol.agents must be at least 1, got {agents}")
    if rounds < 1:
        raise ValueError(
            f"protocol.rounds must be at least 1 (the paper's R discussion rounds are R + 1 here), got {rounds}"
        )
    if groups is not None and groups < 1:
        raise ValueError(f"protocol.groups must be at least 1, or null for all groups; got {groups}")
    if groups is not None and not grouped:
        raise ValueError(f"protocol.groups={groups} shows the largest groups, and protocol.grouped=false makes none")


def _suits(setting: Setting, agents: int, samples: Samples, shots: int | None, **_: Any) -> None:
    if len(setting.cast) > agents:
        raise ValueError(
            f"the cast has {len(setting.cast)} members and the debate {agents} agents: some would never speak. Give as "
            "many agents, or a shorter cast (it is repeated in order)"
        )
    check_shown(setting, samples, shots)


def _alone(cot: bool, confidence: Confidence, **o: Any) -> dict[str, Any]:
    return {"cot": cot, "confidence": confidence, **samples_alone(o)}


def _reflect(rounds: int, topology: str, **o: Any) -> dict[str, Any] | None:
    if rounds == 1 or topology == "none":
        return None
    return {**o, "rounds": rounds, "topology": "none", "stop": "never"}


@dataclass(frozen=True, slots=True)
class _Table:
    """What lies before an agent: the voices of each group that is shown, and those whose answer cannot be read.

    agents: how many were asked. fewer: there are groups that are not shown.
    """

    groups: tuple[tuple[Voice, ...], ...]
    unread: tuple[Voice, ...]
    agents: int
    fewer: bool

    @property
    def voices(self) -> tuple[Voice, ...]:
        return (*(voice for group in self.groups for voice in group), *self.unread)

    def prompt(self, opening: str, item: Item, setting: Setting) -> str:
        """The fresh prompt, behind what its opening begins with."""
        groups = [
            {"answer": group[0].answer.value, "voices": [_shown(voice) for voice in group]} for group in self.groups
        ]
        return opening + setting.render(
            "discuss",
            question=item.question,
            groups=groups,
            unread=[_shown(voice) for voice in self.unread],
            agents=self.agents,
            fewer=self.fewer,
            confidence=setting.asks_confidence,
            stances=FORMAT,
        )

    def turn(
        self, item: Item, setting: Setting, request: ChatRequest, done: Completion, agent: int, round: int
    ) -> Turn:
        """An agent's reply to it, with its stance on each group."""
        stances = read_stances(done.text, len(self.groups))
        heard = [(voice.agent, round - 1) for voice in self.voices if voice.agent != agent]
        turn = setting.turn(item, agent, round, request, done, sorted(heard), stances.spans)
        keys = [group[0].answer.key or "" for group in self.groups]
        return replace(turn, stances=tuple(zip(keys, stances.words, strict=True)))


def _voice(turn: Turn) -> Voice:
    """What a turn says, the groups that it speaks of told by their answers: those of this round are others."""
    voice = Voice.of(turn)
    return replace(voice, text=with_answers(voice.text, [key for key, _ in turn.stances or ()]))


def _shown(voice: Voice) -> dict[str, str]:
    return {"text": voice.text, "confidence": voice.confidence or "not stated"}


def _table(turns: Sequence[Turn], most: int | None, grouped: bool) -> _Table:
    """The replies of a round: the largest group first, of equal ones that of the earliest agent."""
    voices = [voice for turn in turns if (voice := _voice(turn)).speaks]
    by_answer: dict[str | int, list[Voice]] = {}
    for place, voice in enumerate(voices):
        if voice.answer.key is not None:
            by_answer.setdefault(voice.answer.key if grouped else place, []).append(voice)
    # Sorting is stable.
    groups = sorted(by_answer.values(), key=lambda group: -len(group))
    unread = [voice for voice in voices if voice.answer.missing and most is None]
    shown = tuple(map(tuple, groups[:most]))
    return _Table(shown, tuple(unread), len(turns), fewer=len(shown) < len(groups))


def _all_agree(last: Sequence[Turn]) -> bool:
    """One alone has nobody to agree with."""
    return len(last) > 1 and agree([turn.answer for turn in last])


def _decided(turns: Sequence[Turn], last: Sequence[Turn], confidence: Confidence) -> Decision:
    by_majority = majority([turn.answer for turn in last])
    if confidence == "none":
        return by_majority
    weighted = decide("weighted:rescaled", votes_of(turns))
    return by_majority if weighted.answer.missing and _all_agree(last) else weighted


@protocol(
    calls=lambda agents, rounds, **_: agents * rounds,
    agents=lambda agents, **_: agents,
    templates={
        "discuss": (DISCUSS, "question groups unread agents fewer confidence stances"),
        **OPENING_TEMPLATES,
        **SAMPLES_TEMPLATES,
    },
    check=_check,
    suits=_suits,
    alone=_alone,
    reflect=_reflect,
    samples=lambda samples, **_: samples,
    # Round 0 asks for a confidence, and may show samples.
    zero_shot=lambda **_: {"cot": True},
)
def reconcile(
    item: Item,
    setting: Setting,
    *,
    agents: int = 3,
    rounds: int = 4,
    samples: Samples = "none",
    shots: int | None = None,
    groups: int | None = None,
    grouped: bool = True,
    cot: bool = True,
    confidence: Confidence = "verbal",
    topology: Literal["full", "none"] = "full",
    stop: Literal["consensus", "never"] = "consensus",
) -> Debate:
    """Hold one round table. Which models sit at it is the cast's; other decisions are `decision=`.

    agents, rounds: how many answer, and how often at most, round 0 included (Chen et al.: 3, and 4 at most).
    samples, shots: which samples each prompt begins with, and how many of each other member of the cast (Chen et al.:
      convincing, 4): they are read from the file that `convincing=` names; null: all that it has.
    groups: so many of the largest groups are shown (released code: 2); null: all, and what could not be read.
    grouped: false shows each answer by itself, in agent order, for comparison.
    cot: first prompts ask to think step by step (Chen et al. do).
    confidence: asked for and shown in every round, and what votes weigh by (verbal, Chen et al.); or neither, and the
      majority decides (none).
    topology: everybody reads everybody (full), or only itself (none).
    stop: when all agree, or never before the last round.
    """
    setting, opening = asking(setting, confidence), Opening(cot, samples=samples, shots=shots)
    last = yield from independent(item, setting, opening, agents)
    turns = list(last)
    for round in range(1, rounds):
        if stop == "consensus" and _all_agree(last):
            break
        tables = [_table(last if topology == "full" else [last[agent]], groups, grouped) for agent in range(agents)]
        requests = []
        for agent in range(agents):
            parts = (*opening.before(item, setting, agent), setting.examples(item))
            begins = "".join(f"{part}\n\n" for part in parts if part)
            # Where nobody said anything, the question is all there is.
            spoken = tables[agent].voices
            text = tables[agent].prompt(begins, item, setting) if spoken else opening.text(item, setting, agent)
            requests.append(setting.request(item, agent, round, [Message("user", text)]))
        completions = yield requests
        last = [
            tables[agent].turn(item, setting, requests[agent], completions[agent], agent, round)
            for agent in range(agents)
        ]
        turns += last
    stopped = "consensus" if stop == "consensus" and _all_agree(last) else "rounds"
    return Transcript(item.id, tuple(turns), _decided(turns, last, confidence), stopped)
