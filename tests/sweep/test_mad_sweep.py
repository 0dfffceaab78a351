"""MAD from the command line to its tables. Run: pytest tests/sweep/test_mad_sweep.py"""

import json
from pathlib import Path

import polars as pl
import pytest

import debate_local
from debate_local.analysis.decisions import redecide
from debate_local.analysis.readable import readable
from debate_local.analysis.verdicts import by_round, consensus, verdicts
from debate_local.cli import main
from debate_local.commands.rescore import rescored
from debate_local.sweep.store import Run, Sweep
from tests.sweep.planning import planner

pytestmark = pytest.mark.slow

ROWS = Path(__file__).parent / "rows" / "ciar.jsonl"
ON = ["engine=scripted", "task=ciar", f"task.path={ROWS}", "protocol=mad"]
TWO = ["engine.models.a={seed: 1}", "engine.models.b={seed: 2}"]
BOTH = "cast=[{model: a},{model: b}]"


planned, fault = planner(*ON)


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["protocol.level=4"], "protocol 'mad': protocol.level must be 0 (agree on all), 1 (on minor points)"),
        (["protocol.agents=5"], "protocol.agents must be from 2 to 4 (affirmative, negative, alternative, sceptic)"),
        (["protocol.base_answer=mine"], "protocol.base_answer must be one of: none, given"),
        (["protocol.adaptive_break=perhaps"], "protocol.adaptive_break must be true or false"),
        (["judge={model: judy}"], "judge.model is 'judy', which engine 'scripted' does not have"),
        ([*TWO, BOTH, "judge={model: c}"], "It has: a, b"),
        (["cast=[{},{},{}]"], "the judge is no member of it: judge={...}"),
        (["prompt.meta=${unknown}"], "unknown"),
        (["prompt.discriminative='{{ verdict }}'"], "template 'discriminative' uses verdict; it may use:"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_runs(overrides: list[str], says: str) -> None:
    assert says in fault(*overrides)


def test_a_schema_is_refused_where_the_engine_cannot_and_taken_where_it_can(tmp_path: Path) -> None:
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (tmp_path / name).write_text('{"model_type": "llama", "max_position_embeddings": 4096}')
    assert planned("protocol.schema=true").runs[0].calls == 10
    told = fault("engine=hf", f"engine.model={tmp_path}", "protocol.schema=true")
    assert "engine 'hf' cannot hold replies to a JSON schema" in told and "protocol.schema=false" in told


def test_its_controls_are_single_and_self_consistency_and_reflection_at_equal_calls() -> None:
    runs = planned("protocol.rounds=2").runs
    found = {control: run for run in runs for control, _ in run.controls}
    assert {name: run.cell.protocol.name for name, run in found.items()} == {
        "single": "single",
        "sc_calls": "self_consistency",
        "reflect": "reflection",
    }
    assert {name: run.calls for name, run in found.items()} == {"single": 2, "sc_calls": 7, "reflect": 7}


def test_cells_are_told_apart_by_the_model_of_their_judge() -> None:
    judges = "judge={model: a},{model: b},{model: b, persona: stern}"
    labels = [run.label for run in planned(*TWO, BOTH, judges, multirun=True).runs if run.asked]
    judged = [label.partition(" judge=")[2].split()[0] for label in labels]
    assert judged[:2] == ["a", "b"] and judged[2].startswith("b-")


def test_runs_in_which_nobody_judges_are_the_same_whoever_the_judge_is() -> None:
    runs = planned(*TWO, BOTH, "judge={model: a},{model: b}", multirun=True).runs
    # Beside a and b together, each of them alone.
    votes = ["self_consistency"] * 3
    assert sorted(run.cell.protocol.name for run in runs) == ["mad", "mad", "reflection", *votes, "single"]


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        ([*TWO, BOTH], ["the judge is model 'a', as agent 1 of 2, and not as the others"]),
        ([*TWO, BOTH, "judge={model: b}"], ["the judge is model 'b', as agent 2 of 2, and not as the others"]),
        ([*TWO, BOTH, "engine.models.c={seed: 3}", "judge={model: c}"], []),
        ([*TWO, "cast=[{model: a}]", "judge={model: b}"], []),
        # Two names for the same weights are one model.
        (["engine.models.a={seed: 1}", "engine.models.b={seed: 1}", BOTH], []),
        (
            [*TWO, BOTH, "protocol.agents=3", "engine.models.c={seed: 3}", "judge={model: c}"],
            ["is agents 1 and 3 of 3"],
        ),
        ([*TWO, BOTH, "protocol=debate", "protocol.agents=3"], ["model 'a' is agents 1 and 3 of 3: alone it has the"]),
        ([*TWO, BOTH, "protocol=debate", "protocol.agents=2", "decision=judge"], ["the judge is model 'a'"]),
        ([*TWO, BOTH, "protocol=debate", "protocol.agents=2"], []),
        (["sampling.temperature=0"], ["at temperature 0 the samples of a model are all alike"]),
        (["sampling.temperature=0", "controls=false"], []),
    ],
)
def test_plan_warns_of_partial_judges_majorities_and_samples_that_are_alike(
    overrides: list[str], told: list[str]
) -> None:
    notes = [note for note in planned(*overrides).notes if not note.startswith("data of")]
    assert len(notes) == len(told) and all(any(one in note for note in notes) for one in told)


