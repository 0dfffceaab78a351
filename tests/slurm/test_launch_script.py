"""`launch/slurm_array.sbatch` on a real cluster."""

import sys
from pathlib import Path

import pytest

import debate_local
from debate_local.sweep.frozen import FrozenPlan
from debate_local.sweep.store import Sweep, load_sweep
from tests.slurm.cluster import Cluster
from tests.sweep.test_shards import SWEEP, files, frozen

pytestmark = [pytest.mark.slurm, pytest.mark.slow]

SCRIPT = Path(__file__).parents[2] / "launch" / "slurm_array.sbatch"
PROGRAM = Path(sys.executable).with_name("debate-local")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    return debate_local.run([*SWEEP, f"output={tmp_path_factory.mktemp('whole')}"], multirun=True)


def submitted(cluster: Cluster, plan: FrozenPlan, *options: str) -> str:
    """As the comment at the script's head says; the id of the job."""
    output = f"--output={plan.folder / 'logs' / 'slurm-%A_%a.log'}"
    place = [f"--export=ALL,DEBATE_LOCAL={PROGRAM}", "--cpus-per-task=1"]
    shards = len(plan.shards)
    array = f"--array=0-{shards - 1}"
    return cluster.submit(array, output, *place, *options, str(SCRIPT), str(plan.folder), str(shards))


def generating(plan: FrozenPlan, number: int) -> bool:
    logs = plan.folder.glob(f"logs/events-*-{number:04d}-*.jsonl")
    return any('"event": "progress"' in log.read_text() for log in logs)


@pytest.mark.hazard("C28")
def test_the_task_that_comes_to_its_time_limit_goes_back_to_the_queue_alone_and_nothing_is_lost(
    undisturbed: Sweep, slurm_cluster: Cluster, tmp_path: Path
) -> None:
    plan = frozen(tmp_path, 3, "engine.latency=0.4", "max_live=4")
    job = submitted(slurm_cluster, plan)
    # The last one: its job id is that of the whole array.
    slurm_cluster.until(lambda: generating(plan, 2), "shard 2 to generate")
    slurm_cluster.run("scancel", "--batch", "--signal=USR1", f"{job}_2")
    tasks = slurm_cluster.wait(job)
    slurm_cluster.until(lambda: all(t.state == "COMPLETED" for t in slurm_cluster.tasks(job).values()), "the rest")
    tasks = slurm_cluster.tasks(job)
    assert {id: task.restarts for id, task in tasks.items()} == {f"{job}_0": 0, f"{job}_1": 0, f"{job}_2": 1}
    assert files(load_sweep(plan.folder)) == files(undisturbed)
    (log,) = plan.folder.glob("logs/slurm-*_2.log")
    assert log.read_text().count("goes back to the queue") == 1


def test_a_task_that_is_cancelled_keeps_what_it_has_and_does_not_come_back(
    slurm_cluster: Cluster, tmp_path: Path
) -> None:
    plan = frozen(tmp_path, 2, "engine.latency=0.4", "max_live=4")
    job = submitted(slurm_cluster, plan)
    slurm_cluster.until(lambda: generating(plan, 0) and generating(plan, 1), "both shards to generate")
    slurm_cluster.run("scancel", f"{job}_0")
    tasks = slurm_cluster.wait(job)
    assert (tasks[f"{job}_0"].state, tasks[f"{job}_1"].state) == ("CANCELLED", "COMPLETED")
    assert [task.restarts for task in tasks.values()] == [0, 0]
    assert not list(tmp_path.glob("cache/*/*.live")), "its part of the cache is sealed"
