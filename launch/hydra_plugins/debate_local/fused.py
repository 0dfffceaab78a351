"""Hydra launcher `fused`: all jobs of a multirun become cells of one sweep, with one model load an engine.

Hydra imports every plugin at each start: standard library and hydra only at module level.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


@dataclass
class FusedConfig:
    """No settings: what a sweep needs stands in our own config."""

    _target_: str = "hydra_plugins.debate_local.fused.FusedLauncher"


ConfigStore.instance().store(group="hydra/launcher", name="fused", node=FusedConfig, provider="debate-local")


class FusedLauncher(Launcher):
    """Composes every job's config, then runs them all in one pipeline."""

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Keep what `launch` needs; the task function of a single run is not used."""
        self._context = hydra_context
        self._config = config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Run the sweep. A failure is raised, so that the exit code is honest."""
        from debate_local.commands.run import run_composed
        from debate_local.sweep.compose import compose_jobs

        loader = self._context.config_loader
        configs = compose_jobs(job_overrides, lambda job: loader.load_sweep_config(self._config, list(job)))
        result = run_composed(configs)
        return completed(job_overrides, str(result.sweep.folder))


def completed(job_overrides: Sequence[Sequence[str]], folder: str) -> list[JobReturn]:
    """What Hydra wants to hear of jobs that have ended well: each returns the sweep's folder."""
    returns = []
    for overrides in job_overrides:
        returns.append(JobReturn(overrides=overrides, status=JobStatus.COMPLETED))
        returns[-1].return_value = folder
    return returns
