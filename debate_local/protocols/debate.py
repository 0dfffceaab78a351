"""Multiagent debate (Du et al. 2023, arXiv 2305.14325).

Everyone answers alone (round 0), then reads all the others' last replies and answers again. Simultaneous: in round r
everybody reads round r-1 only. Each agent keeps its own history whole; there is no system message and
all agents get the same starting prompt. The answer is the majority of the last round's answers, a tie going to
the earliest agent. Rounds are fixed.

Words: the paper's and the released code's `rounds` are ours: rounds=2 is one answer and one exchange.
Calls: agents x rounds (3 agents x 2 rounds: 6).

One agent alone, or an agent none of whose peers said anything, is asked to verify its own answer: the reflection
baseline (released code, the branch for no peers). `topology=none` asks that of everybody.
"""

from typing import Literal

from debate_local.core.chat import Message
from debate_local.core.protocol import protocol
from debate_local.core.setting import Setting
from debate_local.core.transcript import Debate, Item, Transcript, Turn
from debate_local.core.voting import majority

DEBATE = """\
Here are the latest replies of the other agents to the same question.
{% for peer in peers %}

Reply of agent {{ peer.number }}:
{{ peer.text }}
{% endfor %}

Check these replies against your own reasoning. Then, with their opinions in mind, give your updated answer. \
{{ answer_format }}"""

VERIFY = """\
Check your answer once more: go through each step and look for a mistake. Then state your final answer again. \
{{ answer_format }}"""


def _check(agents: int, rounds: int, **_: object) -> None:
    if agents < 1:
        raise ValueError(f"protocol.agents must be at least 1, got {agents}")
    if rounds < 1:
        raise ValueError(f"protocol.rounds must be at least 1 (round 0 is the independent answers), got {rounds}")


@protocol(
    calls=lambda agents, rounds, **_: agents * rounds,
    agents=lambda agents, **_: agents,
    templates={"debate": (DEBATE, "question peers"), "verify": (VERIFY, "question")},
    check=_check,
    reflect=lambda **o: {**o, "topology": "none"} if o["topology"] != "none" and o["rounds"] > 1 else None,
)
def debate(
    item: Item, setting: Setting, *, agents: int = 3, rounds: int = 2, topology: Literal["full", "none"] = "full"
) -> Debate:
    """agents: how many answer. rounds: how often each speaks, round 0 included. topology: who hears whom."""
    question = setting.task.ask(item)
    histories: list[list[Message]] = [[Message("user", question)] for _ in range(agents)]
    turns: list[Turn] = []
    previous: list[Turn] = []
    for round in range(rounds):
        heard: list[list[Turn]] = [[] for _ in range(agents)]
        if round:
            for agent in range(agents):
                if topology == "full":
                    heard[agent] = [turn for turn in previous if turn.agent != agent and turn.completion.text.strip()]
                _hear(histories[agent], question, heard[agent], setting)
        requests = [setting.request(item, agent, round, histories[agent]) for agent in range(agents)]
        completions = yield requests
        previous = [
            setting.turn(item, agent, round, requests[agent], completions[agent], heard[agent])
            for agent in range(agents)
        ]
        turns += previous
        for turn in previous:
            if turn.completion.text.strip():
                histories[turn.agent].append(Message("assistant", turn.completion.text))
    return Transcript(item.id, tuple(turns), majority([turn.answer for turn in previous]))


def _hear(history: list[Message], question: str, heard: list[Turn], setting: Setting) -> None:
    """Put the peers' replies at the end of an agent's history, or the request to verify when there are none."""
    if heard:
        peers = [{"number": turn.agent + 1, "text": turn.completion.text} for turn in heard]
        text = setting.render("debate", question=question, peers=peers)
    else:
        text = setting.render("verify", question=question)
    if history[-1].role == "user":
        # The agent's own last turn brought no text: chat templates want roles to alternate, so one message asks both.
        history[-1] = Message("user", f"{history[-1].content}\n\n{text}")
    else:
        history.append(Message("user", text))
