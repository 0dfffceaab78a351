"""Trackers are told what a sweep's log says, and nothing that they do is felt by the sweep."""

import importlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import debate_local
from debate_local.analysis.summary import summarise
from debate_local.cli import main
from debate_local.sweep.compose import compose
from debate_local.sweep.events import Event, EventLog, ListenerEnded
from debate_local.sweep.frozen import freeze
from debate_local.sweep.options import OptionFault
from debate_local.sweep.plan import make_plan
from debate_local.sweep.run import SweepResult, run_plan
from debate_local.sweep.store import Sweep, load_sweep
from debate_local.trackers.follow import follow
from debate_local.trackers.process import TrackerProcess
from debate_local.trackers.tracker import Told
from tests.alive import is_alive
from tests.sweep.test_shards import files

pytestmark = pytest.mark.slow

SWEEP = ["engine=scripted", "task=arithmetic", "limit=4", "protocol.rounds=1,2"]
NAMES = ("tensorboard", "wandb", "mlflow")


@dataclass
class Heard:
    """What a tracker's own files hold: the settings and progress of each start, settings and results of each run."""

    starts: list[tuple[Mapping[str, str], list[Mapping[str, float]]]] = field(default_factory=list)
    runs: dict[str, tuple[Mapping[str, str], Mapping[str, float]]] = field(default_factory=dict)
    told: int = 0

    def add_run(self, id: str, settings: Mapping[str, str], numbers: Mapping[str, float]) -> None:
        self.runs[id] = (settings, numbers)
        self.told += 1


