"""MAD: debaters in turn and a judge (Liang et al. 2024, arXiv 2305.19118), against the degeneration of thought.

Debaters speak one after another, each reading all that was said before: the affirmative opens, the negative reads its
text of the same round and opposes it, later each answers the others. How far they may agree is the tit-for-tat `level`.
After every round a judge reads the whole record and says whether a right answer has emerged (the steps called
`discriminative`); if so the debate ends with it (adaptive break). After the last round it takes the answer out of the
record instead (`extractive`). Debaters never see the judge. The judge is `judge=`, by default as the first of the cast.

Words: one iteration of the paper (every debater, then the judge) is one of our rounds, and its limit of 3 (the initial
iteration and two more) is rounds=3. There is no independent round 0: round 0 is the first iteration. A debate that
ended by a break has stopped=`decided`, its iteration is 1 + the last round; the decision's rule is the judge's step.
Calls: rounds x agents + (rounds + 1) x (1 + reasks), one more with a given base answer (2 agents x 3 rounds: 10). Fewer
where the judge decides early, or nobody has said anything that it could read.

A verdict decides when it gives an answer and does not speak against itself: no preference, both sides, or one side with
another side's answer is no decision (`core/verdict.py`). Its answer is read by the task's own reader; what that cannot
read without its format is the answer of the debater who gave that value, and else no decision. In a round the debate
then goes on; at the end there is no answer.

Where this is not the paper or its released code, on purpose:
- All wording is ours; the judge is asked in one message that holds the record, and answers in JSON.
- The code stops on any answer that is not empty, whatever its other fields say.
- The code's extractive judge is shown both sides' first answers; the paper has the whole record. `extract_from`.
- At the end no side is asked for: won by is the only side whose last answer the judge took, if there is one.
- Without the break the extractive judge decides, always; what the judge would have said is stored.
- The third side (alternative) and the fourth (sceptic), and what they stand for, are ours: it is not stated.
- A given base answer is the affirmative's own model's, asked for alone as `single` asks: one request for both.
- The meta prompt names the limit, as the paper has it; so debates with other limits share no request.
- The code's temperature 0 is not built in: it is `sampling.temperature` (conf/experiment/liang2024.yaml sets it).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from debate_local.core.chat import Completion
from debate_local.core.conversation import Conversation
from debate_local.core.opening import Opening, independent
from debate_local.core.peers import Voice
from debate_local.core.protocol import protocol
from debate_local.core.reask import REASK_TEMPLATES, Ask, ask_until_read, check_reasks
from debate_local.core.scheduler import Asking
from debate_local.core.setting import Setting, request_id
from debate_local.core.transcript import Answer, Debate, Decision, Item, Transcript, Turn
from debate_local.core.verdict import ASK_ANSWER, ask_preference, read_verdict, schema_of

# In the order in which they speak.
SIDES = ("affirmative", "negative", "alternative", "sceptic")

META = """\
You take part in a debate of {{ agents }} debaters about this question:

{{ question }}

The debaters speak in turn: {{ sides | join(", ") }}. There {{ "is a single round" if rounds == 1 \
else "are at most " ~ rounds ~ " rounds" }}. You are the {{ side }} side. {{ stance }} {{ agreement }}"""

STANCES = {
    "affirmative": "You speak first, with an answer of your own, and you stand up for what is right in it.",
    "negative": "You oppose the affirmative side's answer: look for what is wrong in it, and put a better one forward.",
    "alternative": "You stand for a way that the sides before you have not taken: look for what they share and should "
    "not, and put forward the answer that follows.",
    "sceptic": "You hold everything said so far to be doubtful: test each answer, and say which one stands, if any.",
}
LEVELS = (
    "All sides must come to full agreement on every point.",
    "The sides should disagree on most points; on minor ones they may agree.",
    "The sides need not agree in full: the aim is to find the right answer.",
    "The sides must disagree on every point: there is no consensus.",
)

OPEN = """\
{% if base %}
The answer that you open with is: {{ base }}

State it, and give your reasons for it. \
{% else %}
You open the debate. State your answer, and give your reasons for it. \
{% endif %}
{{ answer_format }}"""

RESPOND = """\
{% for speech in speeches %}
The {{ speech.side }} side says:
{{ speech.text }}

