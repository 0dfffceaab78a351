"""The shards of a sweep as one Slurm array, through submitit; whoever submits returns at once.

What is submitted is an import path and plain data. A task that is told to stop keeps what was answered, closes its
engine and goes back into the queue, from where it continues from its cache. Nothing here needs Slurm's accounting.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from debate_local.sweep.frozen import FrozenPlan
from debate_local.sweep.options import OptionFault
from debate_local.sweep.shards import Shard


class SlurmFault(OptionFault):
    """The array cannot be submitted: says why, and what there is."""


@dataclass(frozen=True, slots=True)
class SlurmSettings:
    """What is asked of Slurm. Names as sbatch has them.

    shards: into how many slices the items are dealt. throttle: tasks that may run at once, None for all. time: minutes
    a task may take before it is requeued. signal_seconds: how long before that it is told. sbatch: further options
    as on its command line: --gres=gpu:a100:1, --exclusive. setup: shell lines before the worker starts, such as module
    loads.
    """

    shards: int = 1
    throttle: int | None = None
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    time: int = 240
    gpus_per_task: int = 0
    cpus_per_task: int | None = None
    mem_gb: float | None = None
    signal_seconds: int = 120
    max_requeues: int = 50
    sbatch: Sequence[str] = ()
    setup: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Submitted:
    """An array in the queue. tasks: the shards of each."""

    job: str
    tasks: tuple[tuple[int, ...], ...]


# Until Python listens, the warning would kill the task instead of being heard: it is ignored until then.
_PYTHON = f"""sh -c {shlex.quote('trap "" USR2 USR1; exec "$0" "$@"')} {shlex.quote(sys.executable)}"""


def submit(
    frozen: FrozenPlan,
    shards: Sequence[Shard],
    settings: SlurmSettings,
    retry_failed: bool = False,
    after: str | None = None,
) -> Submitted:
    """Submit shards as one array, several to a task where the cluster's arrays are smaller. Raises SlurmFault.

    after: a job of which every task must have succeeded before this one begins; where one fails, this one is dropped.
    """
    import submitit

    _require_slurm()
    tasks = _tasks(shards, _max_array_size())
    logs = (frozen.folder / "logs").absolute()
    # Slurm opens the tasks' files before anything of ours runs: without their folder they fail without a word (C11).
    logs.mkdir(parents=True, exist_ok=True)
    if wrong := sorted({"%", "\\", "\n"}.intersection(str(logs))):
        raise SlurmFault(f"Slurm cannot write logs below {str(logs)!r}, which holds {wrong}: choose another output=")
    # How often is ours to say (max_requeues); submitit takes every warning of a short job for a time-out.
    executor = submitit.SlurmExecutor(folder=logs / "slurm", max_num_timeout=10**6, python=_PYTHON)
    parameters = _parameters(frozen, settings, len(tasks))
    if after is not None:
        parameters["dependency"] = f"afterok:{after}"
        parameters["additional_parameters"]["kill-on-invalid-dep"] = "yes"
    executor.update_parameters(**parameters)
    sweep = str(frozen.folder.absolute())
    work = [ShardsOf(sweep, names, retry_failed, settings.max_requeues) for names in tasks]
    try:
        jobs = executor.map_array(run_shards, work)
    except (submitit.core.utils.FailedJobError, subprocess.CalledProcessError, OSError) as error:
        raise SlurmFault(f"sbatch refused the array: {_reason(error)}{_partitions()}") from error
    return Submitted(jobs[0].job_id.split("_")[0], tuple(tuple(_number(name) for name in names) for names in tasks))


Fate = Literal["ours to requeue", "requeued by Slurm", "cancelled"]


@dataclass(frozen=True)
class ShardsOf:
    """What a task of the array is given: plain data."""

    sweep: str
    shards: tuple[str, ...]
    retry_failed: bool
    max_requeues: int


class _Worker:
    """The function of each task; submitit asks a callable with `checkpoint` how a requeued task goes on."""

    def __call__(self, given: ShardsOf) -> None:
        """Run the shards; when told to stop, go back into the queue. Raises RunFailed when something is missing."""
        from debate_local.commands.work import work
        from debate_local.sweep.run import RunFailed

        try:
            result = work(Path(given.sweep), given.shards, given.retry_failed)
        except KeyboardInterrupt as stop:
            fate = _fate()
            if fate == "ours to requeue":
                _requeue(given.max_requeues, str(stop))
            # Not 0 for any of them: a task that did not do its work has not completed.
            raise SystemExit(130 if fate == "cancelled" else os.EX_TEMPFAIL) from stop
        if result.problems:
            raise RunFailed("\n".join(result.problems))

    def checkpoint(self, given: ShardsOf) -> Any:
        """The same again: all that it needs is in the cache."""
        import submitit

        return submitit.helpers.DelayedSubmission(self, given)


run_shards = _Worker()


def _job() -> str:
    """This task's id. Not SLURM_JOB_ID in an array: that of the last task is the id of the whole array."""
    array, task = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    return os.environ["SLURM_JOB_ID"] if array is None else f"{array}_{task}"


