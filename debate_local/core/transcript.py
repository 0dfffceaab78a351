"""What a debate is made of and leaves behind: items, answers, turns, decisions, transcripts.

A debate is a generator (`Debate`): it yields lists of requests that may run now, in any order, is sent their
completions in the order of the list, and returns its transcript. It performs no I/O and draws no random numbers.
"""

from collections.abc import Generator
from dataclasses import dataclass

from .chat import ChatRequest, Completion


@dataclass(frozen=True, slots=True)
class Evidence:
    """A text that may be shown beside a question. source: who says so. correct: None when nobody has said."""

    id: str
    source: str
    text: str
    correct: bool | None = None


@dataclass(frozen=True, slots=True)
class Item:
    """One question of a task.

    id: the source's own, or a hash of the row; never a position. question: with its options, as it is put to a model.
    target: the gold answer. choices: the texts of options A, B, ... also: further golds, as right as the target. trap:
    wrong answers that tempt, in the form of a target. group: the subject or subset. suspect: why the gold is doubted,
    "" when it is not. explanation: a person's explanation of the gold.
    """

    id: str
    question: str
    target: str
    choices: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    trap: tuple[str, ...] = ()
    group: str = ""
    suspect: str = ""
    explanation: str = ""
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """What a reader found in a reply.

    value: the canonical form, for people. key: equal keys are the same vote. rule: the reader's rule
    that matched, or why there is no answer. span: where in the text it was read, [start, end).
    """

    value: str | None
    key: str | None
    rule: str
    span: tuple[int, int] | None = None

    @classmethod
    def none(cls, rule: str) -> "Answer":
        """No answer, and why. It is never correct and never a vote."""
        return cls(None, None, rule)

    @property
    def missing(self) -> bool:
        return self.key is None

    def unless_cut(self, text: str, finish_reason: str) -> "Answer":
        """This answer; none where the limit cut the reply off in it, so that it may lack its end."""
        at_the_end = self.span is not None and self.span[1] >= len(text.rstrip())
        return Answer.none("cut off in the answer") if finish_reason == "length" and at_the_end else self


@dataclass(frozen=True, slots=True)
class Turn:
    """One agent's speech in one round.

    heard: the (agent, round) pairs of others whose text, or what stands for it (an answer, a summary), was in its
    prompt. role: `debater`, or what a helper is (judge, summariser, ...); agent is -1 for one that is nobody of the
    cast. step: a further request of a turn. confidence: what it states of itself, None when that was not asked for.
    stances: (answer key, `agree`, `disagree` or "" for what cannot be read) for each answer that it was to judge; None
    when that was not asked for.
    side: what a debater stands for, or a judge decides for; "" where there is none. json_rule: how the JSON that was
    asked for was read, or why it could not be; "" where none was asked for.
    """

    agent: int
    round: int
    request: ChatRequest
    completion: Completion
    answer: Answer
    heard: tuple[tuple[int, int], ...] = ()
    role: str = "debater"
    step: str = ""
    confidence: Answer | None = None
    stances: tuple[tuple[str, str], ...] | None = None
    side: str = ""
    json_rule: str = ""

    @property
    def votes(self) -> bool:
        """Is it a debater's own answer, and no helper's turn or further request?"""
        return self.role == "debater" and not self.step


@dataclass(frozen=True, slots=True)
class Decision:
    """How answers became one.

    answers: usually one; with the rules `each` and `none` there are several, every one is scored, and the score is
    their mean (so is the cost with `each`: they need not have known of each other). counts: votes by key, most first.
    tied: the keys that shared the top count. eligible: who could vote; received: whose votes counted. side: the one
    that a judge decided for; "" where there is none.
    """

    rule: str
    answers: tuple[Answer, ...]
    counts: tuple[tuple[str, float], ...] = ()
    tied: tuple[str, ...] = ()
    eligible: int = 0
    received: int = 0
    side: str = ""

    @property
    def answer(self) -> Answer:
        """The one answer; with several, there is none."""
        return self.answers[0] if len(self.answers) == 1 else Answer.none(f"{len(self.answers)} answers, scored each")


@dataclass(frozen=True, slots=True)
class Transcript:
    """All turns of one debate, in order of round, then agent (a summary before the turn that reads it, and a judge of
    the round at its end), and what was decided; the turns of a decision that asks stand last."""

    item_id: str
    turns: tuple[Turn, ...]
    decision: Decision
    stopped: str = "rounds"

    @property
    def rounds(self) -> int:
        """How many rounds were spoken."""
        return 1 + max((turn.round for turn in self.turns), default=-1)


Debate = Generator[list[ChatRequest], list[Completion], Transcript]
