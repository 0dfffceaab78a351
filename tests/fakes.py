"""Fakes written by hand and shared by tests: a tiny task, and an engine that answers late and out of order."""

import random
import re
from collections.abc import Callable, Sequence

from debate_local.core.chat import ChatRequest, Completion, Limits, Message, Sampling, request_key
from debate_local.core.task import Grading, Metric, grade_answers
from debate_local.core.transcript import Answer, Item, Transcript


class Sums:
    """A task of small sums; a reply answers by `Answer: <number>`, and the last one counts."""

    name = "sums"
    metric = Metric("accuracy")
    votable = True
    answer_format = "End with `Answer: <number>`."

    def __init__(self, count: int = 3) -> None:
        self._count = count

    def items(self) -> Sequence[Item]:
        """`count` items; ids do not depend on the count."""
        return [Item(f"sum-{n}", f"What is {n} + {2 * n}?", str(3 * n)) for n in range(1, self._count + 1)]

    def ask(self, item: Item) -> str:
        return f"{item.question} {self.answer_format}"

    def read(self, text: str, item: Item) -> Answer:
        found = list(re.finditer(r"Answer: (-?\d+)", text))
        if not found:
            return Answer.none("no `Answer:`")
        number = found[-1][1]
        return Answer(number, str(int(number)), "answer line", found[-1].span(1))

    def same(self, a: Answer, b: Answer) -> bool:
        return not a.missing and a.key == b.key

    def score(self, answer: Answer, item: Item) -> float:
        return float(answer.key == item.target)

    def grade(self, transcript: Transcript, item: Item) -> Grading:
        return grade_answers(transcript, item, self.score)


class LateEngine:
    """Answers each request after a random number of polls, in random order; a poll may bring nothing.

    What it answers is `answer(request)` and nothing else. It keeps what was submitted together and what was cancelled.
    """

    def __init__(self, answer: Callable[[ChatRequest], Completion], seed: int = 0, slowest: int = 4) -> None:
        self._answer, self._random, self._slowest = answer, random.Random(seed), slowest
        self._waiting: list[tuple[int, ChatRequest]] = []
        self.submitted: list[list[ChatRequest]] = []
        self.cancelled: list[str] = []
        self.closed = False
        self.identity = {"default": {"kind": "late"}}
        self.limits = Limits(None, ("default",))

    def submit(self, requests: Sequence[ChatRequest]) -> None:
        self.submitted.append(list(requests))
        self._waiting += [(self._random.randrange(self._slowest), request) for request in requests]

    def poll(self, timeout: float) -> list[tuple[str, Completion]]:
        ready = [request for polls, request in self._waiting if polls == 0]
        self._waiting = [(polls - 1, request) for polls, request in self._waiting if polls]
        self._random.shuffle(ready)
        return [(request.id, self._answer(request)) for request in ready]

    def cancel(self, ids: Sequence[str]) -> None:
        self.cancelled += ids
        self._waiting = [(polls, request) for polls, request in self._waiting if request.id not in ids]

    def close(self) -> None:
        self.closed = True

    def count_tokens(self, messages: Sequence[Message]) -> int:
        return sum(len(message.content) for message in messages)

    @property
    def requests(self) -> list[ChatRequest]:
        """All that was ever submitted, in order."""
        return [request for batch in self.submitted for request in batch]


def request(text: str, id: str = "0", seed: int | None = 1, model: str = "default", **sampling: float) -> ChatRequest:
    """One request with one user message."""
    return ChatRequest(id, model, (Message("user", text),), Sampling(seed=seed, **sampling))  # type: ignore[arg-type]


def marker(request: ChatRequest) -> str:
    """A word that only the reply to this request holds."""
    return f"[said-{request_key(request, '')}]"


def marked(request: ChatRequest, answers: int = 3) -> Completion:
    """A reply with its marker and one of so many answers, as a function of the request's content."""
    key = request_key(request, "")
    return Completion(f"{marker(request)} I add them up. Answer: {int(key, 16) % answers}", generated_tokens=7)
