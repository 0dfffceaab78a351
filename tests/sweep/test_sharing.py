"""Several processes on one folder: nobody writes over another, and what a killed one leaves is known as its own."""

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import debate_local
from debate_local.cli import main
from debate_local.sweep import writer as writing
from debate_local.sweep.compose import compose
from debate_local.sweep.frozen import freeze, read_frozen
from debate_local.sweep.plan import PlannedRun, make_plan
from debate_local.sweep.sharing import alone_in, beside, remove_left_overs
from debate_local.sweep.store import NewerSchema, StoreFault, is_done, load_sweep, locked
from debate_local.sweep.work import Portion
from debate_local.sweep.writer import FinishedDebate, RunWriter, keep_earlier, merge_parts
from tests.sweep.test_run import assert_equal_tables
from tests.sweep.test_shards import SWEEP, files, frozen, wait_for, work, worker

pytestmark = pytest.mark.slow

ONE = ["engine=scripted", "task=arithmetic", "limit=3", "controls=false"]


def planned(output: Path) -> tuple[PlannedRun, Path]:
    cells, _ = compose([*ONE, f"output={output}"])
    (run,) = make_plan(cells).runs
    return run, output / run.id


def write(writer: RunWriter, run: PlannedRun, error: str) -> None:
    """Store the run's debates as failed, with this error, and end them."""
    for item in run.task.items:
        writer.add(FinishedDebate(item, None, None, error=error))
    writer.finish()


def writer(run: PlannedRun, folder: Path) -> RunWriter:
    return Portion(run, None, run.task.items, folder, again=False).writer()


# Starts


