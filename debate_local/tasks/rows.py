"""Rows of a benchmark: from a local file or folder, or from the hub through `datasets`. Knows no task and no answer.

Local files are read directly, not through `datasets`: its readers copy every file into a cache in the home folder,
behind a lock that array jobs on network file systems race for. The hub keeps `datasets`, whose cache is then the point:
the first run fills it, every later one only reads it.
"""

import csv
import importlib
import io
import json
import math
import pkgutil
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from debate_local.core.chat import digest

_ID_DIGITS = 12
_COMMIT = re.compile(r"[0-9a-f]{40}")

Row = Mapping[str, Any]


class TaskDataError(ValueError):
    """The data of a task is missing or not as expected. The message says what to do."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a benchmark's rows come from, and what is known of them.

    title, licence, repository: for the citation; the licence as the repository states it, "" where it states none.
    layouts: the columns that every row must have, in each form in which the data is given. sizes: rows a split, None
    where it is not known; a split that is not in it is refused. hub: the data set's id on the hub, None where none is
    known; config: its configuration there, `{part}` standing for the part. download: what to download, and from where,
    when neither hub nor file is at hand. untried: what of this could never be tried; `doctor` lists it. papers: arXiv
    numbers of the papers that the data comes from.

    parts: the subjects or subsets, None for a benchmark of one piece; part_column: the column that names a row's part.
    In a folder each file is a part, called like it. headerless: the columns of a CSV file without a header.
    """

    task: str
    title: str
    repository: str
    licence: str
    layouts: tuple[tuple[str, ...], ...]
    sizes: Mapping[str, int | None]
    download: str
    hub: str | None = None
    config: str | None = None
    untried: str = ""
    papers: tuple[str, ...] = ()
    parts: tuple[str, ...] | None = None
    part_column: str = ""
    headerless: tuple[str, ...] = ()
    encodings: tuple[str, ...] = ("utf-8-sig",)


@dataclass(frozen=True, slots=True)
class Loaded:
    """Rows in the order of the source. source: what run.json says of where they come from."""

    rows: list[Row]
    source: dict[str, Any] = field(default_factory=dict)


def load(
    origin: Origin, path: str | None, split: str, revision: str | None, parts: Sequence[str] | None = None
) -> Loaded:
    """All rows of the source, or those of some parts, columns checked, blank lines left out.

    path: a .jsonl, .json, .csv or .parquet file, or a folder of such (`~` allowed); None: the hub's `split` at
    `revision`. Raises TaskDataError.
    """
    wanted = _wanted(origin, parts)
    found: dict[str, Any]
    if path is None:
        where = f"{origin.hub} on the hub, split {split}"
        rows, commit = _from_hub(origin, split, revision, wanted)
        found = {"hub": origin.hub, "split": split, "revision": revision, "commit": commit}
    else:
        file = Path(path).expanduser()
        where = str(file)
        rows = _from_path(origin, file, wanted)
        found = {"path": path}
    if not rows:
        raise TaskDataError(f"{where} has no rows: give task.path a file that has some. {origin.download}")
    check_columns(origin, rows, where)
    if origin.parts is not None:
        rows = rows if wanted is None else _of_parts(origin, rows, wanted, where)
        there = {row.get(origin.part_column) for row in rows}
        if lacking := [part for part in origin.parts if part not in there]:
            found["parts"] = [part for part in origin.parts if part not in lacking]
    return Loaded(rows, {**found, "rows": len(rows), **facts(origin)})


def facts(origin: Origin) -> dict[str, Any]:
    """What run.json says of a benchmark, whatever its rows."""
    told = {"data": origin.title, "repository": origin.repository, "licence": origin.licence}
    return {**{key: value for key, value in told.items() if value}, "papers": list(origin.papers)}


def check_columns(origin: Origin, rows: Sequence[Row], where: str) -> None:
    """Raise TaskDataError for rows of none of the layouts, or without a single value in a column."""
    first = rows[0]
    layout = max(origin.layouts, key=lambda columns: sum(column in first for column in columns) / len(columns))
    for number, row in enumerate(rows, start=1):
        if missing := [column for column in layout if column not in row]:
            raise _wrong_columns(origin, f"{where}, row {number}", layout, missing, row)
    if lost := [column for column in layout if all(is_lost(row[column]) for row in rows)]:
        raise _wrong_columns(origin, f"{where}, every row", layout, lost, first)


def _wrong_columns(
    origin: Origin, where: str, layout: Sequence[str], missing: Sequence[str], row: Row
) -> TaskDataError:
    others = [other for other in origin.layouts if other is not layout]
    forms = "".join(f", or {', '.join(other)}" for other in others)
    like = [name for name in _tasks_with(row) if name != origin.task]
    hint = f" These are the columns of task={' or task='.join(like)}." if like else ""
    return TaskDataError(
        f"{where}: {origin.task} needs the columns {', '.join(layout)}{forms}; missing: {', '.join(missing)}; "
        f"found: {', '.join(str(name) for name in row) or 'none'}.{hint} {origin.download}"
    )


