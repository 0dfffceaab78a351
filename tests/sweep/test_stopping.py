"""A sweep that is to stop in the morning, or after so many tokens, is a fair prefix for every cell."""

from datetime import datetime, timedelta
from pathlib import Path

import pytest

import debate_local
from debate_local.cli import main
from debate_local.sweep.stopping import Budget, Stop, stop_from
from debate_local.sweep.store import Sweep, load_sweep
from tests.sweep.test_run import assert_equal_tables, sent

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
