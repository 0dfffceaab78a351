"""A stored run can be decided otherwise: by votes without an engine, by asking through its cache."""

import json
from pathlib import Path

import polars as pl
import pytest

import debate_local
from debate_local.analysis.decisions import redecide
from debate_local.cli import main
from debate_local.commands.decide import table_of
from debate_local.core.voting import spelled
from debate_local.sweep.store import Run

pytestmark = pytest.mark.slow

ONE = ["engine=scripted", "task=arithmetic", "task.items=12", "protocol.agents=3", "controls=false"]
# Sums of few values, so that agents agree at times: each says how sure it is, as a function of its seed.
SCRIPT = "\n".join(
    [
        "- match: You are the judge",
        "  reply: 'Choice: A'",
        "- match: Rank these replies",
        "  reply: ['Ranking: A > B', 'I cannot say']",
        "- reply:",
        *(f'  - "The answer is {value}.\\nConfidence: 0.{sure}"' for value in (3, 4, 5) for sure in (3, 65, 85, 95)),
    ]
)


def run(tmp_path: Path, *overrides: str) -> Run:
    script = tmp_path / "script.yaml"
    script.write_text(SCRIPT)
    (stored,) = debate_local.run([*ONE, f"engine.replies={script}", f"output={tmp_path / 'runs'}", *overrides]).runs
    return stored


@pytest.fixture
def stored(tmp_path: Path) -> Run:
    return run(tmp_path, "protocol.confidence=verbal", "cast=[{logprobs: true}]")


def test_a_runs_own_decision_comes_out_as_it_was(stored: Run) -> None:
    again = redecide(stored, "majority")
    assert again.debates.equals(stored.debates)
    assert (again.changed, again.difference and again.difference.value) == (0, 0.0)


@pytest.mark.parametrize("rule", [*(rule for rule in spelled() if "SHARE" not in rule), "threshold:2/3"])
def test_a_stored_run_is_decided_as_it_would_have_been(tmp_path: Path, stored: Run, rule: str) -> None:
    again = redecide(stored, rule)
    asked = run(tmp_path, "protocol.confidence=verbal", "cast=[{logprobs: true}]", f"decision={rule}")
    # Counts are the sums of the same numbers.
    assert again.debates.equals(asked.debates)
    assert asked.debates["rule"].unique().to_list() == [rule]


def test_each_decision_is_kept_beside_the_run_which_stays_as_it_is(
    stored: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path.name: path.read_bytes() for path in stored.folder.iterdir() if path.is_file()}
    assert main(["decide", str(stored.folder), "decision=unanimity,weighted:rescaled"]) == 0
    assert {path.name: path.read_bytes() for path in stored.folder.iterdir() if path.is_file()} == before
    kept = pl.read_parquet(table_of(stored.folder, "weighted:rescaled"))
    assert kept.equals(redecide(stored, "weighted:rescaled").debates)
    assert kept.columns == stored.debates.columns
    told = capsys.readouterr().out
    assert "weighted:rescaled" in told and "unanimity" in told


def test_json_has_the_table(stored: Run, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["decide", str(stored.folder), "decision=none,threshold:2/3", "--json"]) == 0
    none, threshold = json.loads(capsys.readouterr().out)
    assert (none["rule"], threshold["rule"]) == ("none", "threshold:2/3")
    turns = stored.turns.filter(pl.col("round") == 1)
    assert none["score"]["value"] == pytest.approx(turns["score"].mean())


def test_decisions_that_ask_are_runs_of_their_own_that_send_only_what_they_ask(
    stored: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["decide", str(stored.folder), "decision=judge,ranked"]) == 0
    told = capsys.readouterr().out
    by_rule = {}
    for folder in stored.folder.parent.glob("arithmetic-*"):
        one = debate_local.load(folder)
        assert isinstance(one, Run)
        by_rule[one.record["decision"]] = one
    assert by_rule.keys() == {None, "judge", "ranked"}
    asked = sum(len(one.turns.filter(pl.col("step") != "")) for one in by_rule.values())
    assert asked > 0
    assert f"{2 * len(stored.turns) + asked} requests in these cells, {asked} sent to an engine now" in told
    judged = by_rule["judge"]
    assert judged.turns.filter(pl.col("step") == "").equals(stored.turns)
    # What is asked is in the cost.
    assert judged.debates["calls"].sum() == len(judged.turns) > len(stored.turns)


def test_a_judged_run_can_be_judged_by_ranking(tmp_path: Path) -> None:
    judged = run(tmp_path, "decision=judge")
    assert main(["decide", str(judged.folder), "decision=ranked"]) == 0
    assert main(["decide", str(judged.folder), "decision=majority"]) == 0


def test_a_run_that_lacks_what_a_decision_goes_by_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = run(tmp_path)
    for word, missing in (("weighted:verbal", "protocol.confidence=verbal"), ("weighted:logprob", "logprobs: true")):
        assert main(["decide", str(plain.folder), f"decision={word}"]) == 2
        assert missing in capsys.readouterr().err
    assert main(["decide", str(plain.folder), "decision=jury"]) == 2
    assert "there is no decision 'jury'" in capsys.readouterr().err
    assert main(["decide", str(plain.folder), "decision=judge", "--judge", "judy"]) == 2
    assert "judge.model is 'judy'" in capsys.readouterr().err
