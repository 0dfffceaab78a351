"""The cache of `datasets` is filled once; after that any number of array tasks read it at once and change nothing.

The cache here is laid out as `datasets` 5 leaves it. Offline, as compute nodes are.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

COMMIT = "e53f048856ff4f594e959d75785d2c2d37b678ee"
ROWS = [{"question": f"What is {n} + 1?", "answer": f"Count.\n#### {n + 1}"} for n in range(20)]
TASKS = 8

READ = """
from debate_local.tasks.gsm8k import gsm8k
print(*(f"{item.id}:{item.target}" for item in gsm8k().items()))
"""


@pytest.fixture
def hub_cache(tmp_path: Path) -> Path:
    """The folder that HF_DATASETS_CACHE names, with GSM8K's test split at one commit."""
    datasets = pytest.importorskip("datasets")
    folder = tmp_path / "datasets" / "openai___gsm8k" / "main" / "0.0.0" / COMMIT
    folder.mkdir(parents=True)
    writer = datasets.arrow_writer.ArrowWriter(path=str(folder / "gsm8k-test.arrow"))
    for row in ROWS:
        writer.write(row)
    count, size = writer.finalize()
    split = {"name": "test", "num_bytes": size, "num_examples": count, "dataset_name": "gsm8k"}
    text = {"dtype": "string", "_type": "Value"}
    info = {
        "builder_name": "parquet",
        "dataset_name": "gsm8k",
        "config_name": "main",
        "features": {"question": text, "answer": text},
        "splits": {"test": split},
        "version": {"version_str": "0.0.0", "major": 0, "minor": 0, "patch": 0},
    }
    (folder / "dataset_info.json").write_text(json.dumps(info))
    return tmp_path / "datasets"


def state(folder: Path) -> dict[str, tuple[int, int]]:
    """Every file and folder with its size and time of change."""
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in sorted(folder.rglob("*"))}


@pytest.mark.slow
@pytest.mark.hazard("B27")
def test_array_tasks_that_start_at_once_read_the_same_rows_and_change_nothing(hub_cache: Path, tmp_path: Path) -> None:
    before = state(hub_cache)
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_CACHE": str(hub_cache), "HF_HOME": str(tmp_path / "home")}
    tasks = [
        subprocess.Popen(
            [sys.executable, "-c", READ],
            env={**os.environ, **offline},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(TASKS)
    ]
    said = [task.communicate(timeout=300) for task in tasks]
    assert [task.returncode for task in tasks] == [0] * TASKS, said[0][1]
    (rows,) = {out for out, _ in said}
    assert [item.partition(":")[2] for item in rows.split()] == [str(n + 1) for n in range(20)]
    # `datasets` leaves an empty lock file beside what it reads.
    assert {path: found for path, found in state(hub_cache).items() if not path.endswith(".lock")} == before
