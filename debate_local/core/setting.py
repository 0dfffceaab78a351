"""Everything around one debate that is not its question: the cast, the task, the seed, the wording."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .chat import ChatRequest, Completion, Message, Sampling, derive_seed, with_seed
from .prompts import render
from .task import Task
from .transcript import Answer, Item, Turn


@dataclass(frozen=True, slots=True)
class Agent:
    """One debater: which model answers for it, how it is sampled, and its persona ("" for none)."""

    model: str = "default"
    sampling: Sampling = field(default_factory=Sampling)
    persona: str = ""
    template_args: Mapping[str, Any] = field(default_factory=dict)
    prefill: str = ""
    logprobs: bool = False


@dataclass(frozen=True, slots=True)
class Setting:
    """What a protocol is given beside the item and its own options.

    cast: repeated in order when there are more agents than members. templates: the protocol's
    templates, overrides applied.
    """

    task: Task
    cast: Sequence[Agent] = (Agent(),)
    seed: int = 0
    templates: Mapping[str, str] = field(default_factory=dict)

    def agent(self, index: int) -> Agent:
        """The cast's member who plays this agent."""
        return self.cast[index % len(self.cast)]

    def render(self, template: str, **values: Any) -> str:
        """Fill one of the protocol's templates; `answer_format` is always known."""
        return render(self.templates[template], answer_format=self.task.answer_format, **values)

    def request(self, item: Item, agent: int, round: int, messages: Sequence[Message], step: str = "") -> ChatRequest:
        """One call of an agent, its persona put first, its seed derived from who asks what and when."""
        member = self.agent(agent)
        persona = (Message("system", member.persona),) if member.persona else ()
        return ChatRequest(
            id=f"{agent}.{round}.{step}" if step else f"{agent}.{round}",
            model=member.model,
            messages=(*persona, *messages),
            sampling=with_seed(member.sampling, derive_seed(self.seed, item.id, agent, round, step)),
            prefill=member.prefill,
            template_args=member.template_args,
            logprobs=member.logprobs,
            # Later rounds first: a debate that is nearly over frees its place soonest.
            priority=-round,
        )

    def turn(
        self,
        item: Item,
        agent: int,
        round: int,
        request: ChatRequest,
        completion: Completion,
        heard: Sequence[Turn] = (),
    ) -> Turn:
        """A debater's turn, its reply read once."""
        answer = self._read(completion, item)
        return Turn(agent, round, request, completion, answer, tuple((turn.agent, turn.round) for turn in heard))

    def _read(self, completion: Completion, item: Item) -> Answer:
        """The answer of a reply; none of a failed one, and none that the cut of a cut-off one may have shortened."""
        if not completion.text.strip():
            return Answer.none("failed" if completion.error else "empty reply")
        answer = self.task.read(completion.text, item)
        at_the_end = answer.span is not None and answer.span[1] >= len(completion.text.rstrip())
        return Answer.none("cut off in the answer") if completion.finish_reason == "length" and at_the_end else answer
