"""Debates in rounds: everybody answers alone (round 0), then those who speak hear others and answer again.

Rule 1: in a simultaneous round everybody hears speeches of earlier rounds only, because all are asked in one yield.
Rule 2: in a sequential round one agent is asked a yield, and hears what stands at that moment.
Rule 3: a speech without text is heard by nobody, and nobody hears an older one in its stead.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Literal

from .chat import ChatRequest
from .conversation import Conversation, History
from .donors import donor, read_as_answer, wrong_answer
from .opening import Opening
from .peers import Peers, Showing, Voice
from .scheduler import Asking
from .setting import Setting
from .topology import Hears
from .transcript import Answer, Item, Turn
from .voting import agree

Stop = Literal["never", "consensus", "threshold"]


@dataclass(frozen=True, slots=True)
class Rules:
    """Who speaks when, whom they hear, what they are asked, and when it ends.

    hears: for each agent, those it hears. template: what puts peers' replies to an agent; `verify` asks those who hear
    nobody. history: what an agent sees of its own. speaks: (agent, round) -> is it asked? stop: the share of all
    speakers that must give one answer for the debate to end after a round, round 0 included; None: never. skip_agreed:
    whoever hears nothing but its own answer is not asked again. restate: peers' replies come with the question. noise:
    what is heard are round-0 replies to other items. odd_one_out: this agent is never asked, and says the same wrong
    answer in each round.
    """

    rounds: int
    hears: Hears
    opening: Opening = field(default_factory=Opening)
    showing: Showing = field(default_factory=Showing)
    template: str = "debate"
    history: History = "full"
    sequential: bool = False
    speaks: Callable[[int, int], bool] = lambda agent, round: True
    stop: Fraction | None = None
    skip_agreed: bool = False
    restate: bool = False
    noise: bool = False
    odd_one_out: int | None = None

    @property
    def speakers(self) -> list[int]:
        """Those who are asked in some round."""
        everybody = (agent for agent in range(len(self.hears)) if agent != self.odd_one_out)
        return [agent for agent in everybody if any(self.speaks(agent, round) for round in range(self.rounds))]

    def groups(self, round: int) -> list[list[int]]:
        """Who speaks in a round, those together who are asked together."""
        speaking = [agent for agent in self.speakers if self.speaks(agent, round)]
        return [[agent] for agent in speaking] if self.sequential and round else [speaking]


@dataclass(frozen=True, slots=True)
class Discussion:
    """What was said, each speaker's last answer in agent order, and why it ended.

    stopped: rounds (there were no more), consensus, threshold, or agreed (nobody had to be asked again).
    """

    turns: tuple[Turn, ...]
    answers: tuple[Answer, ...]
    stopped: str


def discuss(item: Item, setting: Setting, rules: Rules) -> Asking[Discussion]:
    """Hold one debate by its rules."""
    return _Table(item, setting, rules).talk()


class _Table:
    """A debate under way: everybody's own conversation, and what each said last."""

    def __init__(self, item: Item, setting: Setting, rules: Rules) -> None:
        self._item, self._setting, self._rules = item, setting, rules
        self._question = setting.task.ask(item)
        self._own = {
            agent: Conversation(rules.opening.text(item, setting, agent), rules.history) for agent in rules.speakers
        }
        self._last: dict[int, Turn] = {}
        self._voices: dict[int, Voice] = {}
        self._turns: list[Turn] = []

    def talk(self) -> Asking[Discussion]:
        stopped = "rounds"
        for round in range(self._rules.rounds):
            spoke = False
            for group in self._rules.groups(round):
                spoke |= yield from self._speak(group, round)
            if not spoke and round:
                stopped = "agreed"
                break
            self._say_the_odd_thing(round)
            if self._enough_agree():
                stopped = "consensus" if self._rules.stop == 1 else "threshold"
                break
        # Sorting is stable: a summary stays before the turn that reads it.
        turns = sorted(self._turns, key=lambda turn: (turn.round, turn.agent))
        return Discussion(tuple(turns), self._answers(), stopped)

    def _answers(self) -> tuple[Answer, ...]:
        """Each speaker's last answer; none of one who has not spoken."""
        silence = Answer.none("has not spoken")
        return tuple(self._last[agent].answer if agent in self._last else silence for agent in self._own)

    def _enough_agree(self) -> bool:
        """Is it time to stop? One alone has nobody to agree with."""
        return self._rules.stop is not None and len(self._own) > 1 and agree(self._answers(), self._rules.stop)

    def _speak(self, group: Sequence[int], round: int) -> Asking[bool]:
        """Ask a group at once; False when none of them had to be asked."""
        heard = {agent: self._heard(agent) for agent in group}
        asked = [agent for agent in group if not (self._rules.skip_agreed and self._content(agent, heard[agent]))]
        if not asked:
            return False
        summaries = yield from self._summed_up(asked, heard, round)
        for agent in asked:
            if heard[agent] or agent in self._last:
                self._own[agent].told(self._prompt(agent, round, heard[agent], summaries.get(agent, "")))
        requests = [self._setting.request(self._item, agent, round, self._own[agent].messages) for agent in asked]
        strangers = [] if round else self._strangers()
        completions = yield [*requests, *(request for _, _, request in strangers)]
        for agent, request, completion in zip(asked, requests, completions, strict=False):
            pairs = _pairs(heard[agent])
            turn = self._setting.turn(self._item, agent, round, request, completion, pairs)
            self._turns.append(turn)
            self._last[agent] = turn
            self._own[agent].said(completion.text)
            if not self._rules.noise:
                self._voices[agent] = Voice.of(turn)
        for (agent, other, request), completion in zip(strangers, completions[len(asked) :], strict=True):
            turn = self._setting.turn(other, agent, 0, request, completion)
            self._turns.append(replace(turn, role="donor", step="noise"))
            self._voices[agent] = replace(Voice.of(turn), round=None)
        return True

    def _heard(self, agent: int) -> list[Voice]:
        """What stands to be heard by an agent."""
        voices = (self._voices.get(other) for other in self._rules.hears[agent])
        return [voice for voice in voices if voice is not None and voice.speaks]

    def _content(self, agent: int, heard: Sequence[Voice]) -> bool:
        """Does everybody whom it hears say what it said itself?"""
        own = self._last[agent].answer.key if agent in self._last else None
        return own is not None and bool(heard) and all(voice.answer.key == own for voice in heard)

    def _prompt(self, agent: int, round: int, heard: Sequence[Voice], summary: str) -> str:
        """What an agent is told before it speaks again."""
        setting, rules = self._setting, self._rules
        if not heard:
            # Who remembers nothing has nothing to verify.
            return "" if rules.history == "fresh" else setting.render("verify", question=self._question)
        peers = rules.showing.shown(self._item, setting, agent, round, heard)
        replies = setting.render(_REPLIES[rules.showing.what], peers=peers, summary=summary).removesuffix("\n")
        restated = self._item.question if rules.restate else ""
        return setting.render(rules.template, question=self._question, peers=peers, replies=replies, restated=restated)

    def _summed_up(
        self, asked: Sequence[int], heard: Mapping[int, Sequence[Voice]], round: int
    ) -> Asking[dict[int, str]]:
        """For each reader a summary of what it hears, where that is wanted. A failed one is empty."""
        readers = [agent for agent in asked if heard[agent] and self._rules.showing.what == "summary"]
        if not readers:
            return {}
        requests = []
        for agent in readers:
            peers = self._rules.showing.shown(self._item, self._setting, agent, round, heard[agent])
            text = self._setting.render("summary", question=self._item.question, peers=peers)
            helper = self._setting.summariser
            requests.append(self._setting.helper_request(self._item, agent, round, text, "summary", helper))
        completions = yield requests
        for agent, request, completion in zip(readers, requests, completions, strict=True):
            none, pairs = Answer.none("a summary"), _pairs(heard[agent])
            self._turns.append(Turn(agent, round, request, completion, none, pairs, "summariser", "summary"))
        return {agent: completion.text.strip() for agent, completion in zip(readers, completions, strict=True)}

    def _strangers(self) -> list[tuple[int, Item, ChatRequest]]:
        """Each speaker's round-0 request on another item, as that item's own debate asks it, so that both share it."""
        found: list[tuple[int, Item, ChatRequest]] = []
        if not self._rules.noise or self._rules.rounds == 1 or not any(self._rules.hears):
            return found
        for agent in self._own:
            other = donor(self._item, self._setting, agent)
            messages = Conversation(self._rules.opening.text(other, self._setting, agent)).messages
            request = self._setting.request(other, agent, 0, messages)
            found.append((agent, other, replace(request, id=f"{request.id}.noise")))
        return found

    def _say_the_odd_thing(self, round: int) -> None:
        """Put down what the odd one out says, at the end of each round: it is nobody's reply, and costs no call."""
        if (agent := self._rules.odd_one_out) is not None:
            value = wrong_answer(self._item, self._setting)
            text = self._setting.render("odd_one_out", question=self._question, answer=value)
            answer = read_as_answer(text, self._item, self._setting, value)
            self._voices[agent] = Voice(agent, round, text, answer)


