"""Files of samples: written by `debate-local convince`, named by `convincing=FILE`, checked against a run.

A file of JSON lines. The first says where the samples come from, each other is one sample (core/samples.py):

    {"samples_of": {"task": "strategyqa", "rows": "...", "models": {"a": "<digest of its identity>"}, ...}}
    {"kind": "convincing", "model": "a", "item": "...", "question": "...", "answer": "no", "explanation": "..."}

What a file holds is part of a run, not where it lies. One written by hand may leave `rows` and `models` out.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, get_args

from debate_local.core.chat import digest
from debate_local.core.samples import Kind, Sample
from debate_local.core.transcript import Item

from .options import OptionFault, nearest
from .sharing import beside

_HEAD = "samples_of"
_FIELDS = tuple(f.name for f in fields(Sample))


@dataclass(frozen=True, slots=True)
class SampleFile:
    """What a file holds. about: where the samples come from; `task` is always there."""

    about: Mapping[str, Any]
    samples: tuple[Sample, ...]

    def to_json(self) -> dict[str, Any]:
        """All of it as JSON values."""
        return {"about": dict(self.about), "samples": [asdict(sample) for sample in self.samples]}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "SampleFile":
        """The inverse of `to_json`."""
        return cls(value["about"], tuple(Sample(**one) for one in value["samples"]))

    @property
    def hash(self) -> str:
        """Of what is shown; where it comes from does not change a run."""
        return digest([asdict(sample) for sample in self.samples])


def read_samples(path: str) -> SampleFile:
    """The file's samples. Raises OptionFault for a file that is missing or holds something else."""
    file = Path(path).expanduser()
    try:
        return _read(file, file.stat().st_mtime_ns)
    except (OSError, UnicodeDecodeError) as error:
        raise OptionFault(f"convincing={path}: the file cannot be read: {error}") from error


@lru_cache(maxsize=16)
def _read(file: Path, changed: int) -> SampleFile:
    """A sweep names its file once for each cell."""
    about, samples = None, []
    # Not splitlines: a text may hold a line separator that JSON leaves as it is.
    for number, line in enumerate(file.read_text(encoding="utf-8").split("\n"), start=1):
        if not line.strip():
            continue
        where = f"convincing={file}, line {number}"
        try:
            row = json.loads(line)
        except ValueError as error:
            raise OptionFault(f"{where} is no JSON: {error}") from error
        if about is None:
            about = _about(where, row)
        else:
            samples.append(_sample(where, row))
    if about is None or not samples:
        raise OptionFault(f"convincing={file} holds no sample: `debate-local convince` writes such files")
    return SampleFile(about, tuple(samples))


def _about(where: str, row: Any) -> Mapping[str, Any]:
    about = row.get(_HEAD) if isinstance(row, dict) else None
    if not isinstance(about, dict) or not isinstance(about.get("task"), str):
        raise OptionFault(f'{where}: the first line says whose samples these are: {{"{_HEAD}": {{"task": "..."}}}}')
    return about


def _sample(where: str, row: Any) -> Sample:
    if not isinstance(row, dict) or set(row) != set(_FIELDS):
        raise OptionFault(f"{where}: a sample has the fields {', '.join(_FIELDS)}; got {row!r:.120}")
    for name, value in row.items():
        if not isinstance(value, str) or not value.strip():
            raise OptionFault(f"{where}: {name} must be a text that is not empty, got {value!r:.80}")
    if row["kind"] not in get_args(Kind):
        raise OptionFault(f"{where}: kind must be one of: {', '.join(get_args(Kind))}; got {row['kind']!r}")
    return Sample(**row)


def write_samples(path: Path, found: SampleFile) -> None:
    """Write a file anew, beside and then in its place. Raises OptionFault where another one lies already."""
    rows: Iterable[Any] = [{_HEAD: dict(found.about)}, *map(asdict, found.samples)]
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    if path.exists() and path.read_text(encoding="utf-8") != text:
        raise OptionFault(f"{path} is there already and holds something else: give another file")
    path.parent.mkdir(parents=True, exist_ok=True)
    written = beside(path)
    written.write_text(text, encoding="utf-8")
    written.replace(path)


def check_samples_of(found: SampleFile, task: str, items: Iterable[Item], identities: Mapping[str, str]) -> None:
    """Raise OptionFault for samples that are not for this run. identities: by model, of the run's engine.

    Samples of models that the engine has and the cast does not use are nobody's, and no fault.
    """
    if found.about["task"] != task:
        raise OptionFault(f"these samples are of task {found.about['task']!r}, and the task is {task!r}")
    for model in dict.fromkeys(sample.model for sample in found.samples):
        if model not in identities:
            raise OptionFault(
                f"these samples are of model {model!r}, which the engine does not have.{nearest(model, identities)} It "
                f"has: {', '.join(identities)}"
            )
        then = (found.about.get("models") or {}).get(model, identities[model])
        if then != identities[model]:
            raise OptionFault(
                f"the samples of model {model!r} were found with another model of that name: other weights, or options "
                "that change what it says. Run `debate-local convince` with this one"
            )
    shown = {sample.item for sample in found.samples} | {sample.question for sample in found.samples}
    if seen := [item.id for item in items if item.id in shown or item.question in shown]:
        raise OptionFault(
            f"item {seen[0]} is to be answered and is among the samples, which give its answer away ({len(seen)} such "
            "items): take samples from a training split"
        )
