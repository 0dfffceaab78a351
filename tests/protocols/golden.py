"""Whole conversations of one item with scripted replies, one for each option that changes what anybody sees.

They are kept in tests/golden/ to be read by people. Write them anew, then read what changed, with
    python -m tests.protocols.golden
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from debate_local.core.chat import ChatRequest, Completion
from debate_local.core.setting import Agent
from debate_local.core.stances import FORMAT
from debate_local.core.transcript import Transcript, Turn
from tests.protocols.scene import CONFIDENCE, function, hold

FOLDER = Path(__file__).parents[1] / "golden"
NAMES = ("one", "two", "three", "four", "five")
NAMED = (Agent(name="Ada"), Agent(name="Ben"), Agent(name="Cem"))
TABLE = (Agent(model="a"), Agent(model="b"), Agent(model="c"))
PERSONAS = (Agent(persona="You are a careful accountant."), Agent(persona="You are a bold gambler."), Agent())

# (protocol, file, decision, cast, options): what each file shows.
SCENES: tuple[tuple[str, str, str | None, tuple[Agent, ...], dict[str, Any]], ...] = (
    ("debate", "default", None, (Agent(),), {"rounds": 3}),
    ("debate", "agents_1", None, (Agent(),), {"agents": 1, "rounds": 3}),
    ("debate", "topology_none", None, (Agent(),), {"topology": "none", "rounds": 3}),
    ("debate", "topology_ring", None, (Agent(),), {"agents": 4, "topology": "ring"}),
    ("debate", "topology_star", None, (Agent(),), {"agents": 4, "topology": "star"}),
    ("debate", "topology_nearest", None, (Agent(),), {"agents": 4, "topology": "nearest:1"}),
    ("debate", "topology_random", None, (Agent(),), {"agents": 4, "topology": "random:0.5"}),
    ("debate", "topology_graph", None, (Agent(),), {"topology": "graph", "graph": {"1": [3], "2": [1, 3]}}),
    ("debate", "prompt_long", None, (Agent(),), {"prompt": "long"}),
    ("debate", "restate", None, (Agent(),), {"restate": True}),
    ("debate", "restate_long", None, (Agent(),), {"restate": True, "prompt": "long"}),
    ("debate", "cot", None, (Agent(),), {"cot": True}),
    ("debate", "peers_answers", None, (Agent(),), {"peers": "answers"}),
    ("debate", "peers_summary", None, (Agent(),), {"peers": "summary"}),
    ("debate", "summary_from", None, (Agent(),), {"agents": 5, "summary_from": 5}),
    ("debate", "peers_none", None, (Agent(),), {"peers": "none"}),
    ("debate", "history_last", None, (Agent(),), {"rounds": 3, "history": "last"}),
    ("debate", "history_fresh", None, (Agent(),), {"rounds": 3, "history": "fresh"}),
    ("debate", "order_sequential", None, (Agent(),), {"rounds": 3, "order": "sequential"}),
    ("debate", "peer_order_shuffled", None, (Agent(),), {"agents": 4, "peer_order": "shuffled"}),
    ("debate", "peer_names_named", None, NAMED, {"peer_names": "named"}),
    ("debate", "peer_names_anonymous", None, NAMED, {"peer_names": "anonymous"}),
    ("debate", "peer_tokens", None, (Agent(),), {"peer_tokens": 32}),
    ("debate", "confidence_verbal", None, (Agent(),), {"confidence": "verbal"}),
    ("debate", "show_confidence", None, (Agent(),), {"confidence": "verbal", "show_confidence": True}),
    (
        "debate",
        "show_confidence_answers",
        None,
        (Agent(),),
        {"confidence": "verbal", "show_confidence": True, "peers": "answers"},
    ),
    ("debate", "stop_consensus", None, (Agent(),), {"rounds": 4, "stop": "consensus", "odd_one_out": 2}),
    ("debate", "stop_threshold", None, (Agent(),), {"rounds": 4, "stop": "threshold", "threshold": 0.6}),
    ("debate", "skip_agreed", None, (Agent(),), {"agents": 4, "rounds": 4, "topology": "ring", "skip_agreed": True}),
    ("debate", "noise", None, (Agent(),), {"noise": True}),
    ("debate", "odd_one_out", None, (Agent(),), {"rounds": 3, "odd_one_out": 2}),
    ("debate", "evidence_all", None, (Agent(),), {"evidence": "all"}),
    ("debate", "evidence_wrong", None, (Agent(),), {"rounds": 1, "evidence": "wrong"}),
    ("debate", "evidence_mixed", None, (Agent(),), {"rounds": 1, "evidence": "mixed"}),
    ("debate", "evidence_dealt_out", None, (Agent(),), {"evidence": "all", "evidence_parts": 0}),
    ("debate", "personas", None, PERSONAS, {}),
    ("debate", "decision_judge", "judge", (Agent(),), {}),
    ("debate", "decision_mediator", "mediator", (Agent(),), {}),
    ("debate", "decision_approval", "approval", PERSONAS, {}),
    ("debate", "decision_ranked", "ranked", (Agent(),), {}),
    ("debate", "samples_convincing", None, TABLE, {"samples": "convincing", "shots": 1}),
    ("reconcile", "default", None, TABLE, {"rounds": 3}),
    ("reconcile", "topology_none", None, TABLE[:1], {"agents": 2, "rounds": 2, "topology": "none", "stop": "never"}),
    ("reconcile", "samples_convincing", None, TABLE, {"rounds": 2, "samples": "convincing", "shots": 2}),
    ("reconcile", "samples_random", None, TABLE[:1], {"rounds": 2, "samples": "random", "shots": 1}),
    ("reconcile", "groups_2", None, TABLE, {"rounds": 2, "groups": 2}),
    ("reconcile", "not_grouped", None, TABLE, {"rounds": 3, "grouped": False}),
    ("reconcile", "confidence_none", None, TABLE, {"rounds": 2, "confidence": "none"}),
    ("reconcile", "without_cot", None, TABLE, {"rounds": 1, "cot": False}),
    ("explained", "default", None, TABLE, {"agents": 3}),
    ("single", "samples_convincing", None, TABLE, {"agents": 2, "convincing": "convincing", "shots": 1}),
    ("single", "default", None, (Agent(),), {"agents": 2}),
    ("single", "cot_confidence_evidence", None, (Agent(),), {"cot": True, "confidence": "verbal", "evidence": "all"}),
    ("self_consistency", "default", None, (Agent(),), {}),
    ("reflection", "default", None, (Agent(),), {"rounds": 3}),
    ("self_refine", "default", None, (Agent(),), {"iterations": 2}),
    ("self_refine", "samples", None, (Agent(),), {"samples": 2, "iterations": 1}),
    ("mad", "default", None, (Agent(),), {}),
    ("mad", "to_the_limit", None, (Agent(),), {"rounds": 1}),
    ("mad", "no_break", None, (Agent(),), {"rounds": 2, "adaptive_break": False}),
    ("mad", "extract_from_first", None, (Agent(),), {"rounds": 2, "adaptive_break": False, "extract_from": "first"}),
    ("mad", "level_0", None, (Agent(),), {"rounds": 1, "level": 0}),
    ("mad", "level_1", None, (Agent(),), {"rounds": 1, "level": 1}),
    ("mad", "level_3", None, (Agent(),), {"rounds": 1, "level": 3}),
    ("mad", "agents_3", None, (Agent(),), {"agents": 3}),
    ("mad", "agents_4", None, (Agent(),), {"agents": 4}),
    ("mad", "base_answer_given", None, (Agent(),), {"rounds": 1, "base_answer": "given"}),
    ("mad", "personas", None, PERSONAS[:2], {"rounds": 1}),
    ("mad", "reasks", None, (Agent(model="mumbler"),), {"rounds": 1, "reasks": 1}),
    ("roles", "default", None, (Agent(),), {"rounds": 3}),
    ("roles", "simultaneous", None, (Agent(),), {"order": "simultaneous", "history": "full"}),
    (
        "roles",
        "own",
        "mediator",
        PERSONAS[:2],
        {
            "rounds": 3,
            "roles": (
                {"name": "the optimist", "instructions": "Look on the bright side.", "sees": []},
                {"name": "the doubter", "instructions": "Doubt everything.", "speaks": "later"},
                {"name": "the clerk", "instructions": "Write it down.", "sees": ["the doubter"], "speaks": "last"},
            ),
        },
    ),
)


def scripted(request: ChatRequest) -> Completion:
    """What an agent says: its number in round 0; from then on 3, but for the second agent, who never gives in."""
    who, round, *step = request.id.split(".")
    agent, number = int(who), int(round)
    if step == ["noise"]:
        return Completion("I am a stranger, and speak of something else. Answer: 77", generated_tokens=12)
    if step and step[0].startswith(("discriminative", "extractive")):
        return Completion(_verdict(request.model, number, step[0]), generated_tokens=12)
    if step:
        return Completion(_HELP[step[0]], generated_tokens=12)
    answer = agent + 1 if number == 0 or agent == 1 else 3
    text = (
        f"I am agent {NAMES[agent]} in round {number}. Let me add up the numbers: that makes {answer}. Answer: {answer}"
    )
    asked = "\n".join(message.content for message in request.messages)
    if CONFIDENCE.format in asked:
        text += f"\nConfidence: 0.{9 - 2 * agent - number}"
    if FORMAT in asked:
        text = f"Group 1: agree\n**Group 2:** I do not agree.\nGroup 3: who knows\n{text}"
    # Two characters a token, so that a budget of tokens cuts something.
    return Completion(text, generated_tokens=len(text) // 2)


def _verdict(model: str, round: int, step: str) -> str:
    """No side has won in round 0, the negative one after it. A mumbler must be asked again."""
    if model == "mumbler" and "again" not in step:
        return "The sides are close."
    if step.startswith("extractive"):
        return '{"Reason": "It was not refuted.", "debate_answer": "1"}'
    if round == 0:
        return (
            '{"Whether there is a preference": "No", "Supported Side": "", "Reason": "Too early.", "debate_answer": ""}'
        )
    return (
        '{"Whether there is a preference": "Yes", "Supported Side": "Negative", "Reason": "It stands.", '
        '"debate_answer": "2"}'
    )


_HELP = {
    "summary": "One of them counts on its fingers, another trusts its memory.",
    "feedback": "The sum is not shown step by step.",
    "judge": "The second is worked out best.\nChoice: B",
    "mediator": "Both sides have a point. Answer: 3",
    "approval": "Approve: A, B",
    "ranked": "Ranking: B > A",
}


def scenes() -> Iterator[tuple[str, Path, str]]:
    """Each scene's name, its file, and what the file should hold."""
    for name, file, decision, cast, options in SCENES:
        transcript = hold(function(name), scripted, cast, decision, **options)
        given = {key: value for key, value in options.items() if key != "roles"} | (
            {"decision": decision} if decision else {}
        )
        title = " ".join([name, *(f"{key}={value}" for key, value in given.items())])
        yield f"{name}/{file}", FOLDER / name / f"{file}.txt", rendered(title, transcript)


