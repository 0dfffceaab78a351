"""From a cell to its task: with the quirks that it names, and examples before each question where some are wanted."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from debate_local.core.task import Task
from debate_local.tasks.few_shot import FewShot
from debate_local.tasks.quirks import with_quirks

from . import options
from .config import Cell
from .options import SHOT_OPTIONS


def task_of(cell: Cell) -> Task:
    """Load a cell's task. Raises the task's own ValueError, or one that says why a quirk or examples cannot be."""
    task = _made(cell)
    if missing := [name for name in _PARTS if not hasattr(task, name)]:
        raise ValueError(
            f"what it returns, a {type(task).__name__}, is no whole task: it lacks {', '.join(missing)}. A task has "
            f"{', '.join(_PARTS)} (debate_local/core/task.py); debate_local/tasks/gsm8k.py is a short one to begin from"
        )
    return task


_PARTS = ("name", "metric", "votable", "answer_format", "items", "ask", "read", "same", "score", "grade")


def _made(cell: Cell) -> Task:
    choice, function = cell.task, options.load("task", cell.task.name)
    if options.options("task", choice.name).get("shots") is not SHOT_OPTIONS["shots"]:
        return with_quirks(function(**choice.options), cell.quirks, cell.seed)
    own = {key: value for key, value in choice.options.items() if key not in SHOT_OPTIONS}
    task = with_quirks(function(**own), cell.quirks, cell.seed)
    shots = choice.options["shots"]
    if shots < 0:
        raise ValueError(f"task.shots must be 0 or more, got {shots}")
    if not shots:
        return task
    if not hasattr(task, "stated"):
        raise ValueError(f"task.shots: task {choice.name!r} has no `stated(item)`, which words an example's answer")
    try:
        pool = function(**_of_training(function, own, choice.options)).items()
    except ValueError as error:
        raise ValueError(f"task.shots={shots}, and its rows cannot be had: {error}") from error
    return FewShot(task, pool, shots, choice.options["shots_seed"])


def _of_training(function: Callable[..., Task], own: Mapping[str, Any], chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The options by which a task loads the rows that its examples are taken from."""
    known = inspect.signature(function).parameters
    if chosen["shots_path"] is not None and "path" in known:
        return {**own, "path": chosen["shots_path"]}
    if own.get("path") is not None:
        raise ValueError("task.path is a file without splits: give a file of training rows as task.shots_path=FILE")
    if "split" in known:
        return {**own, "split": chosen["shots_split"]}
    if "seed" in known:
        # Rows that are generated: those of another seed.
        return {**own, "seed": own["seed"] + 1 + chosen["shots_seed"]}
    raise ValueError("this task has neither splits nor a seed: give a file of training rows as task.shots_path=FILE")
