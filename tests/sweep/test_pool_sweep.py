"""Sweeps with several models: on the scripted engine, and one on real vLLM."""

import json
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import psutil
import pytest

import debate_local
from debate_local.cli import main
from debate_local.sweep.cells import cell_of
from debate_local.sweep.compose import compose
from debate_local.sweep.forecast import forecast
from debate_local.sweep.plan import make_plan
from debate_local.sweep.store import Sweep
from tests.sweep.test_names import fault
from tests.sweep.test_run import assert_equal_tables, sent

pytestmark = pytest.mark.slow

BASE = ["engine=scripted", "task=arithmetic", "task.items=40", "limit=6"]
TWO = ["engine.models.a={seed: 1}", "engine.models.b={seed: 2, accuracy: 0.9}"]
BOTH = "cast=[{model: a}, {model: b}]"


def run(output: Path, *overrides: str, multirun: bool = False) -> Sweep:
    return debate_local.run([*BASE, f"output={output}", *overrides], multirun)


def events(sweep: Sweep, kind: str) -> list[dict[str, Any]]:
    """The events of one kind in a sweep's last start."""
    logs = sorted((sweep.folder / "logs").glob("events-*.jsonl"), key=lambda path: path.stat().st_mtime_ns)
    found = [json.loads(line) for line in logs[-1].read_text().splitlines()]
    return [event for event in found if event["event"] == kind]


# Running


def test_a_line_for_models_of_another_engine_runs_on_the_scripted_one(tmp_path: Path) -> None:
    named = ["engine.models.a=Qwen/Qwen3-8B", "engine.models.b=/models/mine"]
    (one,) = run(tmp_path, *named, BOTH, "controls=false", "protocol.rounds=1").runs
    assert one.record["engine"]["models"] == {"a": {"model": "Qwen/Qwen3-8B"}, "b": {"model": "/models/mine"}}
    # Another name is another model, and none of them was asked: nobody is to cite it.
    identity = one.record["engine_identity"]
    assert identity["a"]["model"] != identity["b"]["model"] and one.record["models"] == {}
    said = {model: set(part["text"]) for (model,), part in one.turns.group_by("model")}
    assert said["a"] != said["b"]


def test_agents_are_played_by_the_models_they_name(tmp_path: Path) -> None:
    turns = run(tmp_path, *TWO, BOTH, "controls=false").runs[0].turns
    assert turns.group_by("agent").agg(pl.col("model").unique()).sort("agent").rows() == [
        (0, ["a"]),
        (1, ["b"]),
        (2, ["a"]),
    ]


def test_models_of_a_pool_and_models_alone_are_one_record(tmp_path: Path) -> None:
    # As an agent's seed does not know who the others are, a's and b's first rounds are those of runs alone.
    alone = ["protocol=self_consistency", "protocol.samples=4"]
    for seed, accuracy in ((1, 0.6), (2, 0.9)):
        assert sent(run(tmp_path, f"engine.seed={seed}", f"engine.accuracy={accuracy}", *alone)) == 24
    pooled = run(tmp_path, *TWO, BOTH, *alone)
    assert sent(pooled) == 0 and pooled.runs[0].done
    # And the other way round: what b says in a debate it need not say again.
    fresh = tmp_path / "fresh"
    run(fresh, *TWO, "cast=[{model: b}]", *alone)
    assert sent(run(fresh, "engine.seed=2", "engine.accuracy=0.9", *alone)) == 0


@pytest.mark.parametrize("how", ["engine.share=no", "engine.share=yes", "schedule=continuous", "max_live=2"])
def test_tables_do_not_depend_on_which_engines_are_open(tmp_path: Path, how: str) -> None:
    plain = run(tmp_path / "plain", *TWO, BOTH)
    assert_equal_tables(plain, run(tmp_path / "other", *TWO, BOTH, "engine.latency=0.0005", how))


def test_one_at_a_time_is_one_switch_a_wave_over_all_cells(tmp_path: Path) -> None:
    sweep = run(tmp_path, *TWO, BOTH, "engine.share=no", "protocol.agents=2,3", "protocol.rounds=3", multirun=True)
    assert len(sweep.runs) > 2
    switches = events(sweep, "switch")
    assert [(event["closed"], event["opened"]) for event in switches] == [
        (["a"], ["b"]),
        (["b"], ["a"]),
        (["a"], ["b"]),
    ]
    (end,) = events(sweep, "engine")
    assert end["facts"]["switches"] == 3 and end["facts"]["models"].keys() == {"a", "b"}