def share_to_stop(stop: Stop, threshold: float | None) -> Fraction | None:
    """The share that must agree for a debate to end; None: it does not end before its last round."""
    if stop == "never":
        return None
    # 0.6667 is meant as 2 of 3.
    return Fraction(1 if threshold is None else threshold).limit_denominator(100)


def check_stop(stop: str, threshold: float | None) -> None:
    """Raise ValueError for a threshold that is missing, out of range, or not asked for."""
    if (stop == "threshold") != (threshold is not None):
        raise ValueError(
            f"protocol.stop={stop} with protocol.threshold={threshold}: stop=threshold needs the share of agents that "
            "must agree, such as protocol.threshold=0.6, and the other stops take none"
        )
    if threshold is not None and not 0 < threshold <= 1:
        raise ValueError(f"protocol.threshold must be above 0 and at most 1, got {threshold}")


def _pairs(heard: Sequence[Voice]) -> tuple[tuple[int, int], ...]:
    """Who was heard, of this debate."""
    return tuple((voice.agent, voice.round) for voice in heard if voice.round is not None)


# The template of each way to show peers.
_REPLIES: Mapping[Peers, str] = {"full": "replies", "answers": "answers", "summary": "summarised"}

REPLIES = """\
Here are the latest replies of the other agents to the same question.
{% for peer in peers %}

{{ "Reply of " ~ peer.name if peer.name else "A reply" }}\
{% if peer.confidence %} (its confidence: {{ peer.confidence }}){% endif %}:
{{ peer.text }}
{% endfor %}"""

