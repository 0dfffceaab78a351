"""Launcher `slurm` where there is no Slurm."""

from pathlib import Path

import pytest

from debate_local.cli import main


def test_a_machine_without_slurm_is_told_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    overrides = ["engine=scripted", "task=arithmetic", "limit=4", f"output={tmp_path / 'runs'}"]
    assert main(["run", "-m", *overrides, "hydra/launcher=slurm", "hydra.launcher.shards=2"]) == 2
    told = capsys.readouterr().err
    assert "sbatch, srun, scontrol" in told and "hydra/launcher=local" in told