def test_a_switch_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", *BASE, f"output={tmp_path}", *TWO, BOTH, "engine.share=no", "controls=false"]) == 0
    said = capsys.readouterr().err
    assert "loading scripted (a) ..." in said
    assert "switch: a closed; loading b ..." in said and "switch: b closed; loading a ..." in said


def test_a_model_that_dies_is_started_again_with_its_pool(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", *TWO, BOTH)
    mortal = ["engine.models.a={seed: 1, dead_after: 20}", "engine.models.b={seed: 2, accuracy: 0.9}"]
    mended = run(tmp_path / "mended", *mortal, BOTH, "engine.share=no")
    assert_equal_tables(whole, mended)
    assert "model a: the scripted engine died" in events(mended, "restart")[0]["reason"]


def test_plan_counts_what_the_run_sends(tmp_path: Path) -> None:
    overrides = [*BASE, *TWO, BOTH, f"output={tmp_path}"]
    cells, how = compose(overrides)
    expected = forecast(make_plan(cells), how)
    assert 0 < expected.new < expected.naive
    assert sent(debate_local.run(overrides)) == expected.new


def test_a_run_with_a_pool_is_planned_again_from_its_record(tmp_path: Path) -> None:
    (stored,) = run(tmp_path, *TWO, BOTH, "controls=false").runs
    (planned,) = make_plan([cell_of(stored.record)]).runs
    assert planned.id == stored.id


def test_cells_that_differ_in_their_models_are_told_apart_in_tables(tmp_path: Path) -> None:
    casts = "cast=[{model: a}],[{model: b}],[{model: a}, {model: b}]"
    sweep = run(tmp_path, *TWO, casts, "controls=false", multirun=True)
    labels = [run.label for run in sweep.runs]
    assert [label.partition("model=")[2] for label in labels] == ["a", "b", "a+b"]


# What is typed


def test_keys_of_a_mapping_are_typed_without_a_plus(tmp_path: Path) -> None:
    typed = [
        *("engine.models.a=one", "engine.models.b.model=two", "engine.models.b.dtype=float32"),
        *("engine.adapters.x=/somewhere", "engine.extra.block_size=32"),
    ]
    for overrides in (typed, [f"+{override}" for override in typed]):
        ((cell,), _) = compose(["engine=vllm", *overrides])
        assert cell.engine.options["models"] == {"a": {"model": "one"}, "b": {"model": "two", "dtype": "float32"}}
        assert cell.engine.options["adapters"] == {"x": "/somewhere"}
        assert cell.engine.options["extra"] == {"block_size": 32}
    # The command line takes another way to Hydra.
    told = [*TWO, BOTH, "engine.models.b.accuracy=0.5", f"output={tmp_path}"]
    assert main(["run", *BASE, *told]) == main(["run", "-m", *BASE, *told]) == 0


def test_models_may_be_swept() -> None:
    cells, _ = compose(["engine=vllm", "engine.models.a=one", "engine.models.b=two,three"], multirun=True)
    assert [cell.engine.options["models"]["b"]["model"] for cell in cells] == ["two", "three"]


def test_yes_and_no_are_words_even_where_yaml_makes_them_booleans() -> None:
    for typed in ("yes", "true"):
        ((cell,), _) = compose(["engine=scripted", f"engine.share={typed}"])
        assert cell.engine.options["share"] == "yes"


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["engine.models.a={sed: 1}"], "engine.models.a: engine 'scripted' has no option 'sed' (a model's name may"),
        (["engine.models.a={sed: 1}"], "Did you mean 'seed'? Its options: replies, model, seed"),
        (["engine.models.a={models: {}}"], "has no option 'models'"),
        (["engine.models.a={seed: x}"], "engine.models.a.seed must be a whole number, got 'x'"),
        (["engine=vllm", "engine.models.a=3"], "must be the engine's option `model` or a mapping of the options that"),
        (["engine=vllm", "engine.models.qwen2.5=x"], "has no option '5' (a model's name may hold no dot)"),
        (["engine.models={a.b: {seed: 1}}"], "a model's name may not be empty and may hold no dot, got 'a.b'"),
        (["engine.models=3"], "engine.models must be a mapping, got 3"),
        (["engine.share=maybe"], "engine.share must be one of: auto, yes, no, got 'maybe'"),
        (
            ["engine=vllm", "engine.models.a.dtype=float32", "engine.models.a=one"],
            "engine.models.a=one and engine.models.a.dtype=... undo each other: a mapping is needed. Give a model of a "
            "pool as engine.models.a.model=one",
        ),
        (["engine.modles.a=x"], "engine 'scripted' has no option 'modles'. Did you mean 'models'?"),
    ],
)
def test_a_wrong_name_or_value_is_refused_with_what_is_valid(overrides: list[str], says: str) -> None:
    assert says in fault(*overrides)


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (
            [],
            "cast[0].model is 'default', which engine 'scripted' does not have. It has: a, b; name one for each agent",
        ),
        (
            ["cast=[{model: a}, {model: c}]"],
            "cast[1].model is 'c', which engine 'scripted' does not have. It has: a, b",
        ),
        (
            ["engine.models.b.accuracy=3", BOTH],
            "engine.models.b: engine option accuracy must be a share between 0 and 1",
        ),
    ],
)
def test_a_cast_that_the_pool_cannot_play_is_refused_before_anything_is_written(
    tmp_path: Path, overrides: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *BASE, *TWO, f"output={tmp_path}", *overrides]) == 2
    assert says in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_models_of_one_name_and_set_of_options_are_one_engine(tmp_path: Path) -> None:
    same = ["engine.models.a={seed: 1}", "engine.models.b={seed: 1}", "engine.models.c={seed: 2}"]
    sweep = run(tmp_path, *same, "cast=[{model: a}, {model: b}, {model: c}]", "engine.share=no", "controls=false")
    (end,) = events(sweep, "engine")
    assert end["facts"]["models"].keys() == {"a, b", "c"}


