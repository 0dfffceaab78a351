"""The decision rules. A missing answer is never a vote; a tie is recorded and broken by a stated rule."""

from collections import Counter
from collections.abc import Sequence

from .transcript import Answer, Decision


def majority(answers: Sequence[Answer]) -> Decision:
    """The answer given most often; a tie goes to the tied answer that the earliest agent gave.

    answers are in agent order, missing ones included. With no answer at all the decision is no answer.
    Source: Du et al. 2023, released code (`most_frequent`): 1-1-1 gives agent 0.
    """
    given = [answer for answer in answers if not answer.missing]
    if not given:
        return Decision("majority", (Answer.none("no agent answered"),), eligible=len(answers))
    counts = Counter(str(answer.key) for answer in given)
    top = max(counts.values())
    winner = next(answer for answer in given if counts[str(answer.key)] == top)
    tied = tuple(key for key, count in counts.items() if count == top)
    return Decision(
        "majority",
        (winner,),
        # Counter keeps first-seen order, so the sort is stable in agent order.
        counts=tuple(sorted(((key, float(count)) for key, count in counts.items()), key=lambda pair: -pair[1])),
        tied=tied if len(tied) > 1 else (),
        eligible=len(answers),
        received=len(given),
    )


def each(answers: Sequence[Answer]) -> Decision:
    """No decision: every agent's answer is scored, and score and cost are means over the agents."""
    received = sum(not answer.missing for answer in answers)
    return Decision("each", tuple(answers), eligible=len(answers), received=received)
