"""The suite cannot hide a gap: what CI must have, it may not skip."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

CHECKOUT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("ci", "marker", "code"), [("true", "vllm", 1), ("true", "slurm", 1), ("true", "gpu", 0), ("", "vllm", 0)]
)
def test_a_skip_of_a_test_that_ci_must_run_fails_in_ci_only(ci: str, marker: str, code: int, tmp_path: Path) -> None:
    (tmp_path / "test_gap.py").write_text(
        f"import pytest\n\n@pytest.mark.{marker}\ndef test_gap():\n    pytest.skip('not here')\n"
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "tests.honesty",
        "-c",
        os.devnull,
        "--rootdir",
        str(tmp_path),
    ]
    environment = {**os.environ, "CI": ci, "PYTHONPATH": str(CHECKOUT)}
    done = subprocess.run([*command, str(tmp_path)], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout
