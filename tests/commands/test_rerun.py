"""A run can be made again from its run.json alone, and what is no longer as it was is told."""

import json
import shutil
from pathlib import Path

import pytest

import debate_local
from debate_local.cli import main
from debate_local.sweep.store import Run


@pytest.fixture
def stored(tmp_path: Path) -> Run:
    overrides = ["engine=scripted", "task=arithmetic", "limit=3", "controls=false", "cast=[{persona: Be terse.}, {}]"]
    (run,) = debate_local.run([*overrides, "sampling.stop=[END]", f"output={tmp_path / 'first'}"]).runs
    return run


def test_run_json_alone_makes_the_same_run_elsewhere(stored: Run, tmp_path: Path) -> None:
    alone = tmp_path / "sent_by_mail"
    alone.mkdir()
    shutil.copy(stored.folder / "run.json", alone)
    assert main(["rerun", str(alone), "--output", str(tmp_path / "second")]) == 0
    again = debate_local.load(tmp_path / "second" / stored.id)
    assert isinstance(again, Run)
    assert again.debates.equals(stored.debates) and again.turns.equals(stored.turns)


def test_check_says_that_nothing_differs(stored: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rerun", str(stored.folder), "--check"]) == 0
    assert "nothing differs" in capsys.readouterr().out


def test_check_names_code_versions_model_rows_and_templates_that_changed(
    stored: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = json.loads((stored.folder / "run.json").read_text())
    record["commit"] = "an older one"
    record["versions"]["polars"] = "0.0.1"
    record["engine_identity"]["default"]["seed"] = 99
    record["rows_hash"] = "0" * 32
    record["templates"]["debate"] = "{{ peers[0].text }}"
    old = tmp_path / "old"
    old.mkdir()
    (old / "run.json").write_text(json.dumps(record))
    assert main(["rerun", str(old), "--check"]) == 1
    told = capsys.readouterr().out
    for part in (
        "code: was an older one",
        "polars: was 0.0.1",
        "model 'default': seed",
        "rows:",
        "template 'debate'",
    ):
        assert part in told
    assert "another run by what affects its result" in told


def test_a_sweep_is_refused_with_its_runs(stored: Run, capsys: pytest.CaptureFixture[str]) -> None:
    (sweep,) = (stored.folder.parent / "sweeps").iterdir()
    assert main(["rerun", str(sweep)]) == 2
    assert stored.id in capsys.readouterr().err
