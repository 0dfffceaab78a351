"""Multi-agent debate on open-weight language models, on your own hardware.

`run`, `plan` and `load` are what the command line calls. Nothing heavy is imported before they are used.
"""

from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from debate_local.sweep.plan import Plan
    from debate_local.sweep.store import Run, Sweep

__all__ = ["__version__", "load", "plan", "run"]
__version__ = "0.1.0"


def run(overrides: Sequence[str] = (), multirun: bool = False) -> "Sweep":
    """Run what `debate-local run OVERRIDES` runs (`-m` with multirun) and return the stored sweep.

    Raises OptionFault (a ValueError) for what cannot be run, RunFailed when something is missing at the end.
    """
    from debate_local.sweep.compose import compose
    from debate_local.sweep.plan import make_plan
    from debate_local.sweep.run import RunFailed, run_plan
    from debate_local.trackers.process import trackers

    cells, how = compose(overrides, multirun)
    result = run_plan(make_plan(cells), how, ["debate_local.run", *overrides], trackers(how))
    if result.problems:
        raise RunFailed("\n".join(result.problems))
    return result.sweep


def plan(overrides: Sequence[str] = (), multirun: bool = False) -> "Plan":
    """What `run` would do, with every check that needs no engine. Raises OptionFault (a ValueError)."""
    from debate_local.sweep.compose import compose
    from debate_local.sweep.plan import make_plan

    cells, _ = compose(overrides, multirun)
    return make_plan(cells)


def load(path: str | PathLike[str]) -> "Run | Sweep":
    """A stored run or sweep. Raises StoreFault (a ValueError) when there is none."""
    from debate_local.sweep.store import load as load_stored

    return load_stored(path)
