"""The scripts of `launch/`, run as a person runs them, with the scripted engine in the place of a model.

Slurm's commands are a few lines of shell here, on a PATH of their own; `tests/slurm` has a real cluster.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

import debate_local
from debate_local.cli import main
from debate_local.sweep.store import Sweep, load_sweep
from tests.alive import is_alive
from tests.sweep.test_shards import SWEEP, files, frozen

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
LAUNCH = ROOT / "launch"
SCRIPTS = sorted(path.name for path in LAUNCH.iterdir() if path.suffix in (".sh", ".sbatch"))
PROGRAM = str(Path(sys.executable).with_name("debate-local"))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    return debate_local.run([*SWEEP, f"output={tmp_path_factory.mktemp('whole')}"], multirun=True)


def environment(**more: str) -> dict[str, str]:
    """Ours without what a cluster or a person may have set."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "CUDA_"))}
    return {**kept, "DEBATE_LOCAL": PROGRAM, **more}


def script(name: str, *arguments: str | Path, **more: str) -> "subprocess.Popen[str]":
    command = ["bash", str(LAUNCH / name), *map(str, arguments)]
    return subprocess.Popen(command, env=environment(**more), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    """Exit code, what it printed, what it complained of."""
    out, error = process.communicate(timeout=120)
    return process.returncode, out, error


def wait_for(there: Callable[[], object], process: "subprocess.Popen[str] | None" = None) -> None:
    """Wait until it is so. process: what brings it about, and does not end before."""
    deadline = time.monotonic() + 60
    while not there():
        assert time.monotonic() < deadline
        assert process is None or process.poll() is None, ended(process)
        time.sleep(0.05)


def generating(output: Path) -> bool:
    """Has an engine answered something there?"""
    return any('"event": "progress"' in log.read_text() for log in output.glob("sweeps/*/logs/events*"))


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_is_sound_shell_and_says_at_its_top_how_it_is_used(name: str) -> None:
    assert subprocess.run(["bash", "-n", LAUNCH / name], check=False).returncode == 0
    head = (LAUNCH / name).read_text().split("set -", 1)[0]
    assert f"launch/{name}" in head and "DEBATE_LOCAL" in head
    assert os.access(LAUNCH / name, os.X_OK)
    if checker := shutil.which("shellcheck"):
        assert subprocess.run([checker, LAUNCH / name], check=False).returncode == 0


# A night


@pytest.mark.slow
def test_overnight_starts_the_sweep_in_a_session_of_its_own_and_says_how_to_go_on(tmp_path: Path) -> None:
    slow = ["limit=3", "engine.latency=0.25", "max_live=4", "output='" + str(tmp_path / "a night") + "'"]
    code, told, error = ended(script("overnight.sh", *SWEEP, *slow))
    assert code == 0, error
    (process,) = (int(number) for number in re.findall(r"process (\d+), until 07:00", told))
    (folder,) = (tmp_path / "a night" / "sweeps").iterdir()
    try:
        assert os.getsid(process) == process, "it outlives the terminal"
        for line in (f"status '{folder}' --watch", f"resume '{folder}'", f"kill {process}", f"status '{folder}' --log"):
            assert line in told
        (log,) = folder.glob("logs/overnight-*.log")
        assert str(log) in told
        wait_for(lambda: generating(tmp_path / "a night"))
        plan = json.loads((folder / "plan.json").read_text())
        assert plan["how"]["stop"]["at"].endswith("07:00")
    finally:
        os.kill(process, signal.SIGTERM)
        wait_for(lambda: not is_alive(process))
    assert "Every completion so far is kept" in log.read_text()
    assert main(["resume", str(folder)]) == 0


def test_overnight_tells_a_mistake_at_once_and_starts_nothing(tmp_path: Path) -> None:
    code, _, error = ended(script("overnight.sh", *SWEEP, "protocol.agent=2", f"output={tmp_path}"))
    assert code == 2 and "agents" in error
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_overnight_takes_a_stop_and_a_launcher_among_its_arguments_and_shows_a_night_that_is_over_at_once(
    undisturbed: Sweep, tmp_path: Path
) -> None:
    later = time.strftime("%H:%M", time.localtime(time.time() + 6 * 3600))
    more = [f"stop.at={later}", "hydra/launcher=local", "hydra.launcher.shards=2", f"output={tmp_path}"]
    # The first start may be done before or after the script looks; the second one has nothing to do.
    for _ in range(2):
        code, told, error = ended(script("overnight.sh", *SWEEP, *more))
        assert code == 0, error
        for number in re.findall(rf"process (\d+), until {later}", told):
            wait_for(lambda number=number: not is_alive(int(number)))
    (folder,) = tmp_path.glob("sweeps/*")
    assert files(load_sweep(folder)) == files(undisturbed)
    assert json.loads((folder / "plan.json").read_text())["how"]["stop"]["at"].endswith(later)


def test_overnight_without_arguments_prints_its_use() -> None:
    code, told, _ = ended(script("overnight.sh"))
    assert code == 2 and "STOP_AT" in told and "#" not in told.split("hydra/launcher=local")[0]


# An array


@pytest.fixture
def queue(tmp_path: Path) -> Path:
    """A folder with a `scontrol` that writes down what it is asked."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "scontrol").write_text(f'#!/bin/sh\necho "$@" >> {folder}/asked\n')
    (folder / "scontrol").chmod(0o755)
    return folder


def task(number: int, queue: Path) -> dict[str, str]:
    """What Slurm tells a task of an array. The id of the job is another one than that of the array."""
    array = {"SLURM_ARRAY_JOB_ID": "70", "SLURM_ARRAY_TASK_ID": str(number), "SLURM_JOB_ID": str(71 + number)}
    return {**array, "PATH": f"{queue}{os.pathsep}{os.environ['PATH']}"}


def asked(queue: Path) -> list[str]:
    return (queue / "asked").read_text().splitlines() if (queue / "asked").exists() else []


@pytest.mark.slow
def test_the_tasks_of_an_array_store_together_what_one_process_stores(
    undisturbed: Sweep, queue: Path, tmp_path: Path
) -> None:
    plan = frozen(tmp_path / "runs", 3)
    tasks = [script("slurm_array.sbatch", plan.folder, 3, **task(number, queue)) for number in range(3)]
    assert [ended(one)[0] for one in tasks] == [0, 0, 0]
    assert files(load_sweep(plan.folder)) == files(undisturbed)
    assert not asked(queue)


@pytest.mark.parametrize(("name", "requeued"), [("SIGUSR1", ["requeue 70_1"]), ("SIGTERM", [])])
@pytest.mark.hazard("C28")
def test_a_signal_to_the_batch_shell_reaches_the_worker_and_only_the_one_before_the_time_limit_requeues(
    name: str, requeued: list[str], undisturbed: Sweep, queue: Path, tmp_path: Path
) -> None:
    plan = frozen(tmp_path / "runs", 2, "engine.latency=0.3", "max_live=4")
    process = script("slurm_array.sbatch", plan.folder, 2, **task(1, queue))
    wait_for(lambda: generating(tmp_path / "runs"), process)
    # To the shell alone, as `--signal=B:` does.
    process.send_signal(getattr(signal, name))
    code, _, error = ended(process)
    assert code == 130, error
    assert not list(tmp_path.glob("runs/cache/*/*.live")), "what was answered is kept"
    (log,) = plan.folder.glob("logs/events*")
    assert name in json.loads(log.read_text().splitlines()[-1])["stopped"]
    assert asked(queue) == requeued
    # The next life, with an engine that answers at once.
    plan = frozen(tmp_path / "runs", 2)
    assert [ended(script("slurm_array.sbatch", plan.folder, 2, **task(n, queue)))[0] for n in (0, 1)] == [0, 0]
    assert files(load_sweep(plan.folder)) == files(undisturbed)


def test_a_task_that_fails_says_why_with_its_exit_code_and_is_not_requeued(queue: Path, tmp_path: Path) -> None:
    plan = frozen(tmp_path / "runs", 2, "engine.dead_after=1", "max_restarts=0")
    code, _, error = ended(script("slurm_array.sbatch", plan.folder, 2, **task(0, queue)))
    assert code == 1 and "error: engine scripted" in error
    assert not asked(queue)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [([], "which sweep?"), (["runs/sweeps/x"], "how many shards"), (["runs/sweeps/x", "4"], "--array=0-3")],
)
def test_an_array_without_what_it_needs_says_what_to_give(arguments: list[str], told: str) -> None:
    code, _, error = ended(script("slurm_array.sbatch", *arguments))
    assert code != 0 and told in error


# Servers

_FAKE_SERVER = """
import os, signal, subprocess, sys, time
from tests.engines.servers import FOUR, FakeServer, listing

print(*sys.argv[1:], "on", os.environ.get("CUDA_VISIBLE_DEVICES"), flush=True)
child = subprocess.Popen(["sleep", "600"])  # an engine process that does not end by itself
print("child", child.pid, flush=True)
if "--broken" in sys.argv:
    sys.exit("no such model")
if "--mute" in sys.argv:
    time.sleep(600)

def chat(call):
    time.sleep(0.5 if "--slow" in sys.argv else 0)
    return FOUR

with FakeServer(chat, models=listing(sys.argv[1]), port=int(sys.argv[sys.argv.index("--port") + 1])):
    signal.sigwait([signal.SIGTERM])
"""


@pytest.fixture
def serve(tmp_path: Path) -> dict[str, str]:
    """What `serve.sbatch` is told: a server of ours in the place of `vllm serve`, two of them, and where logs go."""
    program = tmp_path / "server.py"
    program.write_text(_FAKE_SERVER)
    return {
        "SERVE": f"{sys.executable} {program}",
        "SERVE_LOGS": str(tmp_path / "logs"),
        "REPLICAS": "2",
        "PYTHONPATH": str(ROOT),
        "CUDA_VISIBLE_DEVICES": "",
    }


def servers_said(tmp_path: Path) -> list[str]:
    return [line for log in sorted(tmp_path.glob("logs/server-*.log")) for line in log.read_text().splitlines()]


def assert_nothing_is_left(tmp_path: Path) -> None:
    children = [int(line.split()[1]) for line in servers_said(tmp_path) if line.startswith("child")]
    assert children
    wait_for(lambda: not any(is_alive(child) for child in children))
    mine = str(tmp_path / "server.py")
    assert not [p for p in psutil.process_iter(["cmdline"]) if mine in (p.info["cmdline"] or [])]


@pytest.mark.slow
def test_servers_are_started_asked_and_ended(serve: dict[str, str], tmp_path: Path) -> None:
    sweep = ["task=arithmetic", "limit=3", "protocol.rounds=1,2", f"output={tmp_path / 'runs'}"]
    gpus = {"CUDA_VISIBLE_DEVICES": "0,1,GPU-5,7", "GPUS_EACH": "2", "SERVE_OPTIONS": "--max-model-len 4096"}
    code, told, error = ended(script("serve.sbatch", "org/some-model", *sweep, **{**serve, **gpus}))
    assert code == 0, error
    assert "2 servers of org/some-model answer" in told and "best debate" in told
    (folder,) = tmp_path.glob("runs/sweeps/*")
    run = load_sweep(folder).runs[0]
    assert run.done and run.record["engine_identity"]["default"]["model"] == "org/some-model"
    started = [line for line in servers_said(tmp_path) if "--port" in line]
    for line, place in zip(started, ("0,1", "GPU-5,7"), strict=True):
        assert line.startswith("org/some-model ") and line.endswith(f"on {place}")
        assert "--tensor-parallel-size 2 --max-model-len 4096" in line
    assert_nothing_is_left(tmp_path)


def test_a_server_that_dies_while_it_loads_ends_all_and_shows_its_last_words(
    serve: dict[str, str], tmp_path: Path
) -> None:
    code, _, error = ended(script("serve.sbatch", "m", "task=arithmetic", **{**serve, "SERVE_OPTIONS": "--broken"}))
    assert code == 1 and "server 0 does not answer" in error and "no such model" in error
    assert_nothing_is_left(tmp_path)


@pytest.mark.slow
def test_servers_that_do_not_answer_in_time_or_are_not_waited_for_are_ended(
    serve: dict[str, str], tmp_path: Path
) -> None:
    mute = {**serve, "SERVE_OPTIONS": "--mute"}
    code, _, error = ended(script("serve.sbatch", "m", "task=arithmetic", **{**mute, "WAIT_SECONDS": "1"}))
    assert code == 1 and "server 0 does not answer" in error
    assert_nothing_is_left(tmp_path)
    process = script("serve.sbatch", "m", "task=arithmetic", **mute)
    before = len(servers_said(tmp_path))
    wait_for(lambda: len(servers_said(tmp_path)) == before + 4, process)
    process.terminate()
    assert ended(process)[0] != 0
    assert_nothing_is_left(tmp_path)


def test_more_servers_than_gpus_are_refused(serve: dict[str, str], tmp_path: Path) -> None:
    gpus = {"CUDA_VISIBLE_DEVICES": "0,1", "GPUS_EACH": "2"}
    code, _, error = ended(script("serve.sbatch", "m", "task=arithmetic", **{**serve, **gpus}))
    assert code == 2 and "2 servers of 2 GPUs do not fit on 2 (0 1)" in error
    assert not servers_said(tmp_path)


@pytest.mark.slow
@pytest.mark.hazard("C28")
def test_a_job_with_servers_that_comes_to_its_time_limit_is_requeued_and_leaves_nothing(
    serve: dict[str, str], queue: Path, tmp_path: Path
) -> None:
    job = {"SLURM_JOB_ID": "70", "PATH": f"{queue}{os.pathsep}{os.environ['PATH']}"}
    sweep = ["task=arithmetic", "limit=30", "engine.concurrency=2", f"output={tmp_path / 'runs'}"]
    process = script("serve.sbatch", "m", *sweep, **{**serve, **job, "SERVE_OPTIONS": "--slow"})
    wait_for(lambda: generating(tmp_path / "runs"), process)
    process.send_signal(signal.SIGUSR1)
    code, _, error = ended(process)
    assert code == 130, error
    assert asked(queue) == ["requeue 70"]
    assert_nothing_is_left(tmp_path)
