"""Hydra launcher `fused`: all jobs of a multirun become cells of one sweep, with one model load an engine."""

from collections.abc import Sequence
from dataclasses import dataclass

from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn

from hydra_plugins.debate_local.composed import SweepLauncher, completed


@dataclass
class FusedConfig:
    """No settings: what a sweep needs stands in our own config."""

    _target_: str = "hydra_plugins.debate_local.fused.FusedLauncher"


ConfigStore.instance().store(group="hydra/launcher", name="fused", node=FusedConfig, provider="debate-local")


class FusedLauncher(SweepLauncher):
    """Composes every job's config, then runs them all in one pipeline, in this process."""

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Run the sweep. A failure is raised, so that the exit code is honest."""
        from debate_local.commands.run import run_composed

        result = run_composed(self._composed(job_overrides))
        return completed(job_overrides, str(result.sweep.folder))
