"""A real Slurm cluster of one node on 127.0.0.1. Knows Slurm; knows nothing of debates.

Everything of it lies in one temporary folder, key and configuration included; nothing is written to /etc. Accounting
is off: `sacct` knows nothing here, as on many a small cluster, and nobody may rely on it.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_LONGEST_START = 60.0
# Where Debian keeps daemons, on the PATH or not.
_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "scancel", "squeue", "sinfo")
ENDED = frozenset(("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "PREEMPTED", "NODE_FAIL", "OUT_OF_MEMORY"))


class SlurmMissing(RuntimeError):
    """No cluster can be had here; the message says why."""


@dataclass(frozen=True, slots=True)
class Task:
    """A job, or one task of an array, as the controller sees it.

    id: 7, or 7_2 for a task. state: PENDING, RUNNING, COMPLETING, or one of ENDED. reason: why it waits or has ended.
    restarts: how often it was requeued. exit_code: CODE:SIGNAL.
    """

    id: str
    state: str
    reason: str
    restarts: int
    exit_code: str


@dataclass(frozen=True)
class Cluster:
    """A running cluster. env: the environment for every Slurm command and for what calls them."""

    folder: Path
    env: Mapping[str, str]

    def run(self, *command: str) -> str:
        """What a command prints, in the cluster's environment. Raises RuntimeError with what it complained of."""
        done = self.attempt(*command)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} failed with {done.returncode}: {done.stderr}{done.stdout}")
        return done.stdout

    def attempt(self, *command: str) -> subprocess.CompletedProcess[str]:
        """A command that may fail, in the cluster's environment."""
        return subprocess.run(command, env=self.env, capture_output=True, text=True, check=False, timeout=120)

    def submit(self, *arguments: str) -> str:
        """`sbatch` with these arguments; the id of the job."""
        return self.run("sbatch", "--parsable", *arguments).strip()

    def squeue(self) -> dict[str, str]:
        """Job or task -> state, for all that has not ended yet; each task of an array by itself."""
        lines = self.run("squeue", "--noheader", "--array", "--format=%i %T").splitlines()
        return dict(line.split(maxsplit=1) for line in lines)

    def tasks(self, job: str) -> dict[str, Task]:
        """The tasks of a job by their ids, ended ones too, sorted; a job that is no array is its own only task.

        The tasks of an array that have not begun yet stand together under one id, as Slurm has them: 7_[2-3%2].
        """
        lines = self.run("scontrol", "show", "job", "--oneliner", job).splitlines()
        found = [_task(line) for line in lines if line.strip()]
        return {task.id: task for task in sorted(found, key=lambda task: (len(task.id), task.id))}

    def wait(self, job: str, seconds: float = 120) -> dict[str, Task]:
        """The tasks of a job, once all have ended. Raises TimeoutError."""
        self.until(lambda: all(task.state in ENDED for task in self.tasks(job).values()), f"the end of {job}", seconds)
        return self.tasks(job)

    def signal(self, job: str, name: str) -> None:
        """Send a signal (USR2, TERM, ...) to every process of what a running job or task started with `srun`.

        As a scheduler does, but for one thing: scancel sends it twice in a row. To the step and not to the job, because
        for a task of an array that still has pending ones Slurm 22.05 sends the signal and says "try again later", and
        scancel does so for a minute and a half: the task's next life would get it too.
        """
        self.run("scancel", f"--signal={name}", f"{job}.0")

    def until(self, condition: Callable[[], object], what: str, seconds: float = 120) -> None:
        """Wait for a condition. Raises TimeoutError with the queue and the ends of the logs."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                queue = self.attempt("squeue", "--array").stdout
                raise TimeoutError(f"waited {seconds:g} s in vain for {what}\n{queue}\n{_said(self.folder)}")
            time.sleep(0.1)


def _task(line: str) -> Task:
    """One line of `scontrol show job --oneliner`: words NAME=VALUE; the values that matter here have no spaces."""
    values = dict(word.split("=", 1) for word in line.split() if "=" in word)
    id = values["JobId"]
    if "ArrayJobId" in values:
        index = values["ArrayTaskId"]
        id = f"{values['ArrayJobId']}_{index if index.isdigit() else f'[{index}]'}"
    return Task(id, values["JobState"], values["Reason"], int(values["Restarts"]), values["ExitCode"])


def install() -> None:
    """Install Slurm and Munge from Debian's packages where they are absent. Raises SlurmMissing."""
    if os.geteuid() != 0:
        raise SlurmMissing("only root can start a Slurm cluster")
    if not (missing := _missing()):
        return
    if shutil.which("apt-get", path=_PATH) is None:
        raise SlurmMissing(f"{', '.join(missing)} not found, and this system has no apt-get to install them with")
    apt = ["apt-get", "-y", "-q", "-o", "DPkg::Lock::Timeout=120"]
    packages = [*apt, "install", "--no-install-recommends", "slurm-wlm", "munge"]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "PATH": _PATH}
    said = ""
    for command in (packages, [*apt, "update"], packages):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=600)
        said = f"{' '.join(command)}: exit code {done.returncode}\n{(done.stdout + done.stderr)[-2000:]}"
        if not (missing := _missing()):
            return
    raise SlurmMissing(f"{', '.join(missing)} could not be installed.\n{said}")


