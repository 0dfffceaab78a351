"""Self-refine: an agent answers, gives itself feedback, and answers again by that feedback; several times.

Feedback and refinement are calls of their own, in one conversation. With several samples each is refined alone, and
the majority of the last answers decides: self-refine with self-consistency. Chen et al. 2024 have both as baselines,
with 3 iterations; how they end is not stated, and here nothing stops early.
Round 0 is `single`'s: the same prompts and seeds; round r is the r-th iteration.
Calls: samples x (1 + 2 x iterations).
"""

from debate_local.core.conversation import Conversation
from debate_local.core.opening import (
    OPENING_TEMPLATES,
    Confidence,
    Opening,
    Shown,
    asking,
    check_evidence,
    check_opening,
    independent,
)
from debate_local.core.protocol import protocol
from debate_local.core.setting import Setting
from debate_local.core.transcript import Answer, Debate, Item, Transcript, Turn
from debate_local.core.voting import majority

FEEDBACK = """\
Give feedback on your last answer: say what is right, what is wrong or doubtful, and what exactly should be changed. \
Do not answer the question again."""

REFINE = """\
Now improve your answer by this feedback, and give it in full. {{ answer_format }}"""


def _check(samples: int, iterations: int, evidence: str, evidence_parts: int | None, **_: object) -> None:
    if samples < 1:
        raise ValueError(f"protocol.samples must be at least 1, got {samples}")
    if iterations < 1:
        raise ValueError(
            f"protocol.iterations must be at least 1, got {iterations}; without any it is protocol=self_consistency"
        )
    check_opening(evidence, evidence_parts)


@protocol(
    calls=lambda samples, iterations, **_: samples * (1 + 2 * iterations),
    agents=lambda samples, **_: samples,
    templates={"feedback": (FEEDBACK, "question"), "refine": (REFINE, "question"), **OPENING_TEMPLATES},
    check=_check,
    suits=check_evidence,
    alone=lambda samples, iterations, **asked: asked,
    reflect=lambda **_: None,
)
def self_refine(
    item: Item,
    setting: Setting,
    *,
    samples: int = 1,
    iterations: int = 3,
    cot: bool = False,
    confidence: Confidence = "none",
    evidence: Shown = "none",
    evidence_parts: int | None = None,
) -> Debate:
    """samples: how many answers are refined, each alone. iterations: how often each gets feedback and is refined.

    cot: asked to think step by step. confidence: asked how sure it is, too. evidence, evidence_parts: which of the
    item's evidence is shown, and in how many parts it is dealt out (null: everybody reads all). See core/opening.py.
    """
    setting, opening = asking(setting, confidence), Opening(cot, evidence, evidence_parts)
    question = setting.task.ask(item)
    last = yield from independent(item, setting, opening, samples)
    own = [Conversation(opening.text(item, setting, agent)) for agent in range(samples)]
    turns = list(last)
    for iteration in range(1, iterations + 1):
        for agent in range(samples):
            own[agent].said(last[agent].completion.text)
            own[agent].told(setting.render("feedback", question=question))
        asked = [setting.request(item, agent, iteration, own[agent].messages, "feedback") for agent in range(samples)]
        feedback = yield asked
        for agent in range(samples):
            own[agent].said(feedback[agent].text)
            own[agent].told(setting.render("refine", question=question))
        requests = [setting.request(item, agent, iteration, own[agent].messages) for agent in range(samples)]
        completions = yield requests
        last = [setting.turn(item, agent, iteration, requests[agent], completions[agent]) for agent in range(samples)]
        for agent in range(samples):
            none = Answer.none("feedback")
            critique = Turn(agent, iteration, asked[agent], feedback[agent], none, role="critic", step="feedback")
            turns += [critique, last[agent]]
    return Transcript(item.id, tuple(turns), majority([turn.answer for turn in last]))
