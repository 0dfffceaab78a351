"""The test cluster does what real ones do to a task: throttle, signal, pre-empt, requeue, cut off, refuse."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.slurm import listener
from tests.slurm.cluster import Cluster, SlurmMissing, running
from tests.slurm.listener import notes

pytestmark = [pytest.mark.slurm, pytest.mark.slow]


def listening(cluster: Cluster, file: Path, *options: str) -> str:
    """Submit a listener; the id of its job, once parent and child listen. `srun` is what a task's signals come to."""
    command = f"srun --quiet {sys.executable} {listener.__file__} {file}"
    job = cluster.submit("--output=/dev/null", *options, "--wrap", command)
    cluster.until(lambda: {"parent listens 0", "child listens 0"} <= set(notes(file)), f"job {job} to listen")
    return job


def let_end(cluster: Cluster, job: str, file: Path) -> None:
    file.with_suffix(".end").touch()
    cluster.wait(job)


def test_a_task_runs_and_its_end_is_known_without_accounting(slurm_cluster: Cluster) -> None:
    good, bad = (slurm_cluster.submit("--output=/dev/null", "--wrap", f"exit {code}") for code in (0, 3))
    (good_end,), (bad_end,) = slurm_cluster.wait(good).values(), slurm_cluster.wait(bad).values()
    assert (good_end.state, good_end.exit_code) == ("COMPLETED", "0:0")
    assert (bad_end.state, bad_end.exit_code) == ("FAILED", "3:0")
    assert slurm_cluster.attempt("sacct", "-j", good).returncode != 0