SCRIPT = """
- match: 'Supported Side'
  reply:
    - '{"Whether there is a preference": "No", "Supported Side": "", "Reason": "r", "debate_answer": ""}'
    - '{"Whether there is a preference": "Yes", "Supported Side": "Negative", "Reason": "r", "debate_answer": "4"}'
    - 'The affirmative convinces me.'
    - '{"Supported Side": "Both", "Reason": "r", "debate_answer": "0.5"}'
- match: 'The debate is over'
  reply: ['{"Reason": "r", "debate_answer": "0.5"}', 'It is 3.', '{"Reason": "r", "debate_answer": "3 or 4"}']
- reply: ['Thus \\boxed{0.5}', 'I say \\boxed{4}', '{{ braces }} ##neg_ans## <|im_end|> \\boxed{19}', 'Who knows.']
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """60 debates of scripted speakers, decided in all ways."""
    folder = tmp_path_factory.mktemp("mad")
    (folder / "script.yaml").write_text(SCRIPT)
    rows = [json.loads(line) for line in ROWS.read_text().splitlines()]
    many = [{**row, "question": f"{n}. {row['question']}"} for n in range(20) for row in rows]
    (folder / "ciar.jsonl").write_text("\n".join(map(json.dumps, many)))
    given = [*ON[:2], f"task.path={folder}/ciar.jsonl", "protocol=mad", f"engine.replies={folder}/script.yaml"]
    sweep = debate_local.run([*given, "controls=false", f"output={folder / 'runs'}"])
    assert isinstance(sweep, Sweep)
    return sweep.runs[0]


def test_every_debate_tells_its_rounds_why_it_ended_by_which_step_and_for_whom(run: Run) -> None:
    for row in run.debates.iter_rows(named=True):
        turns = run.turns.filter(pl.col("item_id") == row["item_id"])
        judged = turns.filter(pl.col("role") == "judge")
        assert row["rule"] == judged["step"][-1] and row["answer_key"] == judged["answer_key"][-1]
        assert row["stopped"] == ("decided" if row["rule"] == "discriminative" else "rounds")
        assert row["rounds"] == judged["round"].max() + 1 and row["calls"] == len(turns)
        assert (row["side"] is None) or row["answer"] is not None
        assert judged["json_rule"].null_count() == 0
        speeches = turns.filter(pl.col("role") == "debater")
        assert speeches["side"].to_list() == ["affirmative", "negative"] * row["rounds"]
        assert speeches["json_rule"].null_count() == len(speeches)


def test_what_the_judge_did_is_counted(run: Run) -> None:
    told = verdicts(run)
    assert told is not None and told.debates == 60
    assert sum(told.broke.values()) + told.at_the_limit + told.undecided == 60
    assert sum(told.sides.values()) == 60 - told.undecided
    assert set(told.undecided_verdicts) >= {"no preference", "not one side", "none of the fields"}
    assert min(told.undecided, told.at_the_limit, *told.broke.values()) > 0
    assert f"undecided: {told.undecided};" in told.text


def test_the_score_is_known_after_every_round(run: Run) -> None:
    scores = by_round(run)
    assert set(scores) == {"affirmative", "negative", "judge"}
    held = {round: int((run.debates["rounds"] > round).sum()) for round in range(3)}
    for of in scores.values():
        assert {round: estimate.n for round, estimate in of.items()} == held
    assert set(consensus(run)) == {0, 1, 2} and all(0 <= share <= 1 for share in consensus(run).values())


def test_readable_replies_are_counted_by_role_round_and_length(run: Run) -> None:
    table = readable(run)
    assert table["replies"].sum() == len(run.turns)
    debaters, judge = table.filter(role="debater"), table.filter(role="judge")
    assert debaters["json"].null_count() == len(debaters) and judge["json"].null_count() == 0
    whole = run.turns.filter(pl.col("role") == "judge")["json_rule"] != "none of the fields"
    assert (judge["json"] * judge["replies"]).sum() == pytest.approx(whole.sum())
    assert table["confidences"].null_count() == len(table)


def test_it_is_shown(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(run.folder)]) == 0
    table = " ".join(capsys.readouterr().out.split())
    assert "affirmative, accuracy %" in table and "all agree %" in table and "won by:" in table
    assert main(["show", str(run.folder), "--item", "1"]) == 0
    debate = capsys.readouterr().out
    assert "agent 1 [the affirmative side]" in debate and "helper [judge, discriminative" in debate
    assert "independent answers" not in debate
    assert main(["show", str(run.folder), "--readable"]) == 0
    assert "judge (discriminative)" in capsys.readouterr().out


def test_it_is_read_again_and_decided_otherwise_from_what_is_stored(run: Run) -> None:
    again = rescored(run)
    assert (again.debates, again.turns, again.decisions, again.not_replayed) == (60, [], [], {})
    vote = redecide(run, "majority").debates
    assert vote["side"].null_count() == 60 and set(vote["rule"]) == {"majority"}


def test_several_models_are_one_switch_a_turn_whatever_the_number_of_debates(tmp_path: Path) -> None:
    models = [*TWO, "engine.models.c={seed: 3}", "engine.share=no", BOTH, "judge={model: c}", "controls=false"]
    for limit in (1, 3):
        given = [*ON, *models, "protocol.rounds=2", f"limit={limit}", f"output={tmp_path / str(limit)}"]
        sweep = debate_local.run(given)
        assert isinstance(sweep, Sweep)
        logs = [json.loads(line) for log in sweep.folder.glob("logs/*.jsonl") for line in log.read_text().splitlines()]
        opened = [event["opened"] for event in logs if event["event"] == "switch"]
        # Affirmative a, negative b, judge c, twice; the judge's last two requests follow each other.
        assert opened == [["b"], ["c"], ["a"], ["b"], ["c"]]


@pytest.mark.hazard("D01")
def test_a_record_that_outgrows_the_context_is_a_counted_outcome_and_max_tokens_stays_what_it_is(
    tmp_path: Path,
) -> None:
    given = [*ON, "engine.context_length=190", "sampling.max_tokens=20", "controls=false", f"output={tmp_path}"]
    sweep = debate_local.run([*given, "protocol.rounds=4", "protocol.adaptive_break=false"])
    assert isinstance(sweep, Sweep)
    (run,) = sweep.runs
    assert run.done and run.debates["too_long"].min() > 0
    late = run.turns.filter(finish_reason="too_long")
    assert late["round"].min() > 0 and late["answer"].null_count() == len(late)
