"""Every experiment file states its command at its head, and that command runs."""

import shlex
from pathlib import Path

import pytest

from debate_local.cli import main
from debate_local.sweep.config import config_folder
from debate_local.sweep.store import Sweep, load

pytestmark = pytest.mark.slow

FILES = sorted((config_folder() / "experiment").glob("*.yaml"))
# What a machine of another kind needs: here the scripted engine answers, in this process.
_ELSEWHERE = ("engine.", "hydra")


def commands(file: Path) -> list[list[str]]:
    """The commands in the comment that a file begins with."""
    head = [line for line in file.read_text().split("\n\n")[0].splitlines() if line.startswith("#")]
    return [shlex.split(line.removeprefix("#")) for line in head if line.strip("# ").startswith("debate-local ")]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_commands_of_an_experiment_run(file: Path, tmp_path: Path) -> None:
    assert commands(file)
    for number, (program, verb, flag, *overrides) in enumerate(commands(file)):
        assert (program, verb, flag, overrides[0]) == ("debate-local", "run", "-m", f"experiment={file.stem}")
        here = [override for override in overrides if not override.startswith(_ELSEWHERE)]
        output = tmp_path / str(number)
        assert main([verb, flag, *here, "engine=scripted", "limit=2", f"output={output}"]) == 0
        (folder,) = output.glob("sweeps/*")
        sweep = load(folder)
        assert isinstance(sweep, Sweep)
        assert all(run.done for run in sweep.runs) and len({run.id for run in sweep.runs}) == len(sweep.runs)


def test_agents_x_rounds_is_eighteen_cells_and_their_controls_of_one_task(tmp_path: Path) -> None:
    ((_, *command),) = commands(config_folder() / "experiment" / "agents_x_rounds.yaml")
    assert main([*command, "engine=scripted", "limit=1", f"output={tmp_path}"]) == 0
    (folder,) = tmp_path.glob("sweeps/*")
    sweep = load(folder)
    assert isinstance(sweep, Sweep)
    asked = [cell.run.record for cell in sweep.cells if cell.asked]
    points = {
        (r["protocol"]["agents"], r["protocol"]["rounds"], r["cast"][0]["sampling"]["temperature"]) for r in asked
    }
    assert points == {(a, r, t) for a in (1, 3, 5) for r in (1, 2, 4) for t in (0.3, 1.0)} and len(asked) == 18
    assert len({run.record["rows_hash"] for run in sweep.runs}) == 1