def _missing() -> list[str]:
    return [program for program in _PROGRAMS if shutil.which(program, path=_PATH) is None]


@contextlib.contextmanager
def running(cpus: int = 8, max_array_size: int = 1001, kill_wait: int = 5) -> Iterator[Cluster]:
    """A cluster with an idle node; it and all its jobs are ended on leaving. Raises SlurmMissing, RuntimeError.

    cpus: how many the node claims to have, real or not: as many one-CPU tasks run at once. max_array_size: the first
    array index that is refused. kill_wait: seconds from TERM to KILL. Partitions: `main`, the default one, whose jobs
    give way to those of `urgent` and are requeued. The node claims four GPUs.
    """
    install()
    # Not pytest's own folder: the path of a socket may have 107 bytes.
    with tempfile.TemporaryDirectory(prefix="slurm-") as name:
        folder = Path(name)
        _write(folder, cpus, max_array_size, kill_wait)
        settings = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
        environment = {**settings, "PATH": _PATH, "SLURM_CONF": str(folder / "slurm.conf")}
        with (folder / "guard.out").open("wb") as said:
            guard = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("guard.py")), str(os.getpid()), name],
                env=environment,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )
        try:
            cluster = Cluster(folder, environment)
            _await_idle(cluster, guard)
            yield cluster
        finally:
            guard.send_signal(signal.SIGTERM)
            guard.wait(30)


# Set by another Slurm around us, and read by the commands of ours.
_FOREIGN = ("SLURM", "SBATCH_", "SALLOC_", "SRUN_", "SQUEUE_", "SINFO_", "SCONTROL_", "SCANCEL_", "SUBMITIT_")


def _await_idle(cluster: Cluster, guard: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _LONGEST_START
    while cluster.attempt("sinfo", "--noheader", "--partition=main", "--format=%T").stdout.strip() != "idle":
        if guard.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the Slurm cluster did not start:\n{_said(cluster.folder)}")
        time.sleep(0.05)


def _said(folder: Path) -> str:
    """The ends of all logs."""
    ends = []
    for file in sorted(folder.glob("*.out")):
        ends.append(f"--- {file.name}\n{file.read_text(encoding='utf-8', errors='replace')[-1500:]}")
    return "\n".join(ends)


def _write(folder: Path, cpus: int, max_array_size: int, kill_wait: int) -> None:
    """Configuration, key and state folders."""
    for name in ("state", "spool"):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.touch(0o600)
    key.write_bytes(os.urandom(128))
    for number in range(4):
        # Slurm wants a device there, whichever: a task that asks for a GPU gets CUDA_VISIBLE_DEVICES, and no GPU.
        (folder / f"gpu{number}").symlink_to(os.devnull)
    (folder / "gres.conf").write_text(f"Name=gpu File={folder}/gpu[0-3]\n", encoding="utf-8")
    host = socket.gethostname().split(".")[0]
    controller, node = _free_ports()
    (folder / "slurm.conf").write_text(
        _CONFIGURATION.format(
            folder=folder,
            host=host,
            controller_port=controller,
            node_port=node,
            cpus=cpus,
            max_array_size=max_array_size,
            kill_wait=kill_wait,
        ),
        encoding="utf-8",
    )


def _free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as other:
        for probe in (one, other):
            probe.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1]), int(other.getsockname()[1])


# cred_expire: a requeued job may begin again when its old credential has expired; 120 s by default.
# config_overrides: the node has what is written here. MinJobAge: how long scontrol remembers an ended job.
_CONFIGURATION = """\
ClusterName=debate
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=1
ReturnToService=2
MinJobAge=3600
KillWait={kill_wait}
MaxArraySize={max_array_size}
GresTypes=gpu
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory=65536 Gres=gpu:4 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES PriorityTier=1 GraceTime={kill_wait} State=UP
PartitionName=urgent Nodes=ALL PriorityTier=10 PreemptMode=OFF State=UP
"""