def _tasks_with(row: Row) -> list[str]:
    """The tasks whose columns these are, by the `ORIGIN` of each file beside this one; those that need the most."""
    here = __name__.rpartition(".")[0]
    sizes: dict[str, int] = {}
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        origin = getattr(importlib.import_module(f"{here}.{module.name}"), "ORIGIN", None)
        if isinstance(origin, Origin):
            fitting = [len(layout) for layout in origin.layouts if set(layout) <= set(row)]
            sizes |= {origin.task: max(fitting)} if fitting else {}
    return [task for task, size in sizes.items() if size == max(sizes.values())]


def is_lost(value: Any) -> bool:
    """True for null, and for the NaN that libraries make of `None`, `NA` and empty cells."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def text(value: Any) -> str:
    """A cell as text, "" for a lost one. Nothing turns `None`, `NA` or `no` into something else."""
    return "" if is_lost(value) else str(value)


def item_ids(rows: Sequence[Row], columns: Sequence[str]) -> list[str]:
    """An id a row: a hash of the given columns, 12 hexadecimal digits, so that order and number of rows do not matter.

    Equal rows stay apart: the second is `<hash>-2`, and so on.
    """
    return distinct([digest([row[column] for column in columns])[:_ID_DIGITS] for row in rows])


def distinct(ids: Sequence[str]) -> list[str]:
    """The ids, a repeated one marked: `x`, `x-2`, `x-3`."""
    seen: Counter[str] = Counter()
    told = []
    for name in ids:
        seen[name] += 1
        told.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return told


# Parts


def _wanted(origin: Origin, parts: Sequence[str] | None) -> tuple[str, ...] | None:
    """The parts asked for, in the order of the source; None for all there are."""
    if origin.parts is None or parts is None:
        return None
    if unknown := [part for part in parts if part not in origin.parts]:
        raise TaskDataError(
            f"{origin.task} has no {_part_word(origin)} {', '.join(map(repr, unknown))}; the {len(origin.parts)} that "
            f"it has: {', '.join(origin.parts)}"
        )
    if not parts:
        raise TaskDataError(f"no {_part_word(origin)} of {origin.task} was asked for: name some, or null for all")
    return tuple(part for part in origin.parts if part in parts)


def _part_word(origin: Origin) -> str:
    return origin.part_column or "part"


def _of_parts(origin: Origin, rows: Sequence[Row], wanted: Sequence[str], where: str) -> list[Row]:
    kept = [row for row in rows if row.get(origin.part_column) in wanted]
    there = {str(row.get(origin.part_column)) for row in kept}
    if lost := [part for part in wanted if part not in there]:
        has = ", ".join(sorted({text(row.get(origin.part_column)) for row in rows}))
        raise TaskDataError(f"{where} has no rows of {_part_word(origin)} {', '.join(lost)}; it has rows of: {has}")
    return kept


# Local files


def _from_path(origin: Origin, path: Path, wanted: Sequence[str] | None) -> list[Row]:
    if not path.is_dir():
        # A file that says nothing of its part is of the one part that was asked for.
        part = _part_called(origin, path.stem) or (wanted[0] if wanted and len(wanted) == 1 else "")
        return [_with_part(origin, row, part) for row in _from_file(origin, path)]
    files = sorted(file for file in path.iterdir() if file.suffix.lower() in _READERS)
    if origin.parts is None or not files:
        kinds = ", ".join(_READERS)
        raise TaskDataError(
            f"task.path={path} is a folder"
            + (f" without {kinds} files" if origin.parts is not None else f". It must name a {kinds} file")
            + f". {origin.download}"
        )
    rows: list[Row] = []
    for file in files:
        part = _part_called(origin, file.stem)
        rows += [_with_part(origin, row, part or file.stem) for row in _from_file(origin, file)]
    return rows


def _part_called(origin: Origin, name: str) -> str:
    """The part that a file's name tells: anatomy, anatomy_test, mmlu_anatomy; "" when it tells none."""
    names = (name, re.sub(r"_(?:test|dev|val|train)$", "", name), name.removeprefix(f"{origin.task.split('_')[0]}_"))
    return next((one for one in names if one in (origin.parts or ())), "")


def _with_part(origin: Origin, row: Row, part: str) -> Row:
    return row if not part or origin.part_column in row else {**row, origin.part_column: part}


def _from_file(origin: Origin, file: Path) -> list[Row]:
    reader = _READERS.get(file.suffix.lower())
    if reader is None or not file.is_file():
        wrong = "does not exist" if reader else "is of no known kind"
        raise TaskDataError(
            f"task.path={file} {wrong} (looked in {Path.cwd()}). It must name a {', '.join(_READERS)} file. "
            f"{origin.download}"
        )
    try:
        return list(reader(file, origin))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise TaskDataError(f"{file} cannot be read: {error}") from error