{% endfor %}
{% if speeches %}
Answer this as the {{ side }} side, with your reasons, \
{% else %}
No other side has said anything that you could answer. As the {{ side }} side, state your reasons, \
{% endif %}
and give your answer to the question. {{ answer_format }}"""

# Nothing like "the one that is right": a judge that repeats it instead of an answer would be read as saying 1.
_RECORD = """\
You are the judge of a debate about this question:

{{ question }}

{% for speech in record %}
Round {{ speech.round }}, {{ speech.side }} side:
{{ speech.text }}

{% endfor %}
"""

DISCRIMINATIVE = f"""{_RECORD}\
Round {{{{ round }}}} of at most {{{{ rounds }}}} is over. Weigh what each side has shown, not how it says it. Has a \
right answer to the question emerged? If so, name the side that you support and the answer; if not, the debate goes \
on. {{{{ verdict_format }}}}"""

EXTRACTIVE = f"""{_RECORD}\
The debate is over. Go through the answers that were given, weigh what was shown for and against each, and settle on \
the right answer to the question. {{{{ verdict_format }}}}"""

_JUDGED = "question record sides round rounds verdict_format"


def _calls(agents: int, rounds: int, base_answer: str, reasks: int, **_: Any) -> int:
    return rounds * agents + (rounds + 1) * (1 + reasks) + (base_answer == "given")


def _check(agents: int, rounds: int, level: int, reasks: int, **_: Any) -> None:
    if not 2 <= agents <= len(SIDES):
        raise ValueError(f"protocol.agents must be from 2 to {len(SIDES)} ({', '.join(SIDES)}), got {agents}")
    if rounds < 1:
        raise ValueError(f"protocol.rounds must be at least 1 (a round is every debater and the judge), got {rounds}")
    if not 0 <= level < len(LEVELS):
        raise ValueError(
            f"protocol.level must be 0 (agree on all), 1 (on minor points), 2 (as it helps) or 3 (on nothing), got "
            f"{level}"
        )
    check_reasks(reasks)


def _suits(setting: Setting, agents: int, **_: Any) -> None:
    if len(setting.cast) > agents:
        raise ValueError(
            f"the cast has {len(setting.cast)} members and the debate {agents} agents: some would never speak. Give as "
            "many agents, or a shorter cast (it is repeated in order); the judge is no member of it: judge={...}"
        )


def _reflect(**options: Any) -> Mapping[str, Any]:
    """One agent alone, at the debate's number of calls: the paper's Self-Reflect, not the same debate without peers."""
    return {"name": "reflection", "agents": 1, "rounds": _calls(**options)}


@protocol(
    calls=_calls,
    agents=None,
    voters=lambda agents, **_: agents,
    judged=True,
    templates={
        "meta": (META, "question agents sides rounds side stance agreement"),
        "open": (OPEN, "base"),
        "respond": (RESPOND, "speeches side round"),
        "discriminative": (DISCRIMINATIVE, _JUDGED),
        "extractive": (EXTRACTIVE, _JUDGED),
        **{f"level_{level}": (text, "") for level, text in enumerate(LEVELS)},
        **{f"side_{side}": (text, "") for side, text in STANCES.items()},
        **REASK_TEMPLATES,
    },
    check=_check,
    suits=_suits,
    reflect=_reflect,
)
def mad(
    item: Item,
    setting: Setting,
    *,
    agents: int = 2,
    rounds: int = 3,
    level: int = 2,
    adaptive_break: bool = True,
    base_answer: Literal["none", "given"] = "none",
    extract_from: Literal["record", "first"] = "record",
    schema: bool = False,
    reasks: int = 0,
) -> Debate:
    """Hold one debate. The debaters' models, sampling and personas are the cast's, in the order of the sides.

    agents: 2 (affirmative, negative), 3 (and alternative) or 4 (and sceptic). Liang et al.: 2.
    rounds: how many iterations there are at most. Liang et al.: 3.
    level: how far debaters may agree: 0 in all, 1 on minor points, 2 as they must to find what is right (Liang et al.),
      3 on nothing.
    adaptive_break: the debate ends when the judge finds that a right answer has emerged (Liang et al.). Without it all
      rounds are held; the judge is asked all the same, and what it says is stored and changes nothing.
    base_answer: the affirmative opens with its own answer (none), or with that which its model gives alone (given);
      where that cannot be read, with its own, and the stored turn `base` has no answer.
    extract_from: the judge at the end reads the whole record (Liang et al.), or each side's first speech (first: the
      released code).
    schema: the judge's replies are held to the JSON that is asked for, by engines that can.
    reasks: how often the judge is asked again when its reply lacks the fields that matter; each is a call.
    """
    debate = _Debate(item, setting, SIDES[:agents], rounds, level, schema, reasks)
    base = (yield from debate.base()) if base_answer == "given" else ""
    for round in range(rounds):
        for agent in range(agents):
            yield from debate.speak(agent, round, base)
        answer, side = yield from debate.judge("discriminative", round)
        if adaptive_break and not answer.missing:
            return debate.ended("discriminative", answer, side, "decided")
    answer, side = yield from debate.judge("extractive", rounds - 1, only_first=extract_from == "first")
    return debate.ended("extractive", answer, side, "rounds")


@dataclass(frozen=True, slots=True)
class _Ruling:
    """What a judge's reply comes to: the answer that it decides on, if any, and for which side."""

    answer: Answer
    side: str
    json_rule: str


