"""Hydra launcher `local`: the shards of a sweep on this machine, one worker a GPU group, one joint view.

Hydra imports every plugin at each start: standard library and hydra only at module level.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from hydra_plugins.debate_local.fused import completed


@dataclass
class LocalConfig:
    """See `debate_local.launchers.local.LocalSettings`."""

    _target_: str = "hydra_plugins.debate_local.local.LocalLauncher"
    shards: int | None = None
    workers: int | None = None
    gpus: list[str] | None = field(default=None)
    max_restarts: int = 2


ConfigStore.instance().store(group="hydra/launcher", name="local", node=LocalConfig, provider="debate-local")


class LocalLauncher(Launcher):
    """Freezes the sweep, splits its items, and runs a worker process for each shard."""

    def __init__(self, **settings: Any) -> None:
        self._settings = settings

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Keep what `launch` needs."""
        self._context = hydra_context
        self._config = config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Run the sweep. A failure is raised, so that the exit code is honest."""
        from debate_local.commands.launching import launch_local
        from debate_local.commands.run import frozen_from
        from debate_local.launchers.local import LocalSettings, places
        from debate_local.sweep.compose import compose_jobs
        from debate_local.sweep.plan import Plan

        loader = self._context.config_loader
        configs = compose_jobs(job_overrides, lambda job: loader.load_sweep_config(self._config, list(job)))
        settings = LocalSettings(**self._settings)

        def shards(plan: Plan) -> int:
            return len(places(plan, settings)) if settings.shards is None else settings.shards

        frozen, plan = frozen_from(configs, shards, {"local": self._settings})
        launch_local(frozen, plan, frozen.shards, settings)
        return completed(job_overrides, str(frozen.folder))
