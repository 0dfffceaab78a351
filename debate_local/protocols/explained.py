"""Where a person's explanation turns a wrong answer into the right one: how convincing samples are found (Chen et al.).

Round 0: each agent answers alone. Round 1: whoever gave a wrong answer is asked anew, in a fresh prompt, with the
explanation that a person gave for the gold before the question. Nobody hears anybody. It goes by the gold, so its score
is no score of a method; `debate-local convince` runs it on training rows and keeps what it finds.

Not asked anew: who gave no answer (there is none to turn), and where there is no explanation, or one from which the
task's reader can read the gold (an agent that copies is not convinced).
Calls: 2 x agents at most.
"""

from debate_local.core.chat import Message
from debate_local.core.opening import OPENING_TEMPLATES, Confidence, Opening, asking, independent
from debate_local.core.protocol import protocol
from debate_local.core.samples import usable
from debate_local.core.setting import Setting
from debate_local.core.transcript import Debate, Item, Transcript
from debate_local.core.voting import each

EXPLAINED = """\
A person has explained the question below:

{{ explanation }}

{{ asked }}"""


def _check(agents: int, **_: object) -> None:
    if agents < 1:
        raise ValueError(f"protocol.agents must be at least 1, got {agents}")


@protocol(
    calls=lambda agents, **_: 2 * agents,
    agents=lambda agents, **_: agents,
    templates={"explained": (EXPLAINED, "explanation asked"), **OPENING_TEMPLATES},
    controls=False,
    check=_check,
)
def explained(
    item: Item, setting: Setting, *, agents: int = 1, cot: bool = True, confidence: Confidence = "none"
) -> Debate:
    """agents: how many are asked, each a member of the cast.

    cot, confidence: asked to think step by step, and how sure it is. See core/opening.py.
    """
    setting, opening = asking(setting, confidence), Opening(cot)
    turns = yield from independent(item, setting, opening, agents)
    last, task = list(turns), setting.task
    wrong = [turn.agent for turn in turns if not turn.answer.missing and task.score(turn.answer, item) < 1.0]
    if wrong and usable(item, task):
        requests = []
        for agent in wrong:
            asked = opening.text(item, setting, agent)
            text = setting.render("explained", explanation=item.explanation, asked=asked)
            requests.append(setting.request(item, agent, 1, [Message("user", text)]))
        completions = yield requests
        for agent, request, completion in zip(wrong, requests, completions, strict=True):
            last[agent] = setting.turn(item, agent, 1, request, completion)
            turns.append(last[agent])
    return Transcript(item.id, tuple(turns), each([turn.answer for turn in last]))
