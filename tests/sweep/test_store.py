"""Run folders are read back as they were written, or refused with what to do."""

import json
from pathlib import Path

import pytest

import debate_local
from debate_local.cli import main
from debate_local.sweep.store import DEBATE_COLUMNS, TURN_COLUMNS, StoreFault, Sweep

ONE = ["engine=scripted", "task=arithmetic", "limit=4", "protocol.agents=2", "controls=false"]


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    return debate_local.run([*ONE, f"output={tmp_path}"])


def test_the_tables_have_the_documented_columns(sweep: Sweep) -> None:
    (run,) = sweep.runs
    assert run.debates.columns == list(DEBATE_COLUMNS)
    assert run.turns.columns == list(TURN_COLUMNS)
    assert len(run.debates) == 4
    assert len(run.turns) == 4 * 2 * 2


def test_a_turn_stores_who_was_heard_and_only_the_new_messages(sweep: Sweep) -> None:
    turns = sweep.runs[0].turns
    later = turns.filter((turns["round"] == 1) & (turns["agent"] == 0)).row(0, named=True)
    assert later["heard"] == ["1.0"]
    assert later["history"] == 2
    (prompt,) = json.loads(later["prompt"])
    assert prompt["role"] == "user"
    peer = turns.filter((turns["item_id"] == later["item_id"]) & (turns["round"] == 0) & (turns["agent"] == 1))
    assert peer["text"][0] in prompt["content"]


def test_the_span_of_an_answer_is_where_it_was_read(sweep: Sweep) -> None:
    turns = sweep.runs[0].turns.filter(sweep.runs[0].turns["answer"].is_not_null())
    assert len(turns)
    for turn in turns.iter_rows(named=True):
        assert turn["text"][turn["answer_start"] : turn["answer_end"]].strip()


def test_a_run_of_a_newer_schema_is_refused_with_what_to_do(sweep: Sweep) -> None:
    path = sweep.runs[0].folder / "run.json"
    record = json.loads(path.read_text())
    record["schema_version"] = 999
    path.write_text(json.dumps(record))
    with pytest.raises(StoreFault, match="schema version 999; this debate-local reads up to 1"):
        debate_local.load(path.parent)


def test_a_folder_that_is_no_run_is_refused_and_near_ones_are_named(sweep: Sweep) -> None:
    run = sweep.runs[0].folder
    with pytest.raises(StoreFault, match=run.name):
        debate_local.load(run.parent / "nothing")


def test_a_finished_run_is_not_written_again(sweep: Sweep, tmp_path: Path) -> None:
    files = {path: path.stat().st_mtime_ns for path in sweep.runs[0].folder.iterdir()}
    debate_local.run([*ONE, f"output={tmp_path}"])
    assert {path: path.stat().st_mtime_ns for path in sweep.runs[0].folder.iterdir()} == files


def test_run_json_holds_what_was_run(sweep: Sweep) -> None:
    record = sweep.runs[0].record
    assert record["protocol"].items() >= {"name": "debate", "agents": 2, "rounds": 2, "topology": "full"}.items()
    assert record["templates"].keys() >= {"debate", "verify"}
    assert record["metric"]["name"] == "accuracy"
    assert record["engine_identity"]["default"]["kind"] == "scripted"
    assert record["versions"]["debate-local"] == debate_local.__version__
    assert record["example_prompt"].endswith(record["answer_format"])


@pytest.mark.hazard("B10", "B24")
def test_how_a_reply_ended_is_stored_by_turn(tmp_path: Path) -> None:
    script = tmp_path / "replies.yaml"
    script.write_text("- reply: [The answer is 7. Question, The answer is by no means clear to me, Seven]\n")
    cut = ["sampling.max_tokens=6", "sampling.stop=[Question]"]
    scripted = ["engine=scripted", f"engine.replies={script}"]
    (run,) = debate_local.run(
        [*scripted, *cut, "task=arithmetic", "limit=20", "controls=false", f"output={tmp_path}"]
    ).runs
    ends = {(turn["finish_reason"], turn["stop_reason"], turn["text"][:5]) for turn in run.turns.iter_rows(named=True)}
    assert ends == {("stop", "Question", "The a"), ("length", None, "The a"), ("stop", None, "Seven")}
    assert run.debates["truncated"].sum() == (run.turns["finish_reason"] == "length").sum()


def test_show_prints_a_transcript_that_a_person_can_follow(sweep: Sweep, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(sweep.runs[0].folder), "--item", "1", "--prompts"]) == 0
    shown = capsys.readouterr().out
    for part in (
        "round 0 (independent answers)",
        "round 1",
        "agent 1",
        "heard: agent 2 (round 0)",
        "target:",
        "votes:",
    ):
        assert part in shown


def test_show_of_an_unknown_item_says_which_there_are(sweep: Sweep, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(sweep.runs[0].folder), "--item", "99"]) == 2
    assert "it has 4 (1 to 4)" in capsys.readouterr().err


def test_reasoning_is_counted_never_shown_to_peers_and_a_cut_off_thought_is_no_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "replies.yaml"
    script.write_text(
        "- match: latest replies\n  reply: The answer is 7.\n"
        "- reply: [<think>secret words of mine</think>The answer is 7., <think>secret words without end]\n"
    )
    sweep = debate_local.run(
        ["engine=scripted", f"engine.replies={script}", "task=arithmetic", "limit=6", f"output={tmp_path}"]
    )
    assert main(["show", str(sweep.folder)]) == 0
    shown = capsys.readouterr().out
    assert "share of reasoning in tokens out: debate" in shown and "thoughts cut off before any text" in shown
    turns = sweep.runs[0].turns
    assert not turns["prompt"].str.contains("secret").any()
    thoughts = turns.filter(turns["reasoning"].is_not_null())
    cut = thoughts.filter(thoughts["text"] == "")
    assert 0 < len(cut) < len(thoughts)
    assert cut["answer"].null_count() == len(cut)
    debates = sweep.runs[0].debates
    assert debates["cut_thoughts"].sum() == len(cut)
    assert 0 < debates["reasoning_tokens"].sum() < debates["generated_tokens"].sum()
