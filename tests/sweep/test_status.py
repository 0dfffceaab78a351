"""`status`: from plans, stored parts and logs alone; from copies, folders that cannot be written, torn and odd logs."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from debate_local.cli import main
from debate_local.sweep.events import EventLog
from debate_local.sweep.frozen import FrozenPlan, read_frozen
from debate_local.sweep.status import SweepStatus, joint_log, status
from tests.sweep.test_shards import frozen, work

pytestmark = pytest.mark.slow


@pytest.fixture
def half_done(tmp_path: Path) -> FrozenPlan:
    """Two shards, of which the first is done."""
    plan = frozen(tmp_path / "runs", 2, "limit=4")
    assert work(plan, "0/2") == 0
    return plan


def now(plan: FrozenPlan) -> SweepStatus:
    return status(read_frozen(plan.folder))


def log_of(plan: FrozenPlan, name: str, *lines: dict[str, Any] | str, host: str = "far", pid: int = 1) -> Path:
    """A log as a worker on shard 1 leaves it; a text is a line as it stands."""
    path = plan.folder / "logs" / f"events-{plan.shards[0].split}-0001-{name}-{host}-{pid}.jsonl"
    path.write_text("".join((one if isinstance(one, str) else json.dumps(one) + "\n") for one in lines))
    return path


def event(kind: str, time: float, **more: Any) -> dict[str, Any]:
    return {"event": kind, "time": time, **more}


def start(time: float, starts: int = 0) -> dict[str, Any]:
    return event("start", time, shards=[1], turns=10, starts=starts, todo=1, runs=1, debates=1)


def end(time: float, *problems: str) -> dict[str, Any]:
    return event("end", time, problems=list(problems), stopped="")


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """A folder that cannot be written. Root is not stopped by its mode: then it is mounted so."""
    if os.geteuid():
        folders = [Path(path) for path, _, _ in os.walk(folder)]
        for path in folders:
            path.chmod(0o555)
        yield
        for path in folders:
            path.chmod(0o755)
        return
    done = subprocess.run(["mount", "--bind", folder, folder], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"root, and not allowed to mount: {done.stderr.decode()}")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", folder], check=True)
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


def test_a_copy_elsewhere_tells_the_same(half_done: FrozenPlan, tmp_path: Path) -> None:
    before = now(half_done).to_json()
    shutil.copytree(half_done.folder.parents[1], tmp_path / "laptop" / "copied")
    shutil.rmtree(half_done.folder.parents[1])
    copy = read_frozen(tmp_path / "laptop" / "copied" / "sweeps" / half_done.id)
    after = status(copy).to_json()
    for told in (before, after):
        for shard in told["shards"]:
            shard.pop("seconds_silent"), shard.pop("log")
    assert after == before
    assert [shard["state"] for shard in after["shards"]] == ["done", "missing"]


def test_a_copy_without_its_runs_says_that_they_are_not_there(
    half_done: FrozenPlan, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(half_done.folder, tmp_path / "alone" / half_done.id)
    assert main(["status", str(tmp_path / "alone" / half_done.id)]) == 0
    told = capsys.readouterr().out
    assert f"no run of this sweep lies in {tmp_path}" in told


def test_a_folder_that_cannot_be_written_can_be_read(half_done: FrozenPlan, capsys: pytest.CaptureFixture[str]) -> None:
    with read_only(half_done.folder.parents[1]):
        for command in (["status"], ["status", "--log"], ["show"]):
            assert main([*command, str(half_done.folder)]) == 0
        assert "1 done, 1 missing" in capsys.readouterr().out
        for command in (["work", "--shard", "1/2"], ["resume"]):
            assert main([*command, str(half_done.folder)]) == 1
            told = capsys.readouterr().err
            assert "Read-only" in told or "Permission denied" in told
            assert "choose another output=" in told and "Traceback" not in told
    assert work(half_done, "1/2") == 0


@pytest.mark.hazard("C19", "C20")
@pytest.mark.parametrize(
    "torn",
    [
        '{"event": "end", "ti',
        '{"event": "x", "time": 5.0}{"event": "y", "time": 6.0}\n',
        "\n\n",
        "null\n",
        "\x00\x00\n",
    ],
    ids=["cut off", "two on a line", "empty lines", "no event", "zeros"],
)
def test_a_line_that_is_none_hides_no_other(
    torn: str, half_done: FrozenPlan, capsys: pytest.CaptureFixture[str]
) -> None:
    first = log_of(half_done, "20260101-000000", start(10), event("warning", 11, text="before it"), torn)
    assert now(half_done).shards[1].state in ("running", "silent")
    assert main(["status", "--log", str(half_done.folder)]) == 0
    assert "before it" in capsys.readouterr().out
    # The next attempt has a log of its own: nothing is ever added to a torn one.
    before = first.read_text()
    assert work(half_done, "1/2") == 0
    assert first.read_text() == before
    assert now(half_done).done and now(half_done).shards[1].state == "done"


@pytest.mark.hazard("C01")
def test_logs_of_one_second_are_files_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "strftime", lambda form: "20260101-000000")
    paths = []
    for host, pid in (("a", 1), ("b", 1), ("a", 2)):
        monkeypatch.setattr("socket.gethostname", lambda host=host: host)
        monkeypatch.setattr(os, "getpid", lambda pid=pid: pid)
        log = EventLog(tmp_path, name="-0123abcd-0001")
        log.emit("warning", text="mine")
        paths.append(log.path)
        log.close()
    assert len(set(paths)) == 3


# Clocks


def test_the_latest_attempt_is_the_one_that_began_last_whatever_its_clock_said(half_done: FrozenPlan) -> None:
    log_of(half_done, "20300101-000000", start(2e9, starts=1), end(2e9 + 1, "the first failed"))
    log_of(half_done, "20260101-000000", start(1e9, starts=2), end(1e9 + 1, "the second failed"))
    assert now(half_done).shards[1].error == "the second failed"


def test_an_attempt_that_failed_before_it_knew_what_to_do_is_the_latest(half_done: FrozenPlan) -> None:
    log_of(half_done, "20260101-000000", start(time.time(), starts=1), end(time.time(), "the first failed"))
    log = EventLog(half_done.folder / "logs", name=f"-{half_done.shards[0].split}-0001")
    log.emit("end", problems=["the second failed"], sent=0, stopped="")
    log.close()
    assert now(half_done).shards[1].error == "the second failed"


def test_a_clock_that_is_put_back_leaves_a_workers_story_in_its_order(
    half_done: FrozenPlan, capsys: pytest.CaptureFixture[str]
) -> None:
    said = [event("warning", 1000.0 + second, text=f"w{n}") for n, second in enumerate((0, 100, 50, 60, 200))]
    log_of(half_done, "20260101-000000", start(999), *said, end(1300))
    told = [event["text"] for event in joint_log(half_done) if event["event"] == "warning"]
    assert told == ["w0", "w1", "w2", "w3", "w4"]
    assert main(["status", "--log", str(half_done.folder)]) == 0
    shown = capsys.readouterr().out
    assert sorted(range(5), key=lambda n: shown.index(f"w{n}")) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("told", "state", "silent"),
    [(lambda now: (now + 7200, now - 600), "running", 600), (lambda now: (now - 7300, now - 7200), "silent", 7200)],
    ids=["put back since", "silent for long"],
)
def test_silence_is_counted_from_the_very_last_word(
    told: Callable[[float], tuple[float, float]], state: str, silent: float, half_done: FrozenPlan
) -> None:
    first, last = told(time.time())
    log_of(half_done, "20260101-000000", start(first), event("batch", first), event("progress", last, turns=1))
    shard = now(half_done).shards[1]
    assert shard.state == state
    assert shard.seconds_silent == pytest.approx(silent, abs=60)