def _fate() -> Fate:
    """What becomes of a task that was told to stop, from what Slurm knows of it.

    A cancelled one could be requeued as well as the others, and would come back to life: it must not be.
    """
    words = (word.partition("=") for word in _said("scontrol", "show", "job", "-o", _job()).split())
    job = {name: value for name, _, value in words}
    if job.get("JobState") == "RUNNING":
        return "ours to requeue"
    if int(job.get("Restarts", "0")) > int(os.environ.get("SLURM_RESTART_COUNT", "0")):
        return "requeued by Slurm"
    ended_by_slurm = job.get("Reason") == "TimeLimit" or job.get("PreemptTime", "None") not in ("None", "Unknown")
    return "ours to requeue" if ended_by_slurm else "cancelled"


def _requeue(most: int, why: str) -> None:
    """Put this task back into the queue; Slurm ends the process then. Raises SlurmFault when it was too often."""
    restarts = int(os.environ.get("SLURM_RESTART_COUNT", "0"))
    if restarts >= most:
        raise SlurmFault(f"told to stop by {why} after {restarts} requeues (max_requeues): not queued again")
    done = subprocess.run(["scontrol", "requeue", _job()], capture_output=True, text=True, check=False, timeout=60)
    if done.returncode:
        raise SlurmFault(f"told to stop by {why}, and Slurm does not requeue the job: {done.stderr.strip()}")


def _require_slurm() -> None:
    missing = [name for name in ("sbatch", "srun", "scontrol") if shutil.which(name) is None]
    if missing:
        raise SlurmFault(
            f"hydra/launcher=slurm needs Slurm's commands, and this machine lacks {', '.join(missing)}: submit from a "
            "login node of the cluster, or use hydra/launcher=local"
        )


def _tasks(shards: Sequence[Shard], most: int) -> list[tuple[str, ...]]:
    """The shards by task: one each, or as many together as an array of at most so many tasks needs."""
    together = -(-len(shards) // most)
    names = [f"{shard.number}/{shard.count}" for shard in shards]
    return [tuple(names[start : start + together]) for start in range(0, len(names), together)]


def _max_array_size() -> int:
    """How many tasks an array may have: MaxArraySize itself is the first index that is refused (C15)."""
    found = re.search(r"MaxArraySize\s*=\s*(\d+)", _said("scontrol", "show", "config"))
    return max(1, int(found[1]) if found else 1000)


def _parameters(frozen: FrozenPlan, settings: SlurmSettings, tasks: int) -> dict[str, Any]:
    """Settings as submitit has them; what is not set is left to the cluster."""
    if settings.throttle is not None and settings.throttle < 1:
        raise SlurmFault(f"hydra.launcher.throttle must be at least 1, or null for no limit; got {settings.throttle}")
    if settings.time * 60 <= settings.signal_seconds:
        # It would be told to stop as soon as it begins, be requeued, and so on.
        raise SlurmFault(
            f"hydra.launcher.time={settings.time} (minutes) leaves no time before the warning, which comes "
            f"hydra.launcher.signal_seconds={settings.signal_seconds} before the end: more time, or a later warning"
        )
    asked = {
        "job_name": f"debate-{frozen.id}",
        "partition": settings.partition,
        "account": settings.account,
        "qos": settings.qos,
        "constraint": settings.constraint,
        "time": settings.time,
        "gpus_per_task": settings.gpus_per_task or None,
        "cpus_per_task": settings.cpus_per_task,
        "mem": f"{round(settings.mem_gb * 1024)}MB" if settings.mem_gb else None,
        "ntasks_per_node": 1,
        "signal_delay_s": settings.signal_seconds,
        "array_parallelism": settings.throttle or tasks,
        "setup": list(settings.setup) or None,
        # So that a task that is told to stop may go back into the queue, whatever the cluster's default is.
        "additional_parameters": {"requeue": True, **_options(settings.sbatch)},
    }
    return {name: value for name, value in asked.items() if value is not None}


def _options(lines: Sequence[str]) -> dict[str, Any]:
    """`--gres=gpu:1` and `--exclusive` as names with values. Raises SlurmFault for what is neither."""
    found: dict[str, Any] = {}
    for line in lines:
        match = re.fullmatch(r"--([a-z][\w-]*)(?:=(.*))?", line)
        if match is None:
            raise SlurmFault(f"hydra.launcher.sbatch has {line!r}: write its options as --name=value, or --name")
        found[match[1]] = True if match[2] is None else match[2]
    return found


def _said(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def _reason(error: Exception) -> str:
    said = getattr(error, "stderr", None) or str(error)
    text = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
    return "; ".join(line.strip() for line in text.splitlines() if line.strip())


def _partitions() -> str:
    names = sorted(set(_said("sinfo", "--noheader", "--format=%R").split()))
    return f". The partitions: {', '.join(names)}" if names else ""


def _number(name: str) -> int:
    return int(name.partition("/")[0])
