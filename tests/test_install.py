"""The package as others get it: a wheel and an editable install, each in an environment of its own, far from here."""

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

CHECKOUT = Path(__file__).parents[1]


def environment(folder: Path) -> Path:
    """A virtual environment that sees this one's packages, but not the editable install of the checkout."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = (folder / "lib").glob("python*/site-packages")
    # Path files of a folder that a path file names are not read: our own editable install stays out.
    (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin"


def pip(bin: Path, *arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--python", str(bin / "python"), "install", "-q", "--no-deps", "--no-index"]
    subprocess.run([*command, "--ignore-installed", "--no-build-isolation", *arguments], check=True)


def output(folder: Path, *command: str | Path) -> str:
    done = subprocess.run([str(part) for part in command], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("way", ["wheel", "editable"])
def test_a_fresh_environment_finds_the_launcher_and_runs_a_sweep(way: str, tmp_path: Path) -> None:
    bin = environment(tmp_path / "environment")
    if way == "wheel":
        build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path / "dist")]
        subprocess.run([*build, str(CHECKOUT)], check=True, capture_output=True)
        pip(bin, *map(str, (tmp_path / "dist").glob("*.whl")))
    else:
        pip(bin, "-e", str(CHECKOUT))
    far = tmp_path / "far"
    far.mkdir()
    where = output(far, bin / "python", "-c", "import debate_local; print(debate_local.__file__)").strip()
    inside = tmp_path / "environment" if way == "wheel" else CHECKOUT
    assert Path(where).is_relative_to(inside)
    launcher = output(far, bin / "debate-local", "run", "--cfg", "hydra", "-p", "hydra.launcher")
    assert "hydra_plugins.debate_local.fused.FusedLauncher" in launcher
    sweep = ["run", "-m", "engine=scripted", "task=arithmetic", "limit=2", "protocol.rounds=1,2", "max_samples=0"]
    assert "best debate" in output(far, bin / "debate-local", *sweep)
    assert len(list((far / "runs").glob("*/done"))) == 6
