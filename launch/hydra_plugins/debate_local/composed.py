"""What our Hydra launchers share: all jobs of a multirun are composed at once, as cells of one sweep.

Hydra imports every plugin at each start: standard library and hydra only at module level.
"""

from collections.abc import Sequence
from typing import Any

from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


class SweepLauncher(Launcher):
    """A launcher that is given every job's overrides together. settings: its config, `_target_` apart."""

    def __init__(self, **settings: Any) -> None:
        from omegaconf import OmegaConf

        self._settings: Any = OmegaConf.to_container(OmegaConf.create(settings), resolve=True)

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Keep what `launch` needs; the task function of a single run is not used."""
        self._context = hydra_context
        self._config = config

    def _composed(self, job_overrides: Sequence[Sequence[str]]) -> Any:
        """Every job's config, as plain values."""
        from debate_local.sweep.compose import compose_jobs

        loader = self._context.config_loader
        return compose_jobs(job_overrides, lambda job: loader.load_sweep_config(self._config, list(job)))


def completed(job_overrides: Sequence[Sequence[str]], folder: str) -> list[JobReturn]:
    """What Hydra wants to hear of jobs that have ended well: each returns the sweep's folder."""
    returns = []
    for overrides in job_overrides:
        returns.append(JobReturn(overrides=overrides, status=JobStatus.COMPLETED))
        returns[-1].return_value = folder
    return returns