def test_an_array_with_throttle_2_runs_two_tasks_at_once_and_never_three(
    slurm_cluster: Cluster, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    # Each waits for a second one to have begun, so two must run together; then long enough for a third to show.
    script = f"""echo begin >> {log}
until [ $(grep -c begin {log}) -ge 2 ]; do sleep 0.1; done
sleep 1.5
echo end >> {log}"""
    job = slurm_cluster.submit("--array=0-3%2", "--output=/dev/null", "--wrap", script)
    tasks = slurm_cluster.wait(job)
    assert {id: task.state for id, task in tasks.items()} == {f"{job}_{index}": "COMPLETED" for index in range(4)}
    at_once = [0]
    for line in notes(log):
        at_once.append(at_once[-1] + (1 if line == "begin" else -1))
    assert max(at_once) == 2 and len(at_once) == 9


def test_tasks_that_ask_for_a_gpu_are_shown_different_ones(slurm_cluster: Cluster, tmp_path: Path) -> None:
    log = tmp_path / "log"
    script = f"echo gpu $CUDA_VISIBLE_DEVICES >> {log}; until [ $(grep -c gpu {log}) -ge 2 ]; do sleep 0.1; done"
    job = slurm_cluster.submit("--array=0-1", "--gpus-per-node=1", "--output=/dev/null", "--wrap", script)
    slurm_cluster.wait(job)
    assert sorted(notes(log)) == ["gpu 0", "gpu 1"]


@pytest.mark.parametrize("name", ["USR2", "TERM"])
def test_a_signal_reaches_a_task_and_its_child_in_a_session_of_its_own(
    name: str, slurm_cluster: Cluster, tmp_path: Path
) -> None:
    file = tmp_path / "heard"
    job = listening(slurm_cluster, file)
    slurm_cluster.signal(job, name)
    slurm_cluster.until(lambda: {f"parent {name} 0", f"child {name} 0"} <= set(notes(file)), f"{name} to be heard")
    assert slurm_cluster.tasks(job)[job].state == "RUNNING"
    let_end(slurm_cluster, job, file)


def test_a_signal_to_the_whole_job_kills_its_batch_shell_unless_that_has_a_trap(
    slurm_cluster: Cluster, tmp_path: Path
) -> None:
    shells = {"bare": "sleep 60 & wait", "trapped": "trap : USR2; sleep 60 & wait; wait"}
    ready = tmp_path / "ready"
    jobs = {
        name: slurm_cluster.submit(
            "--output=/dev/null", "--wrap", f"{shell.split('sleep')[0]}echo up >> {ready}\n{shell}"
        )
        for name, shell in shells.items()
    }
    slurm_cluster.until(lambda: len(notes(ready)) == 2, "both shells")
    for job in jobs.values():
        slurm_cluster.run("scancel", "--full", "--signal=USR2", job)
    assert slurm_cluster.wait(jobs["bare"])[jobs["bare"]].exit_code == f"0:{signal.SIGUSR2.value}"
    assert slurm_cluster.tasks(jobs["trapped"])[jobs["trapped"]].state in ("RUNNING", "COMPLETED")
    slurm_cluster.run("scancel", jobs["trapped"])


def test_a_requeued_task_runs_again_and_knows_that_it_does(slurm_cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "heard"
    job = listening(slurm_cluster, file)
    slurm_cluster.run("scontrol", "requeue", job)
    slurm_cluster.until(lambda: "parent listens 1" in notes(file), "the second life")
    assert {"parent TERM 0", "child TERM 0"} <= set(notes(file))
    assert slurm_cluster.tasks(job)[job].restarts == 1
    let_end(slurm_cluster, job, file)
    assert slurm_cluster.tasks(job)[job].state == "COMPLETED"


def test_the_last_task_of_an_array_bears_the_id_of_the_whole_array(slurm_cluster: Cluster, tmp_path: Path) -> None:
    """Why a task names itself ARRAY_INDEX: `scontrol requeue $SLURM_JOB_ID` in the last one requeues all of them."""
    log = tmp_path / "log"
    job = slurm_cluster.submit("--array=0-2%1", "--output=/dev/null", "--wrap", f"echo $SLURM_JOB_ID >> {log}")
    slurm_cluster.wait(job)
    first, second, last = notes(log)
    assert last == job and job not in (first, second)
    slurm_cluster.run("scontrol", "requeue", last)
    slurm_cluster.until(lambda: len(notes(log)) == 6, "every task to run again")
    slurm_cluster.run("scontrol", "requeue", f"{job}_2")
    slurm_cluster.until(lambda: len(notes(log)) == 7, "the last task to run again")
    assert [task.restarts for task in slurm_cluster.wait(job).values()] == [1, 1, 2]


def test_a_cancelled_task_that_requeues_itself_comes_back(slurm_cluster: Cluster, tmp_path: Path) -> None:
    """Why a task that hears TERM must ask what has happened before it requeues itself."""
    log = tmp_path / "log"
    script = f"""trap 'scontrol requeue $SLURM_JOB_ID; exit' TERM
echo life ${{SLURM_RESTART_COUNT:-0}} >> {log}
[ -n "$SLURM_RESTART_COUNT" ] || while true; do sleep 0.1; done"""
    job = slurm_cluster.submit("--output=/dev/null", "--wrap", script)
    slurm_cluster.until(lambda: notes(log), "the first life")
    slurm_cluster.run("scancel", "--full", job)
    slurm_cluster.until(lambda: notes(log) == ["life 0", "life 1"], "the second life")
    slurm_cluster.wait(job)


def test_a_time_limit_sends_the_signal_that_was_asked_for_before_it_ends_the_task(
    slurm_cluster: Cluster, tmp_path: Path
) -> None:
    # The controller looks at time limits every 30 s, and warns up to 30 s early: here, 10 to 40 s after the start.
    file = tmp_path / "heard"
    job = listening(slurm_cluster, file, "--time=2", "--signal=USR2@80")
    slurm_cluster.until(lambda: {"parent USR2 0", "child USR2 0"} <= set(notes(file)), "the warning", 90)
    assert not any("TERM" in line for line in notes(file))
    assert slurm_cluster.tasks(job)[job].state == "RUNNING"
    let_end(slurm_cluster, job, file)


def test_a_preempted_task_hears_term_while_it_still_runs_and_begins_again(
    slurm_cluster: Cluster, tmp_path: Path
) -> None:
    file = tmp_path / "heard"
    job = listening(slurm_cluster, file)
    urgent = slurm_cluster.submit("--partition=urgent", "--ntasks=8", "--output=/dev/null", "--wrap", "true")
    slurm_cluster.until(lambda: "parent TERM 0" in notes(file), "the pre-emption")
    slurm_cluster.until(lambda: "parent listens 1" in notes(file), "the second life")
    let_end(slurm_cluster, job, file)
    assert slurm_cluster.tasks(job)[job].state == "COMPLETED"
    assert slurm_cluster.wait(urgent)[urgent].state == "COMPLETED"


def test_an_array_index_of_max_array_size_is_refused(tmp_path: Path) -> None:
    with running(max_array_size=4) as small:
        small.wait(small.submit("--array=0-3", "--output=/dev/null", "--wrap", "true"))
        refused = small.attempt("sbatch", "--array=0-4", "--wrap", "true")
        assert refused.returncode == 1 and "Invalid job array specification" in refused.stderr
        assert small.attempt("sbatch", "--array=4-5", "--wrap", "true").returncode == 1


_LEAVE = """
import os, sys, time
from tests.slurm.cluster import running
with running() as cluster:
    cluster.submit("--output=/dev/null", "--wrap", f"setsid {sys.argv[1]} 1001 & {sys.argv[1]} 1002")
    cluster.until(lambda: "RUNNING" in cluster.squeue().values(), "the job")
    time.sleep(0.5)
    print("up", flush=True)
    if sys.argv[2] == "raise":
        raise ValueError("a test failed")
    time.sleep(600)
"""


@pytest.mark.parametrize("how", ["raise", "kill"])
def test_nothing_of_a_cluster_outlives_the_tests(how: str, slurm_cluster: Cluster, tmp_path: Path) -> None:
    sleeper = tmp_path / "sleeper"
    sleeper.symlink_to("/bin/sleep")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", _LEAVE, str(sleeper), how], env=environment, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None and owner.stdout.readline() == "up\n"
        if how == "kill":
            assert len(_naming(tmp_path)) >= 5  # two sleepers, three daemons
            owner.kill()
        owner.wait(30)
    slurm_cluster.until(lambda: not _naming(tmp_path), "the other cluster's end", 30)
    slurm_cluster.until(lambda: not list(tmp_path.glob("slurm-*")), "its folder to be gone", 30)


def _naming(path: Path) -> list[list[str]]:
    """The command lines of all processes that name a path."""
    lines = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
    return [line for line in lines if any(str(path) in word for word in line)]


def test_a_cluster_is_refused_to_anybody_but_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(SlurmMissing, match="only root"), running():
        pass
