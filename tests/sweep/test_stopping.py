"""A sweep that is to stop in the morning, or after so many tokens, is a fair prefix for every cell."""

import json
import time
from datetime import datetime, timedelta
from pathlib import Path

import pytest

import debate_local
from debate_local.cli import main
from debate_local.sweep.frozen import FrozenPlan, freeze
from debate_local.sweep.stopping import Budget, Stop, stop_from
from debate_local.sweep.store import Sweep, load_sweep
from tests.sweep.test_run import assert_equal_tables, sent
from tests.sweep.test_shards import SWEEP as SHARDED
from tests.sweep.test_shards import frozen

pytestmark = pytest.mark.slow

SWEEP = ["engine=scripted", "task=arithmetic", "limit=40", "protocol.agents=2,3", "max_live=8"]


def stopped(output: Path, *overrides: str) -> Sweep:
    return debate_local.run([*SWEEP, f"output={output}", *overrides], multirun=True)


def test_a_sweep_stopped_by_tokens_holds_the_same_first_items_for_every_cell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "-m", *SWEEP, f"output={tmp_path}", "stop.tokens=1K"]) == 0
    told = capsys.readouterr()
    (folder,) = tmp_path.glob("sweeps/*")
    sweep = load_sweep(folder)
    items = [run.debates["item_id"].to_list() for run in sweep.runs]
    assert 0 < len(items[0]) < 40 and all(one == items[0] for one in items)
    assert not any(run.done for run in sweep.runs)
    assert f"the first {len(items[0])} of 40 items" in told.out and "debate-local resume" in told.out
    whole = debate_local.run([*SWEEP, f"output={tmp_path / 'whole'}"], multirun=True)
    assert items[0] == whole.runs[0].debates["item_id"].to_list()[: len(items[0])]
    before = sent(sweep)
    assert main(["resume", str(folder)]) == 0
    resumed = load_sweep(folder)
    assert_equal_tables(whole, resumed)
    assert sent(resumed) == sent(whole) - before, "only what was missing was asked"


def test_several_engines_share_the_tokens_so_that_none_gets_nothing(tmp_path: Path) -> None:
    sweep = stopped(tmp_path, "engine.seed=1,2", "stop.tokens=1K")
    by_engine = {run.record["engine"]["seed"]: len(run.debates) for run in sweep.runs}
    assert set(by_engine) == {1, 2} and min(by_engine.values()) > 0
    assert max(by_engine.values()) < 40


def test_every_shard_that_is_stopped_holds_the_same_items_for_every_cell(tmp_path: Path) -> None:
    plan = frozen(tmp_path, 2, "limit=40", "stop.tokens=1K", "max_live=2")
    for number in range(2):
        assert main(["work", str(plan.folder), "--shard", f"{number}/2"]) == 0
    sweep = load_sweep(plan.folder)
    items = [run.debates["item_id"].to_list() for run in sweep.runs]
    assert all(one == items[0] for one in items)
    for shard in plan.shards:
        mine = [item for item in shard.items["arithmetic"] if item in items[0]]
        assert 0 < len(mine) < 20 and mine == list(shard.items["arithmetic"])[: len(mine)]
    assert not any(run.done for run in sweep.runs)
    whole = debate_local.run([*SHARDED, "limit=40", f"output={tmp_path / 'whole'}"], multirun=True)
    # All fields of the sweep but the stop.
    assert main(["resume", str(plan.folder)]) == 0
    assert_equal_tables(whole, load_sweep(plan.folder))


def test_fewer_live_debates_than_cells_stop_between_items_all_the_same(tmp_path: Path) -> None:
    sweep = stopped(tmp_path, "seed=0,1,2", "max_live=1", "stop.tokens=1K")
    items = [run.debates["item_id"].to_list() for run in sweep.runs]
    assert len(items) > 6 and 0 < len(items[0]) < 40 and all(one == items[0] for one in items)


@pytest.mark.parametrize("launcher", [[], pytest.param(["hydra/launcher=local"], marks=pytest.mark.slow)])
@pytest.mark.hazard("A47")
def test_a_stop_before_the_first_debate_is_no_success(
    launcher: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The engine takes until after seven to load.
    monkeypatch.setattr(Stop, "seconds_left", lambda stop: 0.0)
    at = f"stop.at={datetime.now() + timedelta(seconds=61):%H:%M}"
    if launcher:
        # Workers are processes of their own: theirs has passed when they begin.
        freeze = resume_frozen
        monkeypatch.setattr("debate_local.commands.run.freeze", freeze)
    assert main(["run", "-m", *SWEEP, at, *launcher, f"output={tmp_path}"]) == 1
    assert "nothing was scored: the stop came before the first debate had ended" in capsys.readouterr().err


def resume_frozen(*args: object, **kwargs: object) -> FrozenPlan:
    """Freeze with a stop that has passed when somebody reads the plan."""
    plan = freeze(*args, **kwargs)  # type: ignore[arg-type]
    path = plan.folder / "plan.json"
    record = json.loads(path.read_text())
    record["how"]["stop"]["at"] = "2020-01-01 07:00"
    path.write_text(json.dumps(record))
    return plan


def test_the_hour_in_which_clocks_are_put_back_is_a_whole_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        # 22:00 on the day before: nine hours by the clock, and ten in fact.
        monkeypatch.setattr(time, "time", lambda: datetime.fromisoformat("2026-10-24 22:00").timestamp())
        assert Stop(at="2026-10-25 07:00").seconds_left() == 10 * 3600
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_clock_that_is_set_meanwhile_moves_no_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    allowance = Budget(Stop(at="2999-01-01 07:00"), turns=10).share(10)
    monkeypatch.setattr(time, "time", lambda: 4e10)
    assert allowance.spent(tokens=0) == ""


def test_a_time_of_day_is_the_next_one_and_is_kept_as_a_date() -> None:
    soon = datetime.now() + timedelta(minutes=2)
    before = datetime.now() - timedelta(minutes=2)
    assert datetime.fromisoformat(stop_from(f"{soon:%H:%M}", None).at or "") == soon.replace(second=0, microsecond=0)
    tomorrow = datetime.fromisoformat(stop_from(f"{before:%H:%M}", None).at or "")
    assert timedelta(hours=23) < tomorrow - datetime.now() < timedelta(hours=24)


def test_a_deadline_that_has_passed_stops_before_the_first_item_and_not_within_one(tmp_path: Path) -> None:
    allowance = Budget(Stop(at="2020-01-01 07:00"), turns=10).share(10)
    assert allowance.spent(tokens=0) == "stop.at"
    later = Budget(Stop(at="2999-01-01 07:00"), turns=10).share(10)
    assert later.spent(tokens=10**12) == ""


@pytest.mark.parametrize("text, tokens", [("50M", 50_000_000), ("1.5k", 1500), ("700", 700), ("2G", 2_000_000_000)])
def test_tokens_are_read_with_their_unit(text: str, tokens: int) -> None:
    assert stop_from(None, text).tokens == tokens


@pytest.mark.parametrize(
    "override, told",
    [
        ("stop.at=25:00", "stop.at=07:00"),
        ("stop.at=tomorrow", "stop.at=07:00"),
        ("stop.at='2020-01-01 07:00'", "has passed"),
        ("stop.tokens=0", "stop.tokens=50M"),
        ("stop.tokens=many", "stop.tokens=50M"),
        ("stop.tokens=1,2", "they are not swept"),
    ],
)
def test_a_wrong_stop_is_refused_with_a_right_one(
    override: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "-m", *SWEEP, f"output={tmp_path}", override]) == 2
    assert told in capsys.readouterr().err