def _jsonl(file: Path, origin: Origin) -> Iterator[Row]:
    # utf-8-sig: files that went through Windows begin with a byte order mark.
    with file.open(encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield _json_row(line, f"{file}, line {number}")


def _json(file: Path, origin: Origin) -> Iterator[Row]:
    """A list of objects, an object with such a list under `examples`, or one object a line: all are called .json."""
    content = file.read_text(encoding="utf-8-sig")
    try:
        rows = json.loads(content)
    except json.JSONDecodeError as error:
        if content.lstrip().startswith("{"):
            # Objects one a line are no JSON as a whole; their errors name the line.
            yield from _jsonl(file, origin)
            return
        raise TaskDataError(f"{file} is not JSON: {error}") from error
    if isinstance(rows, dict):
        rows = rows["examples"] if isinstance(rows.get("examples"), list) else [rows]
    if not isinstance(rows, list):
        raise TaskDataError(f"{file}: expected a list of objects, got {rows!r:.80}")
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


def _csv(file: Path, origin: Origin) -> Iterator[Row]:
    """Values stay strings: nothing turns `None`, `NA` or `no` into something else. Cells may hold line breaks."""
    content = _decoded(file, origin.encodings)
    head = content.partition("\n")[0]
    # Not csv.Sniffer, which takes letters for delimiters.
    cells = csv.reader(io.StringIO(content, newline=""), delimiter=max(",;\t", key=head.count))
    names = next(cells, [])
    if len(names) == len(origin.headerless) and origin.headerless[0] not in names:
        yield dict(zip(origin.headerless, names, strict=True))
        names = list(origin.headerless)
    for row in cells:
        if any(row[len(names) :]):
            raise TaskDataError(f"{file}, line {cells.line_num}: {len(row)} cells under {len(names)} columns")
        if row:
            yield dict(zip(names, row, strict=False))


def _decoded(file: Path, encodings: Sequence[str]) -> str:
    data = file.read_bytes()
    for encoding in encodings[:-1]:
        try:
            return data.decode(encoding)
        except UnicodeDecodeError:
            continue
    return data.decode(encodings[-1])


def _parquet(file: Path, origin: Origin) -> Iterator[Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        yield from pq.read_table(file).to_pylist()
    except pa.ArrowInvalid as error:
        raise TaskDataError(f"{file} is not a Parquet file: {error}") from error


_READERS: Mapping[str, Callable[[Path, Origin], Iterator[Row]]] = {
    ".jsonl": _jsonl,
    ".json": _json,
    ".csv": _csv,
    ".parquet": _parquet,
}
FILE_KINDS = tuple(_READERS)


# The hub


def _from_hub(
    origin: Origin, split: str, revision: str | None, wanted: Sequence[str] | None
) -> tuple[list[Row], str | None]:
    """Rows, and the commit that they are of; None where `datasets` does not tell."""
    if origin.hub is None:
        raise TaskDataError(f"{origin.task} is on no hub that we know: give task.path=FILE. {origin.download}")
    if split not in origin.sizes:
        raise TaskDataError(f"{origin.task} has no split {split!r}; its splits: {', '.join(origin.sizes)}")
    if origin.parts is None or origin.config is None or "{part}" not in origin.config:
        return _one_config(origin, origin.config, split, revision)
    rows: list[Row] = []
    commits = set()
    for part in wanted or origin.parts:
        more, commit = _one_config(origin, origin.config.format(part=part), split, revision)
        rows += [_with_part(origin, row, part) for row in more]
        commits.add(commit)
    if len(commits) > 1:
        raise TaskDataError(
            f"{origin.hub} changed while it was loaded, or parts of it are cached in several versions "
            f"({', '.join(sorted(map(str, commits)))}): pin one with task.revision="
        )
    return rows, commits.pop()


def _one_config(origin: Origin, config: str | None, split: str, revision: str | None) -> tuple[list[Row], str | None]:
    import datasets

    asked = f"{origin.hub} (config {config}, split {split}, revision {revision or 'newest'})"
    try:
        data = datasets.load_dataset(origin.hub, config, split=split, revision=revision)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        # Unreachable, offline (HF_DATASETS_OFFLINE) and not cached, an unknown split or revision: the text says which.
        raise TaskDataError(
            f"{asked} could not be loaded through `datasets`: {error}. Without the hub, give the file: "
            f"task.path=FILE, or for several tasks data=FOLDER, in which {origin.task}.jsonl lies. {origin.download}"
        ) from error
    commit = _commit_of(data)
    # Out of reach of the hub, `datasets` takes whatever version its cache holds.
    if revision is not None and _COMMIT.fullmatch(revision) and commit not in (None, revision):
        raise TaskDataError(
            f"{asked} is not here: the local cache holds commit {commit}, and the hub could not be reached. Fetch it "
            f"where the hub can be reached, or give the file: task.path=FILE. {origin.download}"
        )
    return [dict(row) for row in data], commit


def _commit_of(data: Any) -> str | None:
    """The commit of the hub that a data set was made from, which stands in the paths of its cached files."""
    for file in getattr(data, "cache_files", None) or ():
        for folder in reversed(Path(file["filename"]).parts):
            if _COMMIT.fullmatch(folder):
                return folder
    return None
