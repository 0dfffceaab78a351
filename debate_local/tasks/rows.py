"""Rows of a benchmark: from a local file, or from the hub through `datasets`. Knows no task and no answer.

Local files are read directly, not through `datasets`: its readers copy every file into a cache in the home folder,
behind a lock that array jobs on network file systems race for. The hub keeps `datasets`, whose cache is then the point:
the first run fills it, every later one only reads it.
"""

import csv
import json
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from debate_local.core.chat import digest

_LOG = logging.getLogger(__name__)
_ID_DIGITS = 12

Row = Mapping[str, Any]


class TaskDataError(ValueError):
    """The data of a task is missing or not as expected. The message says what to do."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a benchmark's rows come from.

    hub: the data set's id on the hub. config: its configuration there. columns: what every row must have.
    download: what to download, and from where, when neither hub nor file is at hand.
    """

    task: str
    hub: str
    config: str | None
    columns: tuple[str, ...]
    download: str


def load_rows(origin: Origin, path: str | None, split: str, revision: str | None) -> list[Row]:
    """All rows in the order of the source, columns checked, blank lines left out.

    path: a .jsonl, .json, .csv or .parquet file (`~` allowed); None: the hub's `split` at `revision`.
    Raises TaskDataError.
    """
    if path is None:
        where = f"{origin.hub} on the hub, split {split}"
        rows = _from_hub(origin, split, revision)
    else:
        file = Path(path).expanduser()
        where = str(file)
        rows = _from_file(origin, file)
    if not rows:
        raise TaskDataError(f"{where} has no rows: give task.path a file that has some. {origin.download}")
    for number, row in enumerate(rows, start=1):
        if missing := [column for column in origin.columns if row.get(column) is None]:
            raise TaskDataError(
                f"{where}, row {number}: {origin.task} needs the columns {', '.join(origin.columns)}; missing: "
                f"{', '.join(missing)}; found: {', '.join(str(name) for name in row) or 'none'}. {origin.download}"
            )
    return rows


def item_ids(rows: Sequence[Row], columns: Sequence[str], task: str | None) -> list[str]:
    """An id a row: a hash of the given columns, 12 hexadecimal digits, so that order and number of rows do not matter.

    Equal rows stay apart: the second is `<hash>-2`, and so on. They are logged under the task's name; None: repeats are
    as they should be.
    """
    seen: Counter[str] = Counter()
    ids = []
    for row in rows:
        name = digest([row[column] for column in columns])[:_ID_DIGITS]
        seen[name] += 1
        ids.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    if task is not None and (repeated := len(rows) - len(seen)):
        _LOG.warning(
            "%s: %d of %d rows repeat an earlier one; they are kept as items of their own", task, repeated, len(rows)
        )
    return ids


def _from_file(origin: Origin, file: Path) -> list[Row]:
    readers = {".jsonl": _jsonl, ".json": _json, ".csv": _csv, ".parquet": _parquet}
    reader = readers.get(file.suffix.lower())
    if reader is None or not file.is_file():
        wrong = "is a folder" if file.is_dir() else "does not exist" if reader else "is of no known kind"
        raise TaskDataError(
            f"task.path={file} {wrong} (looked in {Path.cwd()}). It must name a {', '.join(readers)} file. "
            f"{origin.download}"
        )
    try:
        return list(reader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise TaskDataError(f"{file} cannot be read: {error}") from error


def _jsonl(file: Path) -> Iterator[Row]:
    # utf-8-sig: files that went through Windows begin with a byte order mark.
    with file.open(encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield _json_row(line, f"{file}, line {number}")


def _json(file: Path) -> Iterator[Row]:
    """A list of objects, or one object a line: several benchmarks call that .json, too."""
    text = file.read_text(encoding="utf-8-sig")
    if not text.lstrip().startswith("["):
        yield from _jsonl(file)
        return
    try:
        rows = json.loads(text)
    except json.JSONDecodeError as error:
        raise TaskDataError(f"{file} is not JSON: {error}") from error
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, dict):
            raise TaskDataError(f"{file}, element {number}: expected an object with columns, got {row!r:.80}")
        yield row


def _json_row(line: str, where: str) -> Row:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise TaskDataError(f"{where} is not JSON ({error}); expected one object a line") from error
    if not isinstance(row, dict):
        raise TaskDataError(f"{where}: expected an object with columns, got {row!r:.80}")
    return row


def _csv(file: Path) -> Iterator[Row]:
    """Values stay strings: nothing turns `None`, `NA` or `no` into something else."""
    with file.open(encoding="utf-8-sig", newline="") as lines:
        for row in csv.DictReader(lines):
            yield {name: value for name, value in row.items() if name is not None}


def _parquet(file: Path) -> Iterator[Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        yield from pq.read_table(file).to_pylist()
    except pa.ArrowInvalid as error:
        raise TaskDataError(f"{file} is not a Parquet file: {error}") from error


def _from_hub(origin: Origin, split: str, revision: str | None) -> list[Row]:
    import datasets

    try:
        data = datasets.load_dataset(origin.hub, origin.config, split=split, revision=revision)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        # Unreachable, offline (HF_DATASETS_OFFLINE) and not cached, an unknown split or revision: the text says which.
        raise TaskDataError(
            f"{origin.hub} (config {origin.config}, split {split}, revision {revision or 'newest'}) could not be "
            f"loaded through `datasets`: {error}. Without the hub, give the file: task.path=FILE. {origin.download}"
        ) from error
    return [dict(row) for row in data]
