"""`debate-local run`: Hydra's doorway to the pipeline."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from debate_local.sweep.compose import VERSION_BASE, Plain, cells_from, plain
from debate_local.sweep.config import HowToRun, config_folder, register
from debate_local.sweep.explain import explained
from debate_local.sweep.frozen import FrozenPlan, freeze
from debate_local.sweep.plan import Plan, make_plan
from debate_local.sweep.run import RunFailed, SweepResult, run_plan


def main(arguments: Sequence[str]) -> int:
    """Run what the overrides say. `-m` sweeps; Hydra's own flags work (--cfg job, --help)."""
    import hydra

    overrides = [a for a in arguments if not a.startswith("-")]
    register(overrides)
    # Hydra prints and exits on its own otherwise; its errors are told in our words.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    sys.argv = ["debate-local run", *arguments]
    failed: list[BaseException] = []

    def run_one(config: Any) -> None:
        # Raised here, an error would be printed by Hydra as well.
        try:
            run_composed([plain(config)])
        except BaseException as error:
            failed.append(error)

    with explained(overrides):
        folder = str(config_folder().resolve())
        hydra.main(version_base=VERSION_BASE, config_path=folder, config_name="config")(run_one)()
        if failed:
            raise failed[0]
    return 0


def run_composed(configs: Sequence[Plain]) -> SweepResult:
    """Run composed configs as one sweep. Raises RunFailed."""
    cells, how = cells_from(configs)
    return run_shown(make_plan(cells), how, ["debate-local", "run", *sys.argv[1:]])


def frozen_from(
    configs: Sequence[Plain], shards: Callable[[Plan], int], launchers: Mapping[str, Mapping[str, Any]] | None = None
) -> tuple[FrozenPlan, Plan]:
    """Check composed configs, freeze them and split their items, for workers to run. Raises OptionFault.

    launchers: the launcher's name and its settings, kept so that `resume` starts what is missing in the same way.
    """
    cells, how = cells_from(configs)
    plan = make_plan(cells)
    command = ["debate-local", "run", *sys.argv[1:]]
    return freeze(plan, how, command, shards(plan), launchers), plan


def run_shown(plan: Plan, how: HowToRun, command: Sequence[str], **more: Any) -> SweepResult:
    """Run a plan with the progress bar, and print the table of results. more: as for `run_plan`.

    Raises RunFailed when something is missing that was not left out on purpose.
    """
    from debate_local.commands.progress import ProgressBar
    from debate_local.commands.show import print_sweep
    from debate_local.commands.terminal import to_type
    from debate_local.trackers.process import trackers

    with ProgressBar() as bar:
        result = run_plan(plan, how, command, listeners=[bar, *trackers(how)], **more)
    print_sweep(result.sweep, sent=result.sent)
    if result.stopped:
        print(f"stopped by {result.stopped}. To go on: {to_type('resume', result.sweep.folder)}")
    if result.problems:
        raise RunFailed("\n".join(result.problems))
    return result
