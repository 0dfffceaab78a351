"""Options of debates and decisions, from a person's words to runs and their controls."""

import json
from pathlib import Path

import pytest

import debate_local
from debate_local.sweep.plan import make_plan
from tests.sweep.planning import planner

pytestmark = pytest.mark.slow

ON = ["engine=scripted", "task=arithmetic", "task.items=3"]


planned, fault = planner(*ON)


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["protocol.topology=stars"], "protocol.topology must be one of: full, ring, star"),
        (["protocol.topology=graph", "protocol.graph={1: [9]}"], "protocol.graph names agent 9; the agents are 1 to 3"),
        (["protocol.topology=graph", "protocol.graph={}"], "protocol.graph says of no agent whom it hears"),
        (["protocol.topology=graph", "protocol.graph={1: 2}"], "protocol.graph.1 must be a list, got 2"),
        (["protocol.topology=graph", "protocol.graph=gone.yaml"], "protocol.graph=gone.yaml: the file cannot be read"),
        (["cast=[{},{},{},{}]"], "the cast has 4 members and the debate 3 agents"),
        (["cast=[{persona: ' '}]"], "cast[0].persona has no text; leave it out for an agent without a persona"),
        (["protocol.peer_tokens=8"], "protocol.peer_tokens=8 leaves too little of a reply: give at least 32"),
        (["protocol.stop=threshold"], "stop=threshold needs the share of agents that must agree"),
        (["protocol.evidence=correct"], "no item of task 'arithmetic' has such evidence"),
        (["decision=jury"], "there is no decision 'jury'"),
        (["decision=plurality"], "there is no decision 'plurality'"),
        (["decision=weighted:verbal"], "add protocol.confidence=verbal"),
        (["decision=weighted:logprob"], "cast=[{logprobs: true}]"),
        (["judge=me"], "judge must be a mapping, such as judge={model: me}; got 'me'"),
        (["judge={modl: x}"], "judge has no option 'modl'. Did you mean 'model'?"),
        (["decision=judge", "judge={model: judy}"], "judge.model is 'judy', which engine 'scripted' does not have"),
        (["summariser={model: sam}"], "summariser.model is 'sam', which engine 'scripted' does not have"),
        (["protocol=roles", "protocol.roles=[{name: Ada}]"], "protocol.roles[0].instructions must be a text"),
        (["prompt.judge=x"], "no template is called judge"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_runs(overrides: list[str], says: str) -> None:
    assert says in fault(*overrides)


def test_a_graph_or_a_cast_of_roles_may_be_kept_in_a_file_and_the_run_is_what_the_file_holds(tmp_path: Path) -> None:
    graph, roles = tmp_path / "who hears whom.yaml", tmp_path / "roles.json"
    graph.write_text("1: [2]\n2: [1, 3]\n3: []\n")
    roles.write_text(json.dumps([{"name": "Ada", "instructions": "Add."}, {"name": "Ben", "instructions": "Build."}]))
    by_file = planned("protocol.topology=graph", f"protocol.graph='{graph}'", "controls=false").runs[0]
    by_hand = planned("protocol.topology=graph", "protocol.graph={1: [2], 2: [1, 3], 3: []}", "controls=false").runs[0]
    assert by_file.cell.protocol.options["graph"] == {"1": [2], "2": [1, 3], "3": []}
    assert by_file.id == by_hand.id
    (of_roles,) = planned("protocol=roles", f"protocol.roles={roles}", "controls=false").runs
    assert [role["name"] for role in of_roles.cell.protocol.options["roles"]] == ["Ada", "Ben"]
    roles.write_text("[")
    assert "the file cannot be read" in fault("protocol=roles", f"protocol.roles={roles}")


def test_topologies_and_decisions_are_swept_by_their_words() -> None:
    words = ["protocol.agents=4", "protocol.topology=ring,nearest:3,random:0.4", "decision=majority,trajectory:later"]
    plan = planned(*words, "controls=false", multirun=True)
    assert [run.label for run in plan.runs] == [
        f"debate agents=4 rounds=2 topology={topology} decision={decision}"
        for topology in ("ring", "nearest:3", "random:0.4")
        for decision in ("majority", "trajectory:later")
    ]
    assert len({run.id for run in plan.runs}) == 6


def test_controls_are_asked_what_the_debate_is_asked_first() -> None:
    plan = planned("protocol.cot=true", "protocol.confidence=verbal", "prompt.cot='Think hard, please.'")
    debate, *controls = plan.runs
    first = next(debate.debate(debate.task.items[0]))[0].messages
    assert "Think hard, please." in first[0].content
    assert "how confident you are" in first[0].content
    assert [control.cell.protocol.name for control in controls] == [
        "single", "self_consistency", "self_consistency", "debate"
    ]  # fmt: skip
    for control in controls:
        assert next(control.debate(control.task.items[0]))[0].messages == first


@pytest.mark.parametrize(
    ("decision", "of_votes", "of_reflect"),
    [
        ("plurality:abstain", "plurality:abstain", "plurality:abstain"),
        # A vote without debate needs no judge, and what is scored each is `single` already.
        ("judge", None, "judge"),
        ("none", None, "none"),
        ("null", None, None),
    ],
)
def test_controls_are_decided_as_is_fair(decision: str, of_votes: str | None, of_reflect: str | None) -> None:
    plan = planned(f"decision={decision}")
    by_role = {role: run.cell.decision for run in plan.runs for role, _ in run.controls}
    assert by_role == {"single": None, "vote0": of_votes, "sc_calls": of_votes, "reflect": of_reflect}


def test_a_judges_calls_are_paid_for_by_its_control() -> None:
    plan = planned("decision=ranked")
    (control,) = [run for run in plan.runs if "sc_calls" in dict(run.controls)]
    assert plan.runs[0].calls == control.calls == 9


def test_a_judged_run_is_stored_with_its_judge_and_can_be_planned_from_its_record(tmp_path: Path) -> None:
    overrides = [
        *ON,
        "decision=judge",
        "judge={persona: You are fair., sampling: {temperature: 0.0}}",
        "controls=false",
    ]
    (run,) = debate_local.run([*overrides, f"output={tmp_path}"]).runs
    assert run.record["decision"] == "judge"
    assert run.record["judge"]["persona"] == "You are fair."
    assert "judge" in run.record["templates"]
    judged = run.turns.filter(run.turns["role"] == "judge")
    assert set(judged["temperature"]) <= {0.0}
    from debate_local.sweep.cells import cell_of

    assert make_plan([cell_of(run.record)]).runs[0].id == run.id
    plain = planned("controls=false").runs[0]
    assert plain.id != run.id


def test_confidences_and_answer_probabilities_are_stored_by_turn(tmp_path: Path) -> None:
    script = tmp_path / "script.yaml"
    script.write_text(
        "- reply: ['The answer is 7.\\nConfidence: 85%', 'The answer is 7.', 'The answer is 7.\\nConfidence: 0']\n"
    )
    options = ["protocol.confidence=verbal", "cast=[{logprobs: true}]", "controls=false", "task.items=8"]
    (run,) = debate_local.run([*ON, f"engine.replies={script}", *options, f"output={tmp_path}"]).runs
    assert set(run.turns["confidence"]) == {0.85, 0.0, None}
    assert set(run.turns["answer"]) == {"7"}
    assert run.turns["answer_logprob"].null_count() == 0
    assert all(value <= 0 for value in run.turns["answer_logprob"])
