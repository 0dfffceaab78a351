"""Shards of the items: together they store what one process stores, whatever happens to them on the way."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import debate_local
from debate_local.cli import main
from debate_local.sweep.compose import compose
from debate_local.sweep.frozen import FrozenPlan, freeze
from debate_local.sweep.options import OptionFault
from debate_local.sweep.plan import make_plan
from debate_local.sweep.shards import split_items
from debate_local.sweep.store import Sweep, load_sweep

pytestmark = pytest.mark.slow

SWEEP = [
    "engine=scripted",
    "task=arithmetic",
    "limit=10",
    "protocol.agents=2,3",
    "sampling.temperature=0.3,1.0",
    "max_samples=0",
]


def frozen(output: Path, shards: int, *overrides: str) -> FrozenPlan:
    cells, how = compose([*SWEEP, f"output={output}", *overrides], multirun=True)
    return freeze(make_plan(cells), how, ["a test"], shards)


def work(plan: FrozenPlan, *shards: str, retry_failed: bool = False) -> int:
    given = [word for shard in shards for word in ("--shard", shard)]
    return main(["work", str(plan.folder), *given, *(["--retry-failed"] if retry_failed else [])])


def files(sweep: Sweep) -> dict[str, bytes]:
    """The tables of all runs, byte by byte."""
    tables = ("debates.parquet", "turns.parquet")
    return {f"{run.id}/{name}": (run.folder / name).read_bytes() for run in sweep.runs for name in tables}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    return debate_local.run([*SWEEP, f"output={tmp_path_factory.mktemp('whole')}"], multirun=True)


@pytest.mark.parametrize("count", [1, 3, 10])
def test_shards_together_store_byte_for_byte_what_one_process_stores(
    count: int, undisturbed: Sweep, tmp_path: Path
) -> None:
    plan = frozen(tmp_path, count)
    for number in reversed(range(count)):
        assert work(plan, f"{number}/{count}") == 0
    sweep = load_sweep(plan.folder)
    assert files(sweep) == files(undisturbed)
    assert all(run.done for run in sweep.runs)
    assert not list(tmp_path.glob("*/parts")), "the parts are put together"


def test_one_worker_may_run_several_shards_with_one_engine(undisturbed: Sweep, tmp_path: Path) -> None:
    plan = frozen(tmp_path, 5)
    assert work(plan, "0/5", "3/5", "1/5") == 0
    assert not any(run.done for run in load_sweep(plan.folder).runs)
    assert work(plan, "2/5", "4/5") == 0
    assert files(load_sweep(plan.folder)) == files(undisturbed)
    engines = [
        json.loads(line) for log in plan.folder.glob("logs/events*") for line in log.open() if '"engine"' in line
    ]
    assert sum(event["event"] == "engine" for event in engines) == 2


def test_parts_can_be_read_before_the_run_is_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = frozen(tmp_path, 2)
    assert work(plan, "1/2") == 0
    run = load_sweep(plan.folder).runs[0]
    mine = plan.shards[1].items["arithmetic"]
    assert run.debates["item_id"].to_list() == list(mine)
    assert run.turns["item_id"].unique(maintain_order=True).to_list() == list(mine)
    assert main(["show", str(plan.folder)]) == 0
    assert "not finished" in capsys.readouterr().out


def test_items_are_dealt_by_expected_tokens_and_each_goes_to_one_shard() -> None:
    cells, _ = compose([*SWEEP, "limit=7"], multirun=True)
    plan = make_plan(cells)
    slices = split_items(plan, 3)
    dealt = [item for one in slices for item in one["arithmetic"]]
    assert sorted(dealt) == sorted(item.id for item in plan.runs[0].task.items)
    assert sorted(len(one["arithmetic"]) for one in slices) == [2, 2, 3]
    # Every slice keeps the order of the task, so that parts can be merged.
    order = [item.id for item in plan.runs[0].task.items]
    assert all(list(one["arithmetic"]) == [i for i in order if i in one["arithmetic"]] for one in slices)


def test_a_long_item_weighs_more_than_a_short_one(tmp_path: Path) -> None:
    rows = [{"question": "word " * size, "answer": "#### 1"} for size in (20_000, 10, 11, 12)]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    cells, _ = compose(["engine=scripted", "task=gsm8k", f"task.path={file}", "sampling.max_tokens=16"])
    sizes = [len(one["gsm8k"]) for one in split_items(make_plan(cells), 2)]
    assert sizes == [1, 3]


def test_cells_with_other_limits_share_their_items_shard(tmp_path: Path) -> None:
    overrides = ["engine=scripted", "task=arithmetic", "limit=2,6", "max_samples=0", f"output={tmp_path}"]
    cells, how = compose(overrides, multirun=True)
    plan = freeze(make_plan(cells), how, [], 6)
    for number in range(6):
        assert work(plan, f"{number}/6") == 0
    by_size = Counter(len(run.debates) for run in load_sweep(plan.folder).runs)
    assert set(by_size) == {2, 6} and all(run.done for run in load_sweep(plan.folder).runs)


@pytest.mark.hazard("C21")
def test_an_item_that_two_splits_hold_is_read_once(tmp_path: Path) -> None:
    assert work(frozen(tmp_path, 2), "0/2") == 0
    plan = frozen(tmp_path, 3)
    assert work(plan, "0/3", "1/3") == 0
    for run in load_sweep(plan.folder).runs:
        assert run.debates["item_id"].is_unique().all()
        assert run.turns.select("item_id", "round", "agent", "step").is_unique().all()
        assert set(run.turns["item_id"]) == set(run.debates["item_id"])


@pytest.mark.parametrize("how", ["cache=off", "cache=read", "max_live=1", "schedule=continuous"])
def test_shards_do_not_depend_on_how_they_are_run(how: str, undisturbed: Sweep, tmp_path: Path) -> None:
    plan = frozen(tmp_path, 2, how)
    assert [work(plan, f"{number}/2") for number in range(2)] == [0, 0]
    assert files(load_sweep(plan.folder)) == files(undisturbed)
    assert bool(list(tmp_path.glob("cache/*"))) == ("cache" not in how)


def test_each_engine_of_a_sweep_is_opened_once_a_shard(tmp_path: Path) -> None:
    several = ["engine.seed=1,2,3", "limit=6"]
    whole = debate_local.run([*SWEEP, *several, f"output={tmp_path / 'whole'}"], multirun=True)
    plan = frozen(tmp_path / "shards", 3, *several)
    assert [work(plan, f"{number}/3") for number in range(3)] == [0, 0, 0]
    assert files(load_sweep(plan.folder)) == files(whole)
    for log in plan.folder.glob("logs/events*"):
        engines = [event["facts"] for line in log.open() if (event := json.loads(line))["event"] == "engine"]
        assert len(engines) == 3


def test_more_items_and_seeds_after_shards_ask_only_for_what_is_new(tmp_path: Path) -> None:
    def sent_by(plan: FrozenPlan) -> int:
        ends = [json.loads(log.read_text().splitlines()[-1]) for log in plan.folder.glob("logs/events*")]
        return sum(end["sent"] for end in ends)

    first, more = frozen(tmp_path, 2), frozen(tmp_path, 3, "limit=14", "seed=0,1")
    for plan, count in ((first, 2), (more, 3)):
        assert [work(plan, f"{number}/{count}") for number in range(count)] == [0] * count
    fresh = frozen(tmp_path / "fresh", 3, "limit=14", "seed=0,1")
    assert [work(fresh, f"{number}/3") for number in range(3)] == [0, 0, 0]
    assert files(load_sweep(more.folder)) == files(load_sweep(fresh.folder))
    assert sent_by(more) == sent_by(fresh) - sent_by(first)


@pytest.mark.parametrize("count", [0, -1, 11])
def test_a_wrong_number_of_shards_is_refused_with_the_right_ones(count: int, tmp_path: Path) -> None:
    with pytest.raises(OptionFault, match=rf"shards={count} .* at most one for each of its 10 items"):
        frozen(tmp_path, count)


@pytest.mark.parametrize("name", ["4/4", "x", "1 of 4", "0/3"])
def test_a_shard_that_there_is_not_is_refused_with_those_that_there_are(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = frozen(tmp_path, 4)
    assert work(plan, name) == 2
    told = capsys.readouterr().err
    assert ("I from 0 to N - 1" in told) or ("its splits: 4" in told)


def test_a_shard_that_is_run_already_is_refused_and_others_are_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = frozen(tmp_path, 2, "engine.latency=0.2")
    first = worker(plan, "0/2")
    try:
        wait_for(lambda: list(tmp_path.glob("cache/*/*.live")), first)
        assert work(plan, "0/2") == 2
        assert f"process {first.pid}" in capsys.readouterr().err
        assert work(plan, "1/2") == 0
    finally:
        first.kill()
        first.wait()


@pytest.mark.parametrize("name", ["SIGTERM", "SIGUSR1", "SIGUSR2", "SIGHUP"])
@pytest.mark.hazard("C14")
def test_a_worker_that_is_told_to_stop_keeps_what_was_answered_and_says_so(
    name: str, undisturbed: Sweep, tmp_path: Path
) -> None:
    plan = frozen(tmp_path, 2, "engine.latency=0.3", "max_live=4")
    process = worker(plan, "0/2")
    wait_for(lambda: list(tmp_path.glob("cache/*/*.live")), process)
    time.sleep(0.4)
    process.send_signal(getattr(signal, name))
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130, told
    assert not list(tmp_path.glob("cache/*/*.live")), "the part of the cache is sealed"
    (log,) = plan.folder.glob("logs/events*")
    last = json.loads(log.read_text().splitlines()[-1])
    assert last["event"] == "end" and name in last["stopped"]
    # The same sweep, with an engine that answers at once.
    assert main(["resume", str(frozen(tmp_path, 2).folder)]) == 0
    assert files(load_sweep(plan.folder)) == files(undisturbed)


def worker(plan: FrozenPlan, shard: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "debate_local.cli", "work", str(plan.folder), "--shard", shard]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ})


def wait_for(there: Callable[[], object], process: subprocess.Popen[str], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not there():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.hazard("C19")
def test_a_part_that_was_torn_is_made_again(undisturbed: Sweep, tmp_path: Path) -> None:
    plan = frozen(tmp_path, 2)
    assert work(plan, "0/2") == 0
    part = next(tmp_path.glob("*/parts/*/*/turns.parquet"))
    part.write_bytes(part.read_bytes()[:-100])
    assert work(plan, "1/2") == 0
    assert not all(run.done for run in load_sweep(plan.folder).runs)
    assert main(["resume", str(plan.folder)]) == 0
    assert files(load_sweep(plan.folder)) == files(undisturbed)


def test_a_finished_run_whose_table_was_torn_is_made_again(undisturbed: Sweep, tmp_path: Path) -> None:
    sweep = debate_local.run([*SWEEP, f"output={tmp_path}"], multirun=True)
    torn = sweep.runs[0].folder / "debates.parquet"
    torn.write_bytes(torn.read_bytes()[:50])
    assert files(debate_local.run([*SWEEP, f"output={tmp_path}"], multirun=True)) == files(undisturbed)
