"""`plan` says before the run what the run then does."""

import json
from pathlib import Path

import pytest

import debate_local
from debate_local.cli import main
from debate_local.sweep.compose import compose
from debate_local.sweep.config import config_folder
from debate_local.sweep.forecast import Forecast, forecast
from debate_local.sweep.plan import make_plan
from tests.sweep.test_run import sent

pytestmark = pytest.mark.slow

EXPERIMENTS = sorted(path.stem for path in (config_folder() / "experiment").glob("*.yaml"))
ROWS = Path(__file__).parent / "rows"


def foretold(overrides: list[str]) -> Forecast:
    cells, how = compose(overrides, multirun=True)
    return forecast(make_plan(cells), how)


def assert_foretold(overrides: list[str]) -> None:
    before = foretold(overrides)
    sweep = debate_local.run(overrides, multirun=True)
    assert before.exact
    # Whether debates will end early is not foretold: with such, the plan says how much it is at most.
    whole = {run.id for run in sweep.runs if set(run.debates["stopped"]) == {"rounds"}}
    assert len(whole) < len(sweep.runs) or before.new == sent(sweep)
    assert before.new >= sent(sweep)
    for run, said in zip(sweep.runs, before.runs, strict=True):
        assert said.run == run.id
        assert said.naive == len(run.turns) or (run.id not in whole and said.naive > len(run.turns))
    assert before.naive == sum(run.naive for run in before.runs)
    after = foretold(overrides)
    assert after.new == 0 and all(run.done for run in after.runs)


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_experiment_sends_what_its_plan_says(experiment: str, tmp_path: Path) -> None:
    # Shown by those only that show samples.
    samples = f"convincing={ROWS / 'strategyqa_samples.jsonl'}"
    on = [f"experiment={experiment}", "engine=scripted", f"data={ROWS}", samples]
    assert_foretold([*on, "limit=6", f"output={tmp_path}"])


@pytest.mark.parametrize(
    "overrides",
    [
        ["protocol.agents=1,2,3,4,5", "protocol.rounds=1,2,3,4", "controls=false"],
        ["protocol.agents=1,3", "sampling.temperature=0,1", "seed=0,1"],
        ["protocol=single,self_consistency,debate"],
        ["cast=[{persona: one}, {persona: two}]", "protocol.agents=2,4"],
        ["engine.seed=1,2"],
    ],
)
def test_sweeps_send_what_their_plan_says(overrides: list[str], tmp_path: Path) -> None:
    assert_foretold(["engine=scripted", "task=arithmetic", "limit=4", f"output={tmp_path}", *overrides])


def test_what_the_cache_holds_is_not_counted_as_new(tmp_path: Path) -> None:
    base = ["engine=scripted", "task=arithmetic", f"output={tmp_path}"]
    debate_local.run([*base, "limit=3"], multirun=True)
    before = foretold([*base, "limit=5"])
    assert before.cached == before.distinct * 3 // 5
    assert before.new == sent(debate_local.run([*base, "limit=5"], multirun=True))


def test_the_longest_prompt_grows_with_agents_and_rounds_and_overflow_is_told(tmp_path: Path) -> None:
    overrides = ["engine=scripted", "task=arithmetic", "limit=2", f"output={tmp_path}", "sampling.max_tokens=200"]
    small = foretold([*overrides, "protocol.agents=2", "controls=false"])
    large = foretold([*overrides, "protocol.agents=5", "protocol.rounds=4", "controls=false"])
    assert small.runs[0].longest_prompt < large.runs[0].longest_prompt < large.runs[0].longest_prompt_at_most
    tight = foretold([*overrides, "protocol.agents=5", "protocol.rounds=4", "engine.context_length=600"])
    assert any("from round" in warning and "context" in warning for warning in tight.warnings)


def test_identical_agents_at_temperature_0_are_told(tmp_path: Path) -> None:
    overrides = ["engine=scripted", "task=arithmetic", "limit=2", f"output={tmp_path}"]
    assert any("temperature 0" in w for w in foretold([*overrides, "sampling=greedy"]).warnings)
    assert not foretold(overrides).warnings
    assert not foretold([*overrides, "sampling=greedy", "cast=[{persona: a}, {persona: b}]"]).warnings


def test_plan_writes_nothing_and_prints_json_on_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [
        "plan",
        "-m",
        "engine=scripted",
        "task=arithmetic",
        "limit=2",
        "protocol.rounds=1,2",
        f"output={tmp_path}",
    ]
    assert main([*command, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["naive"] == sum(run["naive"] for run in told["runs"]) and told["exact"] is True
    assert main(command) == 0
    assert "to be sent" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


def test_a_large_plan_is_scaled_up_from_some_items_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("debate_local.sweep.forecast.PLAYED", 50)
    overrides = ["engine=scripted", "task=arithmetic", "limit=40", f"output={tmp_path}"]
    scaled = foretold(overrides)
    assert not scaled.exact
    assert scaled.new == sent(debate_local.run(overrides, multirun=True))


def test_a_small_kv_cache_and_the_licence_of_the_data_are_told(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"question": "Ada has 3 pens and buys 4. How many?", "answer": "3+4 #### 7"}\n' * 30)
    base = [f"task.path={rows}", "task=gsm8k", "engine=vllm", f"output={tmp_path / 'runs'}"]
    told = foretold([*base, "engine.kv_cache_gib=0.05"])
    assert any("tokens of KV cache" in warning for warning in told.warnings)
    assert told.licences == ("data of gsm8k: licence MIT", "model smollm2-135m-instruct: licence Apache-2.0")
    few = ["engine.kv_cache_gib=1", "limit=2", "sampling.max_tokens=64", "controls=false"]
    # The rows are all the same, which is told too.
    assert all(warning.startswith("data of gsm8k") for warning in foretold([*base, *few]).warnings)
    assert any("would not start now" in w for w in foretold([*base, "engine.kv_cache_gib=1000"]).warnings)
