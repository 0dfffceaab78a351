"""How sure an agent is: what it says, how likely its tokens were, how many agree. Never guessed: unknown is None."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .chat import Completion
from .transcript import Answer


@dataclass(frozen=True, slots=True)
class ConfidenceReader:
    """How a confidence is asked for, and what reads it. Both belong together.

    format: the sentence that asks. read: from a reply to the confidence it states, an Answer whose value is a decimal
    from 0 to 1 and whose span is that number's place.
    """

    format: str
    read: Callable[[str], Answer]


def stated(confidence: Answer | None) -> float | None:
    """What was said, from 0 to 1; None when it was not asked for or cannot be read. 0 is a confidence."""
    return None if confidence is None or confidence.value is None else float(confidence.value)


def rescaled(confidence: float) -> float:
    """A stated confidence as a weight. Source: Chen et al. 2024 (ReConcile), released code; models overstate."""
    if confidence >= 1.0:
        return 1.0
    if confidence >= 0.9:
        return 0.8
    if confidence >= 0.8:
        return 0.5
    return 0.3 if confidence > 0.6 else 0.1


def without_confidence(text: str, confidence: Answer) -> str:
    """The text without the confidence that it states: its line, or within a line that says more only the number."""
    if confidence.span is None:
        return text
    start, end = confidence.span
    line_start, line_end = text.rfind("\n", 0, start) + 1, text.find("\n", end)
    line_end = len(text) if line_end < 0 else line_end
    if _LABEL.match(text[line_start:start]):
        return f"{text[:line_start].rstrip()}{text[line_end:]}"
    return f"{text[:start]}[withheld]{text[end:]}"


# A line of its own: `**Confidence:** 0.85`, `My confidence level is 85%`.
_LABEL = re.compile(r"[\s*_`>#-]*(?:my\s+|level\s+of\s+)?confidence\b[^.!?]*$", re.IGNORECASE)


def mean_logprob(completion: Completion) -> float | None:
    """The mean natural log-probability of all generated tokens, reasoning included; None when they are not known."""
    return mean_of([value for _, value in completion.logprobs or ()])


def answer_logprob(completion: Completion, answer: Answer) -> float | None:
    """The same over the tokens of the answer only. None where the answer cannot be found among the tokens."""
    if completion.logprobs is None or answer.span is None:
        return None
    # From the answer to the end of the text: before it may stand reasoning, or a prefill that has no tokens.
    rest = completion.text[answer.span[0] :].rstrip()
    start = "".join(piece for piece, _ in completion.logprobs).rfind(rest)
    if not rest or start < 0:
        return None
    end = start + answer.span[1] - answer.span[0]
    values, place = [], 0
    for piece, value in completion.logprobs:
        if piece and place < end and place + len(piece) > start:
            values.append(value)
        place += len(piece)
    return mean_of(values)


def mean_of(values: Sequence[float]) -> float | None:
    """The mean of log-probabilities; None without any, or where one is none of this world."""
    if not values or not all(math.isfinite(value) for value in values):
        return None
    return math.fsum(values) / len(values)
