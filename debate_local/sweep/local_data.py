"""Where rows lie on a machine without a hub: one folder (`data=FOLDER`) with a file, or a folder, for each task.

A task finds its own by name: `gsm8k.jsonl`, with its split `gsm8k_test.jsonl`, or a folder `mmlu/` with a file a
subject. What is found becomes the task's `path`, so that whoever works on the run later needs no `data`.
"""

import glob
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from debate_local.tasks.rows import FILE_KINDS

from . import options
from .options import OptionFault

if TYPE_CHECKING:
    from .config import Choice


def with_local_rows(task: "Choice", data: str | None) -> "Choice":
    """The task, its `path` set to its file in the folder; the task itself where it has none to set, or has one.

    Raises OptionFault for a folder that is none, or that has nothing of the task.
    """
    if data is None or task.options.get("path") is not None or "path" not in options.options("task", task.name):
        return task
    folder = Path(data).expanduser()
    if not folder.is_dir():
        raise OptionFault(f"data={data} is no folder (looked in {Path.cwd()}): name one with a file for each task")
    name, split = task.name.rpartition(".")[2], task.options.get("split")
    stems = [f"{name}_{split}", name] if split else [name]
    wanted = [f"{stem}{kind}" for stem in stems for kind in FILE_KINDS]
    found = next((path for one in (*wanted, name) if (path := folder / one).exists()), None)
    if found is None:
        near = sorted(path.name for path in folder.glob(f"{glob.escape(name)}*"))
        hint = f" There are {', '.join(near[:8])}: if one is meant, name it by task.path or task.split." if near else ""
        raise OptionFault(
            f"data={data} has nothing for task {task.name!r}: put one of these there, or give task.path=FILE: "
            f"{', '.join(wanted)}, or a folder {name}/.{hint}"
        )
    return replace(task, options={**task.options, "path": str(found), **_training(task, folder / name)})


def _training(task: "Choice", stem: Path) -> dict[str, str]:
    """Where rows for examples lie, as the task's `shots_path`, when examples are asked for and there are such rows."""
    if not task.options.get("shots") or task.options["shots_path"] is not None:
        return {}
    paths = (stem.with_name(f"{stem.name}_{task.options['shots_split']}{kind}") for kind in FILE_KINDS)
    return next(({"shots_path": str(path)} for path in paths if path.exists()), {})