class _Debate:
    """A debate under way: each debater's own conversation, and all turns so far."""

    def __init__(
        self, item: Item, setting: Setting, sides: Sequence[str], rounds: int, level: int, schema: bool, reasks: int
    ) -> None:
        self._item, self._alone, self._sides, self._rounds = item, setting, sides, rounds
        self._schema, self._reasks = schema, reasks
        self._setting = _seated(item, setting, sides, rounds, level)
        self._own: dict[int, Conversation] = {}
        self._turns: list[Turn] = []

    @property
    def _speeches(self) -> list[Turn]:
        """What debaters have said, in order; a speech without text is heard by nobody."""
        return [turn for turn in self._turns if turn.votes and turn.completion.text.strip()]

    def base(self) -> Asking[str]:
        """The answer that the affirmative's model gives alone, asked as `single` asks; "" where there is none."""
        (turn,) = yield from independent(self._item, self._alone, Opening(), 1)
        request = replace(turn.request, id=request_id(0, 0, "base"))
        self._turns.append(replace(turn, request=request, role="base", step="base"))
        return turn.answer.value or ""

    def speak(self, agent: int, round: int, base: str) -> Asking[None]:
        """One debater's speech."""
        side = self._sides[agent]
        # Everybody speaks once a round, so these are those since its own last speech.
        since = ((round - 1, other) for other in range(agent + 1, len(self._sides)))
        new = {*since, *((round, other) for other in range(agent))}
        heard = [turn for turn in self._speeches if (turn.round, turn.agent) in new]
        speeches = [{"side": turn.side, "text": Voice.of(turn).text} for turn in heard]
        if round == agent == 0:
            text = self._setting.render("open", base=base)
        else:
            text = self._setting.render("respond", speeches=speeches, side=side, round=round + 1)
        if agent in self._own:
            self._own[agent].told(text)
        else:
            self._own[agent] = Conversation(text)
        request = self._setting.request(self._item, agent, round, self._own[agent].messages)
        (completion,) = yield [request]
        turn = self._setting.turn(self._item, agent, round, request, completion, _pairs(heard))
        self._turns.append(replace(turn, side=side))
        self._own[agent].said(completion.text)

    def judge(self, step: str, round: int, only_first: bool = False) -> Asking[tuple[Answer, str]]:
        """The judge's verdict on what was said so far: the answer and the side; none where nothing was said."""
        record = [turn for turn in self._speeches if turn.round == 0 or not only_first]
        if not record:
            return Answer.none("nobody has said anything"), ""
        at_the_end = step == "extractive"
        asked = ASK_ANSWER if at_the_end else ask_preference(self._sides)
        text = self._setting.render(
            step,
            question=self._item.question,
            record=[{"round": t.round + 1, "side": t.side, "text": Voice.of(t).text} for t in record],
            sides=self._sides,
            round=round + 1,
            rounds=self._rounds,
            verdict_format=asked,
        )
        request = self._setting.helper_request(self._item, -1, round, text, step, self._setting.judge)
        if self._schema:
            request = replace(request, schema=schema_of(() if at_the_end else self._sides))
        ask = Ask(-1, round, step, request)
        (attempts,) = yield from ask_until_read(self._item, self._setting, [ask], self._has_fields, self._reasks, asked)
        rulings = [self._ruling(attempt.completion) for attempt in attempts]
        for attempt, ruling in zip(attempts, rulings, strict=True):
            turn = Turn(-1, round, attempt.ask.request, attempt.completion, ruling.answer, _pairs(record), "judge")
            self._turns.append(replace(turn, step=attempt.ask.step, side=ruling.side, json_rule=ruling.json_rule))
        return rulings[-1].answer, rulings[-1].side

    def _has_fields(self, completion: Completion) -> bool:
        return read_verdict(completion.text, self._sides).readable

    def _ruling(self, completion: Completion) -> _Ruling:
        """Read a judge's reply. Its answer is read by the task's reader, so that equal answers are one."""
        verdict = read_verdict(completion.text, self._sides)
        if completion.error is not None:
            return _Ruling(Answer.none("failed"), "", "")
        if verdict.undecided:
            return _Ruling(Answer.none(f"undecided: {verdict.undecided}"), "", verdict.rule)
        answer = self._read(verdict.answer, completion)
        if answer.missing:
            return _Ruling(Answer.none(f"undecided: its answer cannot be read ({answer.rule})"), "", verdict.rule)
        last = {turn.side: turn.answer.key for turn in self._turns if turn.votes}
        givers = [side for side, key in last.items() if key == answer.key]
        if verdict.side and givers and last.get(verdict.side) not in (None, answer.key):
            why = f"undecided: it supports one side and gives another's answer ({verdict.side}, {givers[0]})"
            return _Ruling(Answer.none(why), "", verdict.rule)
        # Where it names no side, the only one that gives this answer is the one it decides for.
        side = verdict.side or (givers[0] if len(givers) == 1 else "")
        return _Ruling(answer, side, verdict.rule)

    def _read(self, field: str, completion: Completion) -> Answer:
        """The answer of a verdict's field: what the task's reader makes of it, else the debater's answer that it is.

        A task may read its own format only; the value alone is then still what a debater has said.
        """
        answer = self._setting.task.read(field, self._item)
        if answer.missing:
            said = [turn.answer for turn in self._speeches if _plain(turn.answer.value or "") == _plain(field)]
            answer = replace(said[-1], rule="as a debater gave it", span=(0, len(field))) if said else answer
        return _placed(answer, field, completion)

    def ended(self, rule: str, answer: Answer, side: str, stopped: str) -> Transcript:
        """The whole debate, decided by the judge."""
        decision = Decision(rule, (answer,), eligible=1, received=int(not answer.missing), side=side)
        return Transcript(self._item.id, tuple(self._turns), decision, stopped)


