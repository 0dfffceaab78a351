"""Launcher `slurm` where there is no Slurm, and with commands of our own in its place: what is handed over, and when.

`tests/slurm` has a real cluster.
"""

import json
import pickletools
import subprocess
import sys
from pathlib import Path

import pytest

import debate_local
from debate_local.cli import main
from debate_local.launchers.slurm import ShardsOf, run_shards
from debate_local.sweep.store import load_sweep

pytestmark = pytest.mark.slow

SWEEP = ["engine=scripted", "task=arithmetic", "limit=4", "protocol.agents=2,3", "controls=false"]

# Slurm opens a task's files as soon as it likes: here, before sbatch returns. It runs nothing.
_SBATCH = """
import pathlib, re, sys
script = pathlib.Path(sys.argv[-1]).read_text()
for name in re.findall("^#SBATCH --(?:output|error)=(.+)$", script, re.MULTILINE):
    (pathlib.Path(name.strip("'")).parent / "slurm was here").touch()
print("Submitted batch job 77")
"""
_REFUSING = "import sys\nsys.exit('sbatch: error: QOSMaxSubmitJobPerUserLimit')"


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with Slurm's commands, the only one on the PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    bodies = {"sbatch": _SBATCH, "srun": "", "scontrol": "print('MaxArraySize = 1001')", "sinfo": ""}
    for name, body in bodies.items():
        (folder / name).write_text(f"#!{sys.executable}\n{body}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    return folder


def submit(output: Path, *options: str) -> int:
    shards = ["hydra/launcher=slurm", "hydra.launcher.shards=2"]
    return main(["run", "-m", *SWEEP, *shards, f"output='{output}'", *options])


def test_a_machine_without_slurm_is_told_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert submit(tmp_path / "runs") == 2
    told = capsys.readouterr().err
    assert "sbatch, srun, scontrol" in told and "hydra/launcher=local" in told


@pytest.mark.hazard("C11")
def test_the_folder_of_the_logs_is_there_before_slurm_may_begin(commands: Path, tmp_path: Path) -> None:
    assert submit(tmp_path / "runs") == 0
    (log,) = (tmp_path / "runs").rglob("slurm was here")
    assert log.parent.parent.name == "logs"


@pytest.mark.hazard("C15")
def test_an_array_that_sbatch_refuses_is_told_with_its_reason(
    commands: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (commands / "sbatch").write_text(f"#!{sys.executable}\n{_REFUSING}\n")
    assert submit(tmp_path / "runs") == 2
    told = capsys.readouterr()
    assert "sbatch refused the array: " in told.err and "QOSMaxSubmitJobPerUserLimit" in told.err
    assert "submitted" not in told.out


@pytest.mark.hazard("C13")
@pytest.mark.parametrize("options", [["time=2"], ["time=0"], ["time=5", "signal_seconds=300"]])
def test_a_task_that_would_be_told_to_stop_as_soon_as_it_begins_is_refused(
    options: list[str], commands: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert submit(tmp_path / "runs", *(f"hydra.launcher.{option}" for option in options)) == 2
    assert "leaves no time before the warning" in capsys.readouterr().err


def test_a_folder_that_slurm_would_write_otherwise_is_refused(
    commands: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert submit(tmp_path / "50%j") == 2
    assert "choose another output=" in capsys.readouterr().err
    assert not list(tmp_path.rglob("slurm was here"))


@pytest.mark.hazard("C16")
def test_what_is_handed_over_is_an_import_path_and_plain_data(commands: Path, tmp_path: Path) -> None:
    # As a person starts it: our own code is __main__ then, and an object of it could not be found elsewhere.
    options = ["hydra/launcher=slurm", "hydra.launcher.shards=2", f"output={tmp_path / 'runs'}"]
    command = [sys.executable, "-m", "debate_local.cli", "run", "-m", *SWEEP, *options]
    subprocess.run(command, check=True, capture_output=True)
    pickles = list((tmp_path / "runs").rglob("*_submitted.pkl"))
    assert len(pickles) == 2
    for path in pickles:
        words = [argument for _, argument, _ in pickletools.genops(path.read_bytes()) if isinstance(argument, str)]
        assert "__main__" not in words
        assert "debate_local.launchers.slurm" in words
        assert not {"Cell", "Plan", "DictConfig", "_make_function"} & set(words)
    read = "import pickle, sys; print(pickle.load(open(sys.argv[1], 'rb')).args[0].shards)"
    told = [subprocess.check_output([sys.executable, "-c", read, path], cwd=tmp_path, text=True) for path in pickles]
    assert sorted(told) == ["('0/2',)\n", "('1/2',)\n"]


@pytest.mark.hazard("C12")
def test_a_task_that_is_requeued_is_given_the_same_again() -> None:
    given = ShardsOf("/runs/sweeps/1a2b3c4d", ("3/16",), True, 50)
    again = run_shards.checkpoint(given)
    assert again.function is run_shards and again.args == (given,)


@pytest.mark.hazard("C05")
def test_what_is_submitted_bears_the_names_of_what_is_run_here(commands: Path, tmp_path: Path) -> None:
    assert submit(tmp_path / "queue") == 0
    here = debate_local.run([*SWEEP, f"output={tmp_path / 'here'}"], multirun=True)
    (queued,) = (tmp_path / "queue" / "sweeps").iterdir()
    assert queued.name == here.folder.name
    planned = [run["id"] for run in json.loads((queued / "plan.json").read_text())["runs"]]
    assert planned == [run.id for run in here.runs]
    assert main(["work", str(queued)]) == 0
    assert [run.id for run in load_sweep(queued).runs] == planned
