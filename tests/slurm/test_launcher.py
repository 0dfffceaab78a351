"""Launcher `slurm` on a real cluster: returns at once, loses nothing, and says what went wrong."""

import re
import time
from pathlib import Path

import pytest

import debate_local
from debate_local.cli import main
from debate_local.sweep.frozen import read_frozen
from debate_local.sweep.status import status
from debate_local.sweep.store import Sweep, load_sweep
from tests.slurm.cluster import Cluster, running
from tests.sweep.test_hydra import FOLDER, assert_asked_in_these_words, odd, typed
from tests.sweep.test_run import assert_equal_tables

pytestmark = [pytest.mark.slurm, pytest.mark.slow]

SWEEP = ["engine=scripted", "task=arithmetic", "limit=12", "protocol.agents=2,3", "max_samples=0"]
SLURM = ["hydra/launcher=slurm", "hydra.launcher.time=5", "hydra.launcher.signal_seconds=30"]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    return debate_local.run([*SWEEP, f"output={tmp_path_factory.mktemp('whole')}"], multirun=True)


def submitted(output: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[str, Path]:
    """Submit the sweep; the id of its job, and its folder."""
    started = time.monotonic()
    assert main(["run", "-m", *SWEEP, *SLURM, f"output={output}", *options]) == 0, capsys.readouterr().err
    assert time.monotonic() - started < 60, "it does not wait for the jobs"
    told = capsys.readouterr().out
    (folder,) = output.glob("sweeps/*")
    for line in (f"debate-local status {folder} --watch", f"debate-local resume {folder} --on slurm", "scancel "):
        assert line in told
    found = re.search(r"submitted: job (\d+)", told)
    assert found is not None
    return found[1], folder


@pytest.mark.hazard("C12")
def test_an_array_that_is_throttled_and_disturbed_stores_what_one_process_stores(
    undisturbed: Sweep, on_slurm: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["hydra.launcher.shards=4", "hydra.launcher.throttle=2", "engine.latency=0.4", "max_live=4"]
    job, folder = submitted(tmp_path, capsys, *options)
    most = 0

    def generating() -> list[int]:
        nonlocal most
        states = on_slurm.squeue()
        most = max(most, sum(state == "RUNNING" for task, state in states.items() if task.startswith(f"{job}_")))
        return [s.number for s in status(read_frozen(folder)).shards if s.state == "running" and s.turns_done]

    # The last task bears the id of the whole array: the others must not be requeued with it.
    struck = 3
    on_slurm.until(lambda: struck in generating(), "a last shard that generates")
    on_slurm.signal(f"{job}_{struck}", "USR2")
    on_slurm.until(lambda: not _of(job, on_slurm.squeue()), "the end of the array", 240)
    tasks = on_slurm.tasks(job)
    assert {task.state for task in tasks.values()} == {"COMPLETED"}
    assert {id: task.restarts for id, task in tasks.items()} == {f"{job}_{n}": int(n == struck) for n in range(4)}, (
        "the one that was told to stop was requeued, once"
    )
    assert most == 2, "never more at once than the throttle allows"
    assert_equal_tables(undisturbed, load_sweep(folder))
    logs = list(folder.glob(f"logs/events-*-{struck:04d}-*.jsonl"))
    assert len(logs) == 2 and any("SIGUSR2" in log.read_text() for log in logs)
    assert main(["status", str(folder)]) == 0
    assert "4 done" in capsys.readouterr().out


def test_a_second_array_waits_for_the_first_and_asks_what_the_debates_tokens_pay_for(
    on_slurm: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = debate_local.run([*SWEEP, "max_samples=20", f"output={tmp_path / 'whole'}"], multirun=True)
    output = tmp_path / "runs"
    command = ["run", "-m", *SWEEP, *SLURM, "max_samples=20", f"output={output}", "hydra.launcher.shards=2"]
    assert main(command) == 0
    told = capsys.readouterr().out
    first, second = re.findall(r"job (\d+)", told)
    assert f"scancel {first} {second}" in told
    on_slurm.until(lambda: not _of(first, on_slurm.squeue()) and not _of(second, on_slurm.squeue()), "both ends", 240)
    assert {task.state for job in (first, second) for task in on_slurm.tasks(job).values()} == {"COMPLETED"}
    (folder,) = output.glob("sweeps/*")
    assert_equal_tables(whole, load_sweep(folder))
    assert status(read_frozen(folder)).done


def test_a_second_array_is_dropped_with_the_first(
    on_slurm: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = ["engine.latency=2", "max_live=1", "hydra.launcher.shards=2", "max_samples=20"]
    assert main(["run", "-m", *SWEEP, *SLURM, *slow, f"output={tmp_path}"]) == 0
    first, second = re.findall(r"job (\d+)", capsys.readouterr().out)
    on_slurm.until(lambda: "RUNNING" in on_slurm.squeue().values(), "a task that runs")
    on_slurm.run("scancel", first)
    on_slurm.until(lambda: not _of(first, on_slurm.squeue()) and not _of(second, on_slurm.squeue()), "both ends", 240)
    (folder,) = tmp_path.glob("sweeps/*")
    assert not status(read_frozen(folder)).first_phase_done


def _of(job: str, queue: dict[str, str]) -> list[str]:
    return [task for task in queue if task.partition("_")[0] == job]


@pytest.mark.hazard("C10", "C09")
def test_a_failed_task_leaves_its_trace_hides_no_other_and_only_it_is_resumed(
    undisturbed: Sweep, on_slurm: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job, folder = submitted(tmp_path, capsys, "hydra.launcher.shards=3", "engine.dead_after=30", "max_restarts=0")
    tasks = on_slurm.wait(job)
    failed = sorted(int(id.partition("_")[2]) for id, task in tasks.items() if task.state == "FAILED")
    assert failed, "an engine that dies makes its task fail"
    assert main(["status", str(folder)]) == 1
    shown = capsys.readouterr().out
    assert f"{len(failed)} failed" in shown and "the engine died" in shown
    whole = {shard.number for shard in status(read_frozen(folder)).shards if shard.state == "done"}
    assert whole == {0, 1, 2} - set(failed)
    # The same sweep with an engine that lives, submitted again: only what is missing is run.
    options = ["hydra.launcher.shards=3", "engine.dead_after=null"]
    job, _ = submitted(tmp_path, capsys, *options)
    assert {task.state for task in on_slurm.wait(job).values()} == {"COMPLETED"}
    assert_equal_tables(undisturbed, load_sweep(folder))


def test_resume_submits_only_the_missing_shards_with_the_settings_of_the_start(
    undisturbed: Sweep, on_slurm: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job, folder = submitted(
        tmp_path,
        capsys,
        "hydra.launcher.shards=3",
        "engine.latency=1.0",
        "max_live=2",
        'hydra.launcher.sbatch=["--comment=a test"]',
    )
    frozen = read_frozen(folder)
    on_slurm.until(lambda: any(s.state == "running" for s in status(frozen).shards), "a shard that runs")
    on_slurm.run("scancel", job)
    states = {task.state for task in on_slurm.wait(job).values()}
    assert states == {"CANCELLED"}, "a task that was cancelled does not go back into the queue"
    time.sleep(1)
    assert not _of(job, on_slurm.squeue())
    # Shard 2 is done elsewhere, with an engine that answers at once.
    quick = ["run", "-m", *SWEEP, "hydra/launcher=freeze", "hydra.launcher.shards=3", f"output={tmp_path}"]
    assert main(quick) == 0
    assert main(["work", str(folder), "--shard", "2/3"]) == 0
    capsys.readouterr()
    assert main(["resume", str(folder), "--on", "slurm"]) == 0
    found = re.search(r"submitted: job (\d+), 2 shards", capsys.readouterr().out)
    assert found is not None
    assert {task.state for task in on_slurm.wait(found[1]).values()} == {"COMPLETED"}
    assert_equal_tables(undisturbed, load_sweep(folder))


@pytest.mark.hazard("C03")
def test_values_and_folders_of_all_kinds_of_letters_arrive_at_the_tasks(
    on_slurm: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(odd(tmp_path / FOLDER, *SLURM, "hydra.launcher.shards=2")) == 0, capsys.readouterr().err
    told = capsys.readouterr().out
    found = re.search(r"submitted: job (\d+)", told)
    assert found is not None
    tasks = on_slurm.wait(found[1])
    (folder,) = (tmp_path / FOLDER / "sweeps").iterdir()
    logs = "".join(path.read_text() for path in folder.glob("logs/slurm/*.err"))
    assert {task.state for task in tasks.values()} == {"COMPLETED"}, logs
    assert_asked_in_these_words(load_sweep(folder))
    for line, words in (("watch: ", ["status", str(folder), "--watch"]), ("results: ", ["show", str(folder)])):
        assert typed(told, line) == words


@pytest.mark.hazard("C13")
def test_a_pre_empted_task_is_requeued_and_no_failure(
    undisturbed: Sweep, on_slurm: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job, folder = submitted(tmp_path, capsys, "hydra.launcher.shards=2", "engine.latency=0.5", "max_live=4")
    frozen = read_frozen(folder)
    on_slurm.until(lambda: [s.state for s in status(frozen).shards] == ["running"] * 2, "two shards that run")
    urgent = on_slurm.submit("--partition=urgent", "--ntasks=8", "--output=/dev/null", "--wrap", "sleep 2")
    on_slurm.until(lambda: all(task.restarts for task in on_slurm.tasks(job).values()), "the pre-emption")
    assert {task.state for task in on_slurm.wait(urgent).values()} == {"COMPLETED"}
    tasks = on_slurm.wait(job, 240)
    assert {task.state for task in tasks.values()} == {"COMPLETED"}
    assert {task.restarts for task in tasks.values()} == {1}
    assert_equal_tables(undisturbed, load_sweep(folder))
    assert not list(tmp_path.glob("cache/*/*.live")), "what was answered before is kept, and used"


@pytest.mark.slow
@pytest.mark.hazard("C12", "C28")
def test_a_task_that_comes_to_its_time_limit_is_requeued_and_goes_on_from_its_cache(
    undisturbed: Sweep, on_slurm: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # A minute is the shortest limit; the controller looks every 30 s. One shard takes longer than that.
    options = ["hydra.launcher.shards=1", "hydra.launcher.time=1", "hydra.launcher.signal_seconds=30"]
    job, folder = submitted(tmp_path, capsys, *options, "engine.latency=2", "max_live=1")
    on_slurm.until(lambda: any(task.restarts for task in on_slurm.tasks(job).values()), "the time limit", 180)
    first = max(folder.glob("logs/events*"), key=lambda path: path.stat().st_mtime)
    assert "SIGUSR2" in first.read_text(), "it was told before it was ended"
    # From here on with an engine that answers at once: the plan is read when the task begins again.
    assert main(["run", "-m", *SWEEP, "hydra/launcher=freeze", "hydra.launcher.shards=1", f"output={tmp_path}"]) == 0
    (task,) = on_slurm.wait(job, 240).values()
    assert task.state == "COMPLETED"
    assert_equal_tables(undisturbed, load_sweep(folder))


@pytest.mark.hazard("C12")
def test_a_task_that_was_requeued_as_often_as_it_may_has_failed(
    on_slurm: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["hydra.launcher.shards=1", "hydra.launcher.max_requeues=0", "engine.latency=1", "max_live=2"]
    job, folder = submitted(tmp_path, capsys, *options)
    frozen = read_frozen(folder)
    on_slurm.until(lambda: status(frozen).shards[0].turns_done, "a shard that generates")
    on_slurm.signal(job, "USR2")
    (task,) = on_slurm.wait(job).values()
    assert (task.state, task.restarts) == ("FAILED", 0)
    said = "".join(path.read_text() for path in folder.glob("logs/slurm/*.err"))
    assert "told to stop by SIGUSR2 after 0 requeues (max_requeues): not queued again" in said
    assert status(frozen).shards[0].state == "stopped"


@pytest.mark.hazard("C15")
def test_more_shards_than_an_array_may_have_tasks_go_several_to_a_task(
    undisturbed: Sweep, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(max_array_size=3) as small:
        monkeypatch.setenv("SLURM_CONF", small.env["SLURM_CONF"])
        job, folder = submitted(tmp_path, capsys, "hydra.launcher.shards=5")
        assert {task.state for task in small.wait(job).values()} == {"COMPLETED"}
        assert len(small.tasks(job)) == 3
    assert_equal_tables(undisturbed, load_sweep(folder))


@pytest.mark.parametrize(
    "option, told",
    [
        ("hydra.launcher.partition=nowhere", "The partitions: main, urgent"),
        ("hydra.launcher.shards=0", "at least 1 shard"),
        ("hydra.launcher.shards=13", "at most one for each of its 12 items"),
        ("hydra.launcher.throttle=0", "throttle must be at least 1"),
        ("hydra.launcher.constraint=no-such-feature", "sbatch refused the array"),
        ('hydra.launcher.sbatch=["--no-such-option=1"]', "sbatch refused the array"),
        ("hydra.launcher.sbatch=[exclusive]", "--name=value"),
        ("hydra.launcher.partitoin=main", "partitoin"),
    ],
)
@pytest.mark.hazard("C15")
def test_what_cannot_be_submitted_is_told_at_once(
    option: str, told: str, on_slurm: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = on_slurm.squeue()
    assert main(["run", "-m", *SWEEP, *SLURM, f"output={tmp_path}", option]) == 2
    assert told in capsys.readouterr().err
    assert on_slurm.squeue() == before


@pytest.mark.slow
@pytest.mark.vllm
@pytest.mark.timeout(900)
def test_two_shards_on_real_vllm_store_the_same_items_turns_and_requests_as_one_process(
    on_slurm: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("vllm")
    sweep = ["task=arithmetic", "limit=4", "protocol.agents=2", "sampling.max_tokens=16", "controls=false"]
    engine = ["engine=vllm", "engine.kv_cache_gib=0.5", "engine.max_model_len=1024"]
    command = ["run", "-m", *sweep, *engine, *SLURM, "hydra.launcher.shards=2", "hydra.launcher.throttle=1"]
    assert main([*command, f"output={tmp_path}"]) == 0, capsys.readouterr().err
    found = re.search(r"submitted: job (\d+)", capsys.readouterr().out)
    assert found is not None
    assert {task.state for task in on_slurm.wait(found[1], 800).values()} == {"COMPLETED"}
    (folder,) = tmp_path.glob("sweeps/*")
    (run,) = load_sweep(folder).runs
    (plan,) = read_frozen(folder).plan().runs
    assert run.done
    assert run.debates["item_id"].to_list() == [item.id for item in plan.task.items]
    assert run.turns["item_id"].value_counts()["count"].to_list() == [plan.calls] * 4
    assert all(run.turns["generated_tokens"] > 0) and run.turns["finish_reason"].is_in(["stop", "length"]).all()
