"""How long it takes to load MMLU's 14,042 rows from local files, checked for what is odd, each time in a new process.

The rows are made up, as long as real ones are on average, in the original columns.
"""

import csv
import json
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.bench.harness import alone, keep, peak_mib

ROWS = 14_042
_WORDS = "the force on a body at rest is what a judge of the lower court would hold to be most likely under given terms"


def _row(number: int, subjects: list[str]) -> dict[str, Any]:
    draw = random.Random(number)
    words = _WORDS.split()
    question = " ".join(draw.choice(words) for _ in range(60))
    options = [" ".join(draw.choice(words) for _ in range(8)) for _ in range(4)]
    return {
        "question": f"{question} {number}?",
        "subject": subjects[number * len(subjects) // ROWS],
        "choices": options,
        "answer": draw.randrange(4),
    }


def _write(root: Path) -> dict[str, Path]:
    """The same rows as one file of JSON lines, one of Parquet, and a folder with a CSV file a subject."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from debate_local.tasks.mmlu import SUBJECTS

    rows = [_row(number, list(SUBJECTS)) for number in range(ROWS)]
    with (root / "test.jsonl").open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    pq.write_table(pa.Table.from_pylist(rows), root / "test.parquet")
    folder = root / "test"
    folder.mkdir()
    for subject in SUBJECTS:
        with (folder / f"{subject}_test.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["question", "choice0", "choice1", "choice2", "choice3", "answer"])
            writer.writerows(
                [row["question"], *row["choices"], row["answer"]] for row in rows if row["subject"] == subject
            )
    return {"jsonl": root / "test.jsonl", "parquet": root / "test.parquet", "folder of csv": folder}


def measure(path: str) -> None:
    """One load, and every item asked for; prints JSON."""
    started = time.perf_counter()
    from debate_local.tasks.mmlu import mmlu

    imported = time.perf_counter()
    task = mmlu(path, shuffle_options=0)
    items = task.items()
    loaded = time.perf_counter()
    asked = sum(len(task.ask(item)) for item in items)
    facts = {
        "rows": len(items),
        "import_seconds": round(imported - started, 3),
        "load_seconds": round(loaded - imported, 3),
        "ask_seconds": round(time.perf_counter() - loaded, 3),
        "characters": asked,
        "peak_mib": round(peak_mib()),
    }
    print(json.dumps(facts))


def main() -> None:
    """Each kind of file three times, on one core."""
    with tempfile.TemporaryDirectory() as folder:
        files = _write(Path(folder))
        rows = {name: [alone("tests.bench.tasks_load", str(path)) for _ in range(3)] for name, path in files.items()}
    summary = {name: f"{sorted(one['load_seconds'] for one in found)[1]} s" for name, found in rows.items()}
    keep("tasks_load", {"limit_seconds": 3, "rows": rows, "summary": summary})


if __name__ == "__main__":
    measure(sys.argv[1])