@pytest.mark.slow
@pytest.mark.hazard("C01")
def test_sweeps_that_start_in_one_second_share_a_run_and_both_come_to_their_end(tmp_path: Path) -> None:
    base = [*ONE, "limit=12", "engine.latency=0.05", "max_live=4", f"output={tmp_path / 'runs'}"]
    command = [sys.executable, "-m", "debate_local.cli", "run", "-m", *base]
    swept = ["protocol.agents=2,3", "protocol.agents=3,4", "protocol.agents=3,2"]
    starts = [subprocess.Popen([*command, one], stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for one in swept]
    for start in starts:
        told, _ = start.communicate(timeout=120)
        assert start.returncode == 0, told.decode()
    sweeps = sorted((tmp_path / "runs" / "sweeps").iterdir())
    assert len(sweeps) == 3 and all(len(list(sweep.glob("logs/events*"))) == 1 for sweep in sweeps)
    quick = [*ONE, "limit=12", "protocol.agents=2,3,4", f"output={tmp_path / 'alone'}"]
    alone = {run.id: run for run in debate_local.run(quick, multirun=True).runs}
    for sweep in map(load_sweep, sweeps):
        for run in sweep.runs:
            assert run.done and run.turns.equals(alone[run.id].turns) and run.debates.equals(alone[run.id].debates)


@pytest.mark.hazard("C01")
def test_a_writer_does_not_remove_what_another_one_is_writing(tmp_path: Path) -> None:
    run, folder = planned(tmp_path)
    first, second = writer(run, folder), writer(run, folder)
    for item in run.task.items * 600:
        # More than a row group, so that there is a file on its way.
        first.add(FinishedDebate(item, None, None, error="a"))
    assert list(folder.glob(".debates.parquet.*"))
    writer(run, folder)
    first.finish()
    write(second, run, "b")
    assert (folder / "debates.parquet").exists() and not list(folder.glob(".*"))


def test_what_a_killed_process_of_this_host_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    mine = beside(tmp_path / "turns.parquet")
    dead = mine.with_name(mine.name.replace(f".{os.getpid()}.", ".2147483646."))
    elsewhere = mine.with_name(dead.name.replace(".turns.parquet.", ".turns.parquet.far-"))
    others = [tmp_path / name for name in (".lock", ".lock-0123abcd-0001", "turns.parquet", ".nfs.0000.parquet.1")]
    for path in (mine, dead, elsewhere, *others):
        path.touch()
    assert mine != beside(tmp_path / "turns.parquet"), "two writers of one process have names of their own"
    remove_left_overs(tmp_path)
    assert set(tmp_path.iterdir()) == {mine, elsewhere, *others}


def test_two_processes_do_not_put_files_in_place_at_the_same_time(tmp_path: Path) -> None:
    entered = threading.Event()

    def second() -> None:
        with alone_in(tmp_path):
            entered.set()

    with ThreadPoolExecutor(1) as pool:
        with alone_in(tmp_path):
            waiting = pool.submit(second)
            assert not entered.wait(0.2)
        waiting.result(timeout=30)
    assert entered.is_set()


# Locks


def test_who_runs_the_whole_and_who_runs_a_shard_keep_each_other_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = frozen(tmp_path, 2, "engine.latency=0.2")
    shard = worker(plan, "1/2")
    try:
        wait_for(lambda: list(tmp_path.glob("cache/*/*.live")), shard)
        assert main(["work", str(plan.folder)]) == 2
        assert f"this sweep is being run already, by process {shard.pid} on " in capsys.readouterr().err
    finally:
        shard.kill()
        shard.wait()
    with locked(plan.folder):
        assert work(plan, "0/2") == 2
        assert f"this sweep is being run already, by process {os.getpid()} on " in capsys.readouterr().err
    assert main(["work", str(plan.folder)]) == 0


def test_many_shards_are_held_at_once_and_each_by_one(tmp_path: Path) -> None:
    with locked(tmp_path, "-a"), locked(tmp_path, "-b"):
        with pytest.raises(StoreFault, match="this shard is being run already"), locked(tmp_path, "-a"):
            pass
        with pytest.raises(StoreFault, match="this sweep is being run already"), locked(tmp_path):
            pass
    with locked(tmp_path):
        pass


def test_several_who_freeze_one_sweep_at_once_keep_the_splits_of_all(tmp_path: Path) -> None:
    cells, how = compose([*SWEEP, f"output={tmp_path}"], multirun=True)
    plan = make_plan(cells)
    with ThreadPoolExecutor(8) as pool:
        frozen = list(pool.map(lambda count: freeze(plan, how, [], count), range(1, 9)))
    assert {int(count) for count in read_frozen(frozen[0].folder).record["splits"]} == set(range(1, 9))


def test_a_plan_of_a_newer_version_is_not_written_over(tmp_path: Path) -> None:
    plan = frozen(tmp_path, 2)
    path = plan.folder / "plan.json"
    newer = path.read_text().replace('"schema_version": 1', '"schema_version": 99')
    path.write_text(newer)
    with pytest.raises(NewerSchema, match="Update debate-local"):
        frozen(tmp_path, 2)
    assert path.read_text() == newer


def test_where_there_are_no_locks_the_second_to_put_a_run_together_finds_it_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = debate_local.run([*SWEEP, f"output={tmp_path / 'whole'}"], multirun=True)
    plan = frozen(tmp_path, 2)
    monkeypatch.setattr("debate_local.sweep.work.merge_parts", lambda *given: False)
    for shard in ("0/2", "1/2"):
        assert work(plan, shard) == 0
    parts = {run.id: sorted(run.folder.glob("parts/*/*")) for run in load_sweep(plan.folder).runs}
    order = [item.id for item in plan.plan().runs[0].task.items]
    read = writing._rows_of

    def faster(path: Path) -> Iterator[dict[str, Any]]:
        """Another one puts the run together just before we read a part."""
        monkeypatch.setattr(writing, "_rows_of", read)
        run = path.parents[3]
        assert merge_parts(run, parts[run.name], order)
        return read(path)

    monkeypatch.setattr(writing, "alone_in", lambda folder: contextlib.nullcontext())
    for name, mine in parts.items():
        monkeypatch.setattr(writing, "_rows_of", faster)
        assert not merge_parts(tmp_path / name, mine, order)
    assert files(load_sweep(plan.folder)) == files(whole)


# What is kept when failed requests are asked again


@pytest.mark.parametrize("step", ["copy", "rename", "unlink"])
def test_killed_while_it_keeps_what_there_was_a_run_is_done_as_before_or_kept(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def killed(*args: object, **kwargs: object) -> None:
        raise Killed

    folder = debate_local.run([*ONE, f"output={tmp_path}"]).runs[0].folder
    before = (folder / "turns.parquet").read_bytes()
    with monkeypatch.context() as patch:
        where = {"copy": "debate_local.sweep.writer.shutil.copy2"}.get(step, f"pathlib.Path.{step}")
        patch.setattr(where, killed)
        with pytest.raises(Killed):
            keep_earlier(folder)
    assert is_done(folder)
    assert (folder / "turns.parquet").read_bytes() == before
    keep_earlier(folder)
    assert not is_done(folder)
    assert {path.read_bytes() for path in folder.glob("earlier-*/turns.parquet")} == {before}
    assert not (folder / ".earlier").exists()


def test_failed_requests_may_be_asked_again_twice_and_no_parts_are_left(tmp_path: Path) -> None:
    whole = debate_local.run([*SWEEP, f"output={tmp_path / 'whole'}"], multirun=True)
    failed = debate_local.run([*SWEEP, "engine.fail=0.3", f"output={tmp_path}"], multirun=True)
    before = files(failed)
    bad = [run for run in failed.runs if run.debates["failed"].sum()]
    assert bad
    plan = frozen(tmp_path, 2, "engine.fail=0.3")
    for shard in ("0/2", "1/2"):
        assert work(plan, shard, retry_failed=True) == 1, "all that was sent failed again"
    assert files(load_sweep(plan.folder)) == before
    (bad[0].folder / "parts" / "0123abcd-0" / "0000").mkdir(parents=True)
    plan = frozen(tmp_path, 2)
    for shard in ("0/2", "1/2"):
        assert work(plan, shard, retry_failed=True) == 0
    assert_equal_tables(whole, load_sweep(plan.folder))
    for run in bad:
        kept = [(run.folder / f"earlier-{n}" / "turns.parquet").read_bytes() for n in (1, 2)]
        assert kept == [before[f"{run.id}/turns.parquet"]] * 2
    assert not list(tmp_path.glob("*/parts"))
    assert work(plan, "0/2", "1/2", retry_failed=True) == 0
    assert not list(tmp_path.glob("*/earlier-3")), "nothing failed, so nothing was done anew"