def rendered(title: str, transcript: Transcript) -> str:
    """All turns of a debate in their order, each with all of its prompt, and the decision."""
    parts = [title]
    before: dict[tuple[int, str], tuple[Any, ...]] = {}
    for turn in transcript.turns:
        parts.append(_turn(turn, before.get((turn.agent, turn.role), ())))
        before[turn.agent, turn.role] = turn.request.messages
    decision = transcript.decision
    answers = ", ".join(str(answer.value) for answer in decision.answers)
    votes = ", ".join(f"{key}: {number:g}" for key, number in decision.counts) or "none"
    tied = f"; tied: {', '.join(decision.tied)}" if decision.tied else ""
    parts.append(
        f"##### decision\n{decision.rule}: {answers} (votes: {votes}{tied}; {decision.received} of {decision.eligible} "
        f"counted){f', for the {decision.side} side' if decision.side else ''}; ended by: {transcript.stopped}"
    )
    return "\n\n".join(parts) + "\n"


def _turn(turn: Turn, before: tuple[Any, ...]) -> str:
    who = f"agent {turn.agent + 1}" if turn.agent >= 0 else "nobody of the cast"
    role = "" if turn.role == "debater" else f", {turn.role}"
    role += f", {turn.step}" if turn.role == "judge" and turn.step != "judge" else ""
    side = f", the {turn.side} side" if turn.side else ""
    heard = ", ".join(f"agent {agent + 1} in round {round}" for agent, round in turn.heard) or "nobody"
    lines = [f"##### round {turn.round}, {who}{role}{side}; hears {heard}"]
    messages = turn.request.messages
    if before and messages[: len(before)] == before:
        lines.append(f"(the {len(before)} messages of its last prompt, then)")
        messages = messages[len(before) :]
    lines += [f"--- {message.role}\n{message.content}" for message in messages]
    lines.append(f"--- reply, read as {turn.answer.value}{_stated(turn)}\n{turn.completion.text}")
    return "\n".join(lines)


def _stated(turn: Turn) -> str:
    told = "" if turn.confidence is None else f", confidence {turn.confidence.value}"
    stances = ", ".join(f"{key}: {word or 'no stance'}" for key, word in turn.stances or ())
    return f"{told}; {stances}" if stances else told


def main() -> None:
    """Write all files anew."""
    for _, path, text in scenes():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