def read_tensorboard(folder: Path) -> Heard:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
    from tensorboard.util.tensor_util import make_ndarray

    def opened(one: Path) -> Any:
        return EventAccumulator(str(one)).Reload()

    def scalars(events: Any) -> dict[str, list[float]]:
        return {tag.partition("/")[2]: [e.value for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}

    heard = Heard()
    for one in folder.glob("tensorboard/*/starts/*"):
        events = opened(one)
        (text,) = make_ndarray(events.Tensors("start")[0].tensor_proto).flatten()
        columns = scalars(events)
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        heard.starts.append((json.loads(text), rows))
    for one in folder.glob("tensorboard/*/runs/*"):
        events = opened(one)
        data = HParamsPluginData.FromString(
            events.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
        ).session_start_info
        settings = {key: str(getattr(value, value.WhichOneof("kind"))) for key, value in data.hparams.items()}
        heard.add_run(one.name, settings, {name: values[-1] for name, values in scalars(events).items()})
        heard.told += len(list(one.iterdir())) - 1
    return heard


def read_mlflow(folder: Path) -> Heard:
    from mlflow import MlflowClient

    client = MlflowClient((folder / "mlruns").absolute().as_uri())
    heard = Heard()
    (experiment,) = [one for one in client.search_experiments() if one.name == "debate-local"]
    for run in client.search_runs([experiment.experiment_id]):
        assert run.info.status == "FINISHED"
        if run.data.tags["kind"] == "result":
            heard.add_run(run.data.params["run"], run.data.params, run.data.metrics)
        else:
            history = {name: client.get_metric_history(run.info.run_id, name) for name in run.data.metrics}
            rows = [
                dict(zip(history, (m.value for m in row), strict=True)) for row in zip(*history.values(), strict=True)
            ]
            heard.starts.append((run.data.params, rows))
    return heard


def read_wandb(folder: Path) -> Heard:
    from wandb.proto.wandb_internal_pb2 import Record

    heard = Heard()
    for path in folder.glob("wandb/offline-run-*/run-*.wandb"):
        config: dict[str, Any] = {}
        summary: dict[str, float] = {}
        rows: list[Mapping[str, float]] = []
        for record in map(Record.FromString, _leveldb_records(path.read_bytes())):
            config |= {item.key: str(json.loads(item.value_json)) for item in record.run.config.update}
            summary |= {item.key: json.loads(item.value_json) for item in record.summary.update}
            if record.history.item:
                rows.append({i.key or ".".join(i.nested_key): json.loads(i.value_json) for i in record.history.item})
        if "run" in config:
            heard.add_run(config["run"], config, summary)
        else:
            heard.starts.append((config, rows))
    return heard


def _leveldb_records(data: bytes) -> Iterator[bytes]:
    """wandb's file: seven bytes, then LevelDB's log format (blocks of 32 KiB; chunks: checksum, length, kind)."""
    position, whole = 7, b""
    while position + 7 <= len(data):
        if 32768 - position % 32768 < 7:
            position += 32768 - position % 32768
        _, length, kind = struct.unpack_from("<IHB", data, position)
        whole += data[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):
            yield whole
            whole = b""


READERS: dict[str, Callable[[Path], Heard]] = {
    "tensorboard": read_tensorboard,
    "mlflow": read_mlflow,
    "wandb": read_wandb,
}


@pytest.fixture(autouse=True)
def no_settings_of_a_person(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith(("WANDB_", "MLFLOW_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")


def overrides(output: Path, tracker: str, *more: str) -> list[str]:
    return [*SWEEP, f"output={output}", f"tracker={tracker}", *more]


def warnings(sweep: Sweep) -> list[str]:
    logs = sorted(sweep.folder.glob("logs/events*.jsonl"))
    events = [json.loads(line) for log in logs for line in log.read_text().splitlines()]
    return [event["text"] for event in events if event["event"] == "warning"]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    output = tmp_path_factory.mktemp("whole")
    sweep = debate_local.run([*SWEEP, f"output={output}"], multirun=True)
    assert not (output / "trackers").exists() and not list(sweep.folder.glob("logs/tracker*")), "off by default"
    return sweep


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_tracker_has_the_settings_the_progress_and_every_runs_results_without_a_network_or_a_login(
    name: str, undisturbed: Sweep, tmp_path: Path
) -> None:
    pytest.importorskip(name)
    sweep = debate_local.run(overrides(tmp_path, name), multirun=True)
    assert files(sweep) == files(undisturbed)
    # wandb says where it keeps what it cannot send.
    told = warnings(sweep)
    assert len(told) == (name == "wandb") and all("wandb sync" in text for text in told), told
    heard = READERS[name](tmp_path / "trackers")
    ((settings, progress),) = heard.starts
    for cell in sweep.cells:
        # What a second phase holds need not be known at the start.
        bought = not cell.asked and all(name.startswith("sc_tokens") for name, _ in cell.controls)
        assert bought or cell.run.label in settings["cells"]
    assert settings["command"].startswith("debate_local.run") and "scripted" in settings["command"]
    assert progress[-1]["share_done"] == 1.0
    assert progress[-1]["turns"] == sum(len(run.turns) for run in sweep.runs)
    assert progress[-1]["sent"] > 0 and progress[-1]["tokens_per_second"] > 0
    assert set(heard.runs) == {run.id for run in sweep.runs} and heard.told == len(sweep.runs)
    for summary in summarise(sweep):
        given, numbers = heard.runs[summary.cell.run.id]
        assert given["protocol"] == summary.cell.run.record["protocol"]["name"] and given["sampling.max_tokens"]
        wanted = {"score": summary.score.value, "score_low": summary.score.low, "score_high": summary.score.high}
        wanted |= {"no_answer": summary.no_answer, "calls": summary.calls, "prompt_tokens": summary.prompt_tokens}
        assert {key: numbers[key] for key in wanted} == pytest.approx(wanted)


@pytest.mark.slow
def test_each_run_is_told_once_by_whichever_worker_sees_it_whole_and_a_tracker_that_comes_later_hears_of_all(
    tmp_path: Path,
) -> None:
    pytest.importorskip("tensorboard")
    cells, how = compose(overrides(tmp_path, "tensorboard", "max_samples=0"), multirun=True)
    plan = freeze(make_plan(cells), how, ["a test"], 3)
    workers = [
        subprocess.Popen([sys.executable, "-m", "debate_local.cli", "work", str(plan.folder), "--shard", f"{n}/3"])
        for n in range(3)
    ]
    assert [worker.wait(120) for worker in workers] == [0, 0, 0]
    heard = read_tensorboard(tmp_path / "trackers")
    runs = load_sweep(plan.folder).runs
    assert set(heard.runs) == {run.id for run in runs} and heard.told == len(runs)
    assert sorted(settings["shards"] for settings, _ in heard.starts) == ["0", "1", "2"]
    # Another start has nothing new to tell.
    assert main(["resume", str(plan.folder)]) == 0
    again = read_tensorboard(tmp_path / "trackers")
    assert again.told == heard.told and len(again.starts) == 4
    # A cell more, and a run that was told in another sweep stays told.
    more = debate_local.run([*overrides(tmp_path, "tensorboard"), "protocol.rounds=2,3"], multirun=True)
    assert read_tensorboard(tmp_path / "trackers").runs.keys() >= {run.id for run in more.runs} - set(heard.runs)


def test_a_tracker_that_is_not_installed_is_told_with_what_to_install_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    command = ["run", "-m", *overrides(tmp_path / "runs", "mlflow")]
    assert main(command) == 2
    assert "pip install 'debate-local[mlflow]'" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
    # A folder of the same name, as these packages make in the working folder, is no package.
    monkeypatch.delitem(sys.modules, "mlflow")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *(p for p in sys.path if not (Path(p) / "mlflow").exists())])
    (tmp_path / "mlflow").mkdir()
    importlib.invalidate_caches()
    assert main(command) == 2


@pytest.mark.parametrize("value", ["wanbd", "on", "3"])
def test_a_tracker_that_there_is_not_is_refused_with_those_that_there_are(value: str, tmp_path: Path) -> None:
    with pytest.raises(OptionFault, match="tracker must be one of: none, wandb, mlflow, tensorboard"):
        compose(overrides(tmp_path, value), multirun=True)


def test_a_tracker_is_not_swept_and_null_is_none(tmp_path: Path) -> None:
    assert compose(overrides(tmp_path, "null"), multirun=True)[1].tracker == "none"
    with pytest.raises(OptionFault, match="tracker do not change a result"):
        compose(overrides(tmp_path, "none,wandb"), multirun=True)


# Trackers that misbehave: a package called wandb that comes before the real one, in the tracker's process only.

_FAKE = """
import json, os, time

class Error(Exception):
    pass

def Settings(**given):
    return given

def note(kind, **values):
    with open(os.environ["FAKE_LOG"], "a") as file:
        file.write(json.dumps({"kind": kind, "pid": os.getpid(), **values}) + "\\n")

class Summary(dict):
    def update(self, numbers):
        note("result", numbers=numbers)

class Run:
    summary = Summary()
    def log(self, numbers, step):
        note("progress", numbers=numbers)
        if os.environ["FAKE"] == "raises":
            raise RuntimeError("no space left at wandb")
    def finish(self, exit_code=None):
        note("finish", exit_code=exit_code)

def init(**given):
    note("init", name=given["name"])
    if os.environ["FAKE"] == "hangs":
        time.sleep(600)
    if os.environ["FAKE"] == "dies":
        os.kill(os.getpid(), 9)
    return Run()
"""


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Callable[[], list[dict[str, Any]]]]:
    """fake(how)() is what was noted by a wandb that `raises`, `hangs`, `dies`, or is `fine`."""
    folder = tmp_path / "fake"
    folder.mkdir()
    (folder / "wandb.py").write_text(_FAKE)
    log = tmp_path / "fake.jsonl"

    def behaves(how: str) -> Callable[[], list[dict[str, Any]]]:
        monkeypatch.setenv("PYTHONPATH", str(folder))
        monkeypatch.setenv("FAKE", how)
        monkeypatch.setenv("FAKE_LOG", str(log))
        return lambda: [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    return behaves


def tracked(output: Path, tracker: TrackerProcess, *more: str) -> SweepResult:
    cells, how = compose([*SWEEP, f"output={output}", *more], multirun=True)
    return run_plan(make_plan(cells), how, ["a test"], [tracker])


def gone(noted: list[dict[str, Any]]) -> bool:
    return not any(is_alive(one["pid"]) for one in noted)


@pytest.mark.parametrize(
    ("how", "said"),
    [("raises", "RuntimeError: no space left at wandb"), ("dies", "the sweep goes on"), ("hangs", "gave no sign")],
)
def test_a_tracker_that_fails_or_hangs_is_one_warning_and_the_sweep_is_as_without_it(
    how: str, said: str, fake: Callable[[str], Callable[[], list[dict[str, Any]]]], undisturbed: Sweep, tmp_path: Path
) -> None:
    noted = fake(how)
    result = tracked(tmp_path / "runs", TrackerProcess("wandb", patience=3.0))
    assert files(result.sweep) == files(undisturbed) and not result.problems
    (warning,) = warnings(result.sweep)
    assert said in warning and "logs/tracker-" in warning
    assert noted() and gone(noted())


@pytest.mark.slow
def test_a_tracker_that_fails_while_the_sweep_runs_is_told_then(
    fake: Callable[[str], Callable[[], list[dict[str, Any]]]], tmp_path: Path
) -> None:
    fake("dies")
    result = tracked(tmp_path / "runs", TrackerProcess("wandb"), "engine.latency=0.5", "max_live=1", "controls=false")
    (log,) = result.sweep.folder.glob("logs/events*.jsonl")
    kinds = [json.loads(line)["event"] for line in log.read_text().splitlines()]
    assert kinds.count("warning") == 1 and kinds.index("warning") < kinds.index("end")


@pytest.mark.hazard("C14")
def test_the_end_of_a_sweep_that_is_killed_or_told_to_stop_is_its_trackers_end(
    fake: Callable[[str], Callable[[], list[dict[str, Any]]]], tmp_path: Path
) -> None:
    noted = fake("fine")
    for stop, code in ((signal.SIGKILL, -9), (signal.SIGTERM, 130)):
        output = tmp_path / stop.name
        command = ["run", "-m", *overrides(output, "wandb", "engine.latency=1", "max_live=1")]
        process = subprocess.Popen([sys.executable, "-m", "debate_local.cli", *command], stderr=subprocess.DEVNULL)
        before = len(noted())
        wait_for(lambda before=before: len(noted()) > before)
        # A batch system tells every process of a job.
        os.kill(noted()[-1]["pid"], signal.SIGTERM)
        process.send_signal(stop)
        assert process.wait(60) == code
        wait_for(lambda: gone(noted()))
        # One that was killed had no time to say so; one that was told to stop did nothing wrong.
        assert noted()[-1]["kind"] == "finish" and noted()[-1]["exit_code"] == int(stop is signal.SIGKILL)


def wait_for(there: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.slow
def test_wandb_with_a_key_and_a_server_that_cannot_be_reached_keeps_all_and_says_how_to_send_it(
    undisturbed: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb")
    with socket.socket() as held:
        # Bound, and nobody listens.
        held.bind(("127.0.0.1", 0))
        monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{held.getsockname()[1]}")
        monkeypatch.setenv("WANDB_API_KEY", "a" * 40)
        sweep = debate_local.run(overrides(tmp_path, "wandb"), multirun=True)
    (told,) = warnings(sweep)
    assert "wandb sync" in told and str(tmp_path / "trackers" / "wandb") in told
    assert set(read_wandb(tmp_path / "trackers").runs) == {run.id for run in undisturbed.runs}


# What a tracker is told, from a log of many events.


class Slow:
    """A tracker that takes its time over progress."""

    destination = "nowhere"

    def __init__(self) -> None:
        self.progress_told: list[Mapping[str, float]] = []
        self.runs: list[Told] = []
        self.failed: bool | None = None

    def progress(self, seconds: int, numbers: Mapping[str, float]) -> None:
        time.sleep(0.3)
        self.progress_told.append(numbers)

    def finished(self, run: Told) -> None:
        self.runs.append(run)

    def close(self, failed: bool) -> None:
        self.failed = failed


def test_a_slow_tracker_misses_progress_and_no_result(
    undisturbed: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = debate_local.run([*SWEEP, f"output={tmp_path}"], multirun=True)
    slow = Slow()
    module = type(sys)("debate_local.trackers.slow")
    module.slow = lambda start, folder: slow  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "debate_local.trackers.slow", module)
    log = tmp_path / "events.jsonl"
    first, *others = [json.loads(line) for line in next(sweep.folder.glob("logs/events*")).open()]
    one = next(event for event in others if event["event"] == "progress")
    many = [one | {"time": one["time"] + n / 2, "generated_tokens": 100 * n} for n in range(1, 1001)]
    log.write_text("".join(json.dumps(event) + "\n" for event in [first, *many, *others]))
    ended = threading.Event()
    ended.set()
    follow("slow", sweep.folder, log, ended)
    assert len(slow.progress_told) <= 2
    assert {run.id for run in slow.runs} == {run.id for run in sweep.runs}
    assert slow.failed is False


def test_counts_go_on_over_engines_that_each_count_from_zero(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = debate_local.run([*SWEEP, "engine.seed=1,2", f"output={tmp_path}", "controls=false"], multirun=True)
    slow = Slow()
    module = type(sys)("debate_local.trackers.slow")
    module.slow = lambda start, folder: slow  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "debate_local.trackers.slow", module)
    ended = threading.Event()
    ended.set()
    (log,) = sweep.folder.glob("logs/events*")
    follow("slow", sweep.folder, log, ended)
    events = [json.loads(line) for line in log.open()]
    engines = [event for event in events if event["event"] == "engine"]
    assert len(engines) == 2
    last = slow.progress_told[-1]
    assert last["sent"] == sum(event["sent"] for event in engines) > engines[-1]["sent"]
    assert last["generated_tokens"] == sum(event["generated_tokens"] for event in engines)
    assert last["share_done"] == 1.0


def test_a_listener_that_ends_is_left_out_and_its_reason_is_a_warning_to_the_others(tmp_path: Path) -> None:
    heard: list[Event] = []
    calls = 0

    def ends(event: Event) -> None:
        nonlocal calls
        calls += 1
        raise ListenerEnded("had enough")

    log = EventLog(tmp_path, (heard.append, ends))
    log.emit("start")
    log.emit("end")
    log.close()
    assert calls == 1
    assert [(event["event"], event.get("text")) for event in heard] == [
        ("start", None),
        ("warning", "had enough"),
        ("end", None),
    ]
    assert [json.loads(line)["event"] for line in next(tmp_path.iterdir()).open()] == ["start", "warning", "end"]