ANSWERS = """\
Here are the latest answers of the other agents to the same question.

{% for peer in peers %}
{{ "Answer of " ~ peer.name if peer.name else "An answer" }}\
{% if peer.confidence %} (its confidence: {{ peer.confidence }}){% endif %}: {{ peer.answer }}
{% endfor %}"""

SUMMARISED = """\
Here is a summary of the latest replies of the other agents to the same question.

{{ summary or "(There is no summary.)" }}

Their answers:

{% for peer in peers %}
{{ "Answer of " ~ peer.name if peer.name else "An answer" }}\
{% if peer.confidence %} (its confidence: {{ peer.confidence }}){% endif %}: {{ peer.answer }}
{% endfor %}"""

SUMMARY = """\
Several agents have answered this question:

{{ question }}
{% for peer in peers %}

{{ "Reply of " ~ peer.name if peer.name else "A reply" }}:
{{ peer.text }}
{% endfor %}

Sum up these replies: which answers they give, by what reasoning, and where they differ. Do not answer the question \
yourself."""

VERIFY = """\
Check your answer once more: go through each step and look for a mistake. Then state your final answer again. \
{{ answer_format }}"""

ODD_ONE_OUT = "I have worked this out carefully, and I am certain of it. The answer is {{ answer }}."

# What a protocol whose agents hear each other has beside its own template.
ROUNDS_TEMPLATES = {
    "replies": (REPLIES, "peers summary"),
    "answers": (ANSWERS, "peers summary"),
    "summarised": (SUMMARISED, "peers summary"),
    "summary": (SUMMARY, "question peers"),
    "verify": (VERIFY, "question"),
    "odd_one_out": (ODD_ONE_OUT, "question answer"),
}
DEBATE_NAMES = "question peers replies restated"