def test_an_engine_with_models_of_its_own_needs_no_pool() -> None:
    assert "share" not in compose(["engine=openai", "engine.models.a=served"])[0][0].engine.options


# For real


def _vllm_processes() -> set[str]:
    """The command lines of vLLM's processes below this one; Python's own resource tracker holds nothing and stays."""
    found = {" ".join([process.name(), *process.cmdline()]) for process in psutil.Process().children(recursive=True)}
    return {line for line in found if "vllm" in line.lower() and "resource_tracker" not in line}


@pytest.mark.hazard("B14")
@pytest.mark.vllm
@pytest.mark.slow
def test_two_models_that_take_turns_on_real_vllm_are_two_loads_and_leave_nothing(tmp_path: Path) -> None:
    from debate_local.engines.weights import BUILTIN, WeightsMissing, resolve

    try:
        source = Path(resolve(BUILTIN).path)
    except WeightsMissing as error:
        pytest.skip(str(error))
    # Another model by its identity, with the same big file.
    other = tmp_path / "other"
    shutil.copytree(source, other, ignore=shutil.ignore_patterns("*.safetensors"))
    for file in source.glob("*.safetensors"):
        (other / file.name).symlink_to(file)
    config = json.loads((other / "generation_config.json").read_text())
    (other / "generation_config.json").write_text(json.dumps({**config, "repetition_penalty": 1.3}))

    before, free = _vllm_processes(), psutil.virtual_memory().available
    sweep = debate_local.run([
        *("task=arithmetic", "limit=2", "protocol.agents=2", "protocol.rounds=1", "controls=false"),
        *("engine=vllm", f"engine.models.a={BUILTIN}", f"engine.models.b={other}", "engine.share=no", BOTH),
        *("engine.max_model_len=1024", "engine.kv_cache_gib=0.25", "sampling.max_tokens=6"),
        f"output={tmp_path / 'runs'}",
    ])  # fmt: skip
    assert _vllm_processes() == before
    (stored,) = sweep.runs
    assert stored.done and set(stored.turns["model"]) == {"a", "b"}
    assert (stored.turns["generated_tokens"] > 0).all()
    assert stored.record["engine_identity"]["a"] != stored.record["engine_identity"]["b"]
    (loading,), (switch,), (end,) = (events(sweep, kind) for kind in ("loading", "switch", "engine"))
    assert (loading["models"], switch["closed"], switch["opened"]) == (["a"], ["a"], ["b"])
    assert [facts["load_seconds"] > 0 for facts in end["facts"]["models"].values()] == [True, True]
    assert sorted(path.name[-6:] for path in (sweep.folder / "logs").glob("engine-*.log")) == ["-a.log", "-b.log"]
    gib = [size / 2**30 for size in (free, switch["free_before"], switch["free_after"])]
    gib.append(psutil.virtual_memory().available / 2**30)
    print("GiB free before, with a, between, after: " + ", ".join(f"{size:.2f}" for size in gib))
