"""Ctrl-C, a full disk, missing weights, no terminal: a clear message, nothing lost, the same command goes on."""

import ast
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import debate_local
from debate_local.cli import main
from debate_local.engines.cache import cache_report
from debate_local.sweep.store import load_sweep
from tests.sweep.test_run import assert_equal_tables, sent
from tests.sweep.test_shards import SWEEP, files, frozen, wait_for

pytestmark = pytest.mark.slow

SLOW = ["engine=scripted", "task=arithmetic", "limit=40", "engine.latency=0.3", "max_live=16"]
QUICK = ["engine=scripted", "task=arithmetic", "limit=40"]


def start(overrides: list[str], output: Path, **options: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "debate_local.cli", "run", *overrides, f"output={output}"]
    return subprocess.Popen(  # type: ignore[call-overload,no-any-return]
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


@pytest.mark.slow
def test_ctrl_c_says_how_to_go_on_and_the_rerun_asks_only_the_rest(tmp_path: Path) -> None:
    process = start(SLOW, tmp_path)
    while not list(tmp_path.glob("cache/*/part-*")):
        assert process.poll() is None
        time.sleep(0.02)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "run the same command again to go on" in told and "Traceback" not in told
    kept = sum(entry.entries for entry in cache_report(tmp_path / "cache"))
    assert kept > 0 and not list(tmp_path.glob("cache/*/*.live"))
    whole = debate_local.run([*QUICK, f"output={tmp_path / 'whole'}"])
    rerun = debate_local.run([*QUICK, f"output={tmp_path}"])
    assert sent(rerun) == sent(whole) - kept
    assert_equal_tables(whole, rerun)


@pytest.mark.parametrize("kib", [16, 48, 120])
def test_a_full_disk_is_told_and_a_rerun_with_room_completes(kib: int, tmp_path: Path) -> None:
    def little_room() -> None:
        # A file may not grow beyond this: writing fails as on a full disk (SIGXFSZ is ignored by Python).
        resource.setrlimit(resource.RLIMIT_FSIZE, (kib * 1024, kib * 1024))

    process = start(QUICK, tmp_path, preexec_fn=little_room)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 1, told
    assert "Traceback" not in told
    assert "make room" in told
    kept = sum(entry.entries for entry in cache_report(tmp_path / "cache"))
    whole = debate_local.run([*QUICK, f"output={tmp_path / 'whole'}"])
    rerun = debate_local.run([*QUICK, f"output={tmp_path}"])
    assert_equal_tables(whole, rerun)
    assert sent(rerun) <= sent(whole)
    assert sum(entry.entries for entry in cache_report(tmp_path / "cache")) == sent(whole) >= kept


@pytest.mark.parametrize("model", ["no/such-model", "nothing.gguf", "/no/such/folder"])
def test_missing_weights_are_told_with_the_ways_to_get_some(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    code = main(["run", "engine=vllm", f"engine.model={model}", "limit=1", f"output={tmp_path}"])
    told = capsys.readouterr().err
    assert code == 2
    assert model in told and "smollm2-135m-instruct" in told
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("kib", [16, 60])
def test_a_full_disk_ends_a_shard_with_a_clear_message_and_no_other(kib: int, tmp_path: Path) -> None:
    def little_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (kib * 1024, kib * 1024))

    whole = debate_local.run([*SWEEP, f"output={tmp_path / 'whole'}"], multirun=True)
    plan = frozen(tmp_path / "shards", 2)
    command = [sys.executable, "-m", "debate_local.cli", "work", str(plan.folder), "--shard"]
    full = subprocess.run([*command, "0/2"], capture_output=True, text=True, preexec_fn=little_room, check=False)
    assert full.returncode == 1 and "make room" in full.stderr and "Traceback" not in full.stderr, full.stderr
    assert main(["work", str(plan.folder), "--shard", "1/2"]) == 0
    assert main(["resume", str(plan.folder)]) == 0
    assert files(load_sweep(plan.folder)) == files(whole)


# No terminal


@pytest.mark.hazard("C18")
def test_nothing_waits_for_somebody_to_type(tmp_path: Path) -> None:
    asking = {"input", "getpass", "confirm", "prompt_toolkit"}
    top = Path(__file__).parents[2]
    for file in [*(top / "debate_local").rglob("*.py"), *(top / "launch").rglob("*.py")]:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            called = node.func if isinstance(node, ast.Call) else None
            name = getattr(called, "id", None) or getattr(called, "attr", None)
            assert name not in asking, f"{file}, line {getattr(node, 'lineno', '?')}"
    closed = start(["limit=2", *QUICK[:2]], tmp_path, preexec_fn=lambda: os.close(0))
    _, told = closed.communicate(timeout=120)
    assert closed.returncode == 0, told


@pytest.mark.parametrize("command", ["work", "resume"])
@pytest.mark.slow
def test_the_end_of_a_terminal_does_not_end_what_was_started_with_nohup(command: str, tmp_path: Path) -> None:
    plan = frozen(tmp_path, 1, "limit=6", "engine.latency=0.1", "max_live=2")
    process = subprocess.Popen(
        [sys.executable, "-m", "debate_local.cli", command, str(plan.folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # As nohup does.
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )
    wait_for(lambda: list(tmp_path.glob("cache/*/*.live")), process)
    process.send_signal(signal.SIGHUP)
    told, _ = process.communicate(timeout=120)
    assert process.returncode == 0, told
    assert all(run.done for run in load_sweep(plan.folder).runs)
