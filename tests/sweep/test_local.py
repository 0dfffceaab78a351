"""Launcher `local`: the shards of a sweep over the devices of one machine, and `status` of it."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import debate_local
from debate_local.cli import main
from debate_local.launchers.local import LocalSettings, Place, places
from debate_local.sweep.compose import compose
from debate_local.sweep.options import OptionFault
from debate_local.sweep.plan import make_plan
from debate_local.sweep.store import Sweep, load_sweep
from tests.sweep.test_run import assert_equal_tables

pytestmark = pytest.mark.slow

SWEEP = ["engine=scripted", "task=arithmetic", "limit=8", "protocol.agents=2,3", "max_samples=0"]
LOCAL = ["hydra/launcher=local", "hydra.launcher.workers=2"]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    return debate_local.run([*SWEEP, f"output={tmp_path_factory.mktemp('whole')}"], multirun=True)


def sweep_of(output: Path) -> Sweep:
    (folder,) = output.glob("sweeps/*")
    return load_sweep(folder)


@pytest.mark.slow
def test_two_workers_store_what_one_process_stores_and_print_its_table(
    undisturbed: Sweep, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "-m", *SWEEP, *LOCAL, "hydra.launcher.shards=3", f"output={tmp_path}"]) == 0
    assert_equal_tables(undisturbed, sweep_of(tmp_path))
    told = capsys.readouterr()
    assert "best debate" in told.out and "3 shards, 2 at once" in told.err
    assert len(list(sweep_of(tmp_path).folder.glob("logs/worker-*.log"))) == 3


@pytest.mark.slow
@pytest.mark.hazard("C09", "C10")
def test_a_failed_shard_hides_no_other_and_the_exit_code_is_honest(
    undisturbed: Sweep, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["run", "-m", *SWEEP, *LOCAL, "hydra.launcher.shards=2", f"output={tmp_path}"]
    # The engine of each worker dies at its 25th answer, and each start gets a little further.
    assert main([*command, "engine.dead_after=8", "max_restarts=0"]) == 1
    told = capsys.readouterr().err
    assert "shard 0:" in told and "shard 1:" in told and "debate-local resume" in told
    folder = sweep_of(tmp_path).folder
    assert main(["status", str(folder)]) == 1
    shown = capsys.readouterr().out
    assert shown.count("the engine died") >= 2 and "2 failed" in shown
    assert main([*command, "engine.dead_after=null"]) == 0
    assert_equal_tables(undisturbed, sweep_of(tmp_path))


@pytest.mark.slow
def test_a_worker_that_is_killed_is_started_again(undisturbed: Sweep, tmp_path: Path) -> None:
    options = ["hydra.launcher.shards=2", "engine.latency=0.15", f"output={tmp_path}"]
    command = [sys.executable, "-m", "debate_local.cli", "run", "-m", *SWEEP, *LOCAL, *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    pid = wait_for(lambda: workers(tmp_path))[0]
    wait_for(lambda: list(tmp_path.glob("cache/*/*.live")))
    os.kill(pid, signal.SIGKILL)
    told, _ = process.communicate(timeout=120)
    assert process.returncode == 0, told
    assert "killed by SIGKILL (out of memory?); it is started again (1)" in told
    assert_equal_tables(undisturbed, sweep_of(tmp_path))


@pytest.mark.slow
def test_ctrl_c_ends_all_workers_and_nothing_is_lost(undisturbed: Sweep, tmp_path: Path) -> None:
    options = ["hydra.launcher.shards=2", "engine.latency=0.5", "max_live=4", f"output={tmp_path}"]
    command = [sys.executable, "-m", "debate_local.cli", "run", "-m", *SWEEP, *LOCAL, *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    pids = wait_for(lambda: found if len(found := workers(tmp_path)) == 2 else None)
    wait_for(lambda: list(tmp_path.glob("cache/*/*.live")))
    process.send_signal(signal.SIGINT)
    told, _ = process.communicate(timeout=60)
    assert process.returncode == 130, told
    assert not any(alive(pid) for pid in pids)
    folder = sweep_of(tmp_path).folder
    assert "Traceback" not in told
    settings = json.loads((folder / "plan.json").read_text())["launchers"]["local"]
    assert settings["workers"] == 2
    debate_local.run([*SWEEP, f"output={tmp_path}"], multirun=True)
    assert_equal_tables(undisturbed, sweep_of(tmp_path))


def workers(output: Path) -> list[int]:
    """The processes that have opened a log of their own."""
    found = [re.search(r"-(\d+)\.jsonl$", path.name) for path in output.glob("sweeps/*/logs/events*")]
    return [int(match[1]) for match in found if match]


def wait_for(there: object, seconds: float = 60) -> list[int]:
    deadline = time.monotonic() + seconds
    while not (found := there()):  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found  # type: ignore[no-any-return]


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_a_worker_has_gpus_or_cores_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    cells, _ = compose(["engine=scripted", "task=arithmetic", "limit=2"])
    plan = make_plan(cells)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,GPU-abc,5")
    assert [place.gpus for place in places(plan, LocalSettings())] == [("3",), ("GPU-abc",), ("5",)]
    assert Place(gpus=("3", "5")).environment() == {"CUDA_VISIBLE_DEVICES": "3,5"}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    cores = sorted(os.sched_getaffinity(0))
    shared = places(plan, LocalSettings(workers=len(cores)))
    assert sorted(core for place in shared for core in place.cores) == cores
    assert places(plan, LocalSettings()) == [Place()]


def test_gpus_are_grouped_by_tensor_and_pipeline_parallel_size(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("vllm")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3,4")
    sizes = ["engine.tensor_parallel_size=2", "engine.pipeline_parallel_size=1"]
    cells, _ = compose(["engine=vllm", "task=arithmetic", "limit=2", *sizes])
    assert [place.gpus for place in places(make_plan(cells), LocalSettings())] == [("0", "1"), ("2", "3")]
    with pytest.raises(OptionFault, match=r"3 workers of 2 GPUs .* do not fit on 5 GPUs .* at most 2"):
        places(make_plan(cells), LocalSettings(workers=3))


@pytest.mark.slow
def test_named_gpus_are_kept_for_those_who_resume(
    undisturbed: Sweep, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["run", "-m", *SWEEP, "hydra/launcher=local", "hydra.launcher.gpus=[0,GPU-5]", f"output={tmp_path}"]
    assert main(command) == 0, capsys.readouterr().err
    assert "2 shards, 2 at once" in capsys.readouterr().err
    folder = sweep_of(tmp_path).folder
    assert json.loads((folder / "plan.json").read_text())["launchers"]["local"]["gpus"] == ["0", "GPU-5"]
    assert main(["resume", str(folder), "--on", "local"]) == 0
    assert_equal_tables(undisturbed, sweep_of(tmp_path))


@pytest.mark.parametrize(
    "options, told",
    [
        (["hydra.launcher.shards=0"], "at least 1 shard"),
        (["hydra.launcher.shards=9"], "at most one for each of its 8 items"),
        (["hydra.launcher.workers=0"], "workers must be at least 1"),
        (["hydra.launcher.workers=999"], "more than the"),
        (["hydra.launcher.gpus=[0,1]", "hydra.launcher.workers=3"], "do not fit on 2 GPUs"),
        (["protocol.agents=0"], "agents"),
    ],
)
def test_what_cannot_be_started_is_refused_before_anything_is(
    options: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    base = ["run", "-m", "engine=scripted", "task=arithmetic", "limit=8", "hydra/launcher=local"]
    assert main([*base, *options, f"output={tmp_path}"]) == 2
    assert told in capsys.readouterr().err
    assert not list(tmp_path.glob("sweeps/*/logs/*"))


def test_a_frozen_sweep_is_run_by_whoever_comes(
    undisturbed: Sweep, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frozen = ["hydra/launcher=freeze", "hydra.launcher.shards=2"]
    assert main(["run", "-m", *SWEEP, *frozen, f"output={tmp_path}"]) == 0
    folder = sweep_of(tmp_path).folder
    assert f"debate-local work {folder} --shard I/2" in capsys.readouterr().out
    assert main(["status", str(folder), "--json"]) == 0
    before = json.loads(capsys.readouterr().out)
    assert [shard["state"] for shard in before["shards"]] == ["missing", "missing"] and not before["done"]
    for shard in ("1/2", "0/2"):
        assert main(["work", str(folder), "--shard", shard]) == 0
    capsys.readouterr()
    assert main(["status", str(folder), "--json"]) == 0
    after = json.loads(capsys.readouterr().out)
    assert after["done"] and after["turns_done"] == after["turns"] > 0
    assert [shard["state"] for shard in after["shards"]] == ["done", "done"]
    assert_equal_tables(undisturbed, load_sweep(folder))
