"""Everything around one debate that is not its question: the cast, the task, the seed, the wording."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .chat import ChatRequest, Completion, Message, Sampling, derive_seed, with_seed
from .confidence import ConfidenceReader
from .prompts import render
from .samples import Sample
from .task import Task
from .transcript import Answer, Item, Turn


@dataclass(frozen=True, slots=True)
class Agent:
    """One debater: which model answers for it, how it is sampled, and its persona ("" for none).

    name: what peers may be told of who speaks; "" for its number.
    """

    model: str = "default"
    sampling: Sampling = field(default_factory=Sampling)
    persona: str = ""
    template_args: Mapping[str, Any] = field(default_factory=dict)
    prefill: str = ""
    logprobs: bool = False
    name: str = ""


@dataclass(frozen=True, slots=True)
class Setting:
    """What a protocol is given beside the item and its own options.

    cast: repeated in order when there are more agents than members. templates: the protocol's
    templates, overrides applied. judge: who decides where a decision asks; None: as the cast's first member, without
    its persona. summariser: who sums up peers' replies; None: as the agent that reads the summary, without its persona.
    confidence: how confidences are asked for and read; None where nobody can. asks_confidence: they are asked for.
    samples: what may be shown before a question.
    """

    task: Task
    cast: Sequence[Agent] = (Agent(),)
    seed: int = 0
    templates: Mapping[str, str] = field(default_factory=dict)
    judge: Agent | None = None
    summariser: Agent | None = None
    confidence: ConfidenceReader | None = None
    asks_confidence: bool = False
    samples: Sequence[Sample] = ()

    @property
    def models(self) -> list[str]:
        """The models of the cast's members, by place."""
        return [member.model for member in self.cast]

    @property
    def answer_format(self) -> str:
        """The sentence that asks for a format: the task's, and that for a confidence where it is asked for."""
        asked = f" {self.confidence.format}" if self.confidence and self.asks_confidence else ""
        return f"{self.task.answer_format}{asked}"

    def asking_confidence(self) -> "Setting":
        """The same, every turn being asked how sure it is. Raises ValueError where nobody can read that."""
        if self.confidence is None:
            raise ValueError("confidence=verbal: nothing reads confidences here; give it: Setting(confidence=...)")
        return replace(self, asks_confidence=True)

    def agent(self, index: int) -> Agent:
        """The cast's member who plays this agent."""
        return self.cast[index % len(self.cast)]

    def examples(self, item: Item) -> str:
        """What the task shows before its question, "" without: for prompts that hold a question and do not `ask` it."""
        found: str = getattr(self.task, "examples", lambda item: "")(item)
        return found

    def render(self, template: str, **values: Any) -> str:
        """Fill one of the protocol's templates; `answer_format` is always known."""
        return render(self.templates[template], answer_format=self.answer_format, **values)

    def request(
        self,
        item: Item,
        agent: int,
        round: int,
        messages: Sequence[Message],
        step: str = "",
        member: Agent | None = None,
    ) -> ChatRequest:
        """One call of an agent, its persona put first, its seed derived from who asks what and when.

        member: who answers in the stead of the cast's member of that number (a judge, a summariser).
        """
        member = member or self.agent(agent)
        persona = (Message("system", member.persona),) if member.persona else ()
        return ChatRequest(
            id=request_id(agent, round, step),
            model=member.model,
            messages=(*persona, *messages),
            sampling=with_seed(member.sampling, derive_seed(self.seed, item.id, agent, round, step)),
            prefill=member.prefill,
            template_args=member.template_args,
            logprobs=member.logprobs,
            # Later rounds first: a debate that is nearly over frees its place soonest.
            priority=-round,
        )

    def helper_request(
        self, item: Item, agent: int, round: int, text: str, step: str, helper: Agent | None
    ) -> ChatRequest:
        """One call of a helper: the one given, or the agent's own model without its persona."""
        member = helper or replace(self.agent(max(agent, 0)), persona="", prefill="")
        return self.request(item, agent, round, [Message("user", text)], step, member)

    def turn(
        self,
        item: Item,
        agent: int,
        round: int,
        request: ChatRequest,
        completion: Completion,
        heard: Iterable[tuple[int, int]] = (),
        apart: Sequence[tuple[int, int]] = (),
    ) -> Turn:
        """A debater's turn, its reply read once. apart: places in the reply that hold no answer."""
        confidence = self._confidence(completion)
        if confidence is not None and confidence.span is not None:
            # A number that is a confidence is not taken for the answer.
            apart = [*apart, confidence.span]
        answer = self._read(completion, item, apart)
        return Turn(agent, round, request, completion, answer, tuple(heard), confidence=confidence)

    def _confidence(self, completion: Completion) -> Answer | None:
        if self.confidence is None or not self.asks_confidence:
            return None
        return self.confidence.read(completion.text) if completion.text.strip() else Answer.none("empty reply")

    def _read(self, completion: Completion, item: Item, apart: Sequence[tuple[int, int]]) -> Answer:
        """The answer of a reply; none of a failed one, and none that the cut of a cut-off one may have shortened."""
        if not completion.text.strip():
            return Answer.none("failed" if completion.error else "empty reply")
        text = completion.text
        for start, end in apart:
            # Blanks, so that places in the text stay what they were.
            text = f"{text[:start]}{' ' * (end - start)}{text[end:]}"
        return self.task.read(text, item).unless_cut(completion.text, completion.finish_reason)


def request_id(agent: int, round: int, step: str) -> str:
    """What a debate calls one of its requests, and what its stored turn is found by."""
    return f"{agent}.{round}.{step}" if step else f"{agent}.{round}"