def _seated(item: Item, setting: Setting, sides: Sequence[str], rounds: int, level: int) -> Setting:
    """The setting with a member for each side, who is told what the debate is and what the side stands for."""
    cast = []
    for agent, side in enumerate(sides):
        meta = setting.render(
            "meta",
            question=item.question,
            agents=len(sides),
            sides=sides,
            rounds=rounds,
            side=side,
            stance=setting.render(f"side_{side}"),
            agreement=setting.render(f"level_{level}"),
        )
        member = setting.agent(agent)
        told = "\n\n".join(part for part in (member.persona, setting.examples(item), meta) if part)
        cast.append(replace(member, persona=told, name=side))
    return replace(setting, cast=cast)


def _plain(value: str) -> str:
    return value.casefold().strip(" .!\"'")


def _placed(answer: Answer, field: str, completion: Completion) -> Answer:
    """An answer that was read in a field, with its place in the whole reply; none where the limit cut it off there."""
    start = completion.text.rfind(field)
    if answer.span is None or start < 0:
        return replace(answer, span=None)
    moved = replace(answer, span=(start + answer.span[0], start + answer.span[1]))
    return moved.unless_cut(completion.text, completion.finish_reason)


def _pairs(turns: Sequence[Turn]) -> tuple[tuple[int, int], ...]:
    return tuple((turn.agent, turn.round) for turn in turns)
