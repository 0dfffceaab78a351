"""Hydra launcher `slurm`: a sweep as one Slurm array whose tasks are shards of the items; returns at once.

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
class SlurmConfig:
    """See `debate_local.launchers.slurm.SlurmSettings`."""

    _target_: str = "hydra_plugins.debate_local.slurm.SlurmLauncher"
    shards: int = 1
    throttle: int | None = None
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    time: int = 240
    gpus_per_task: int = 0
    cpus_per_task: int | None = None
    mem_gb: float | None = None
    signal_seconds: int = 120
    max_requeues: int = 50
    sbatch: list[str] = field(default_factory=list)
    setup: list[str] = field(default_factory=list)


ConfigStore.instance().store(group="hydra/launcher", name="slurm", node=SlurmConfig, provider="debate-local")


class SlurmLauncher(Launcher):
    """Checks the sweep, freezes it, splits its items and submits the array."""

    def __init__(self, **settings: Any) -> None:
        self._settings = settings

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Keep what `launch` needs."""
        self._context = hydra_context
        self._config = config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Submit, and say how to watch, cancel and resume."""
        from omegaconf import OmegaConf

        from debate_local.commands.launching import launch_slurm
        from debate_local.commands.run import frozen_from
        from debate_local.launchers.slurm import SlurmSettings
        from debate_local.sweep.compose import compose_jobs

        loader = self._context.config_loader
        configs = compose_jobs(job_overrides, lambda job: loader.load_sweep_config(self._config, list(job)))
        plain: dict[str, Any] = OmegaConf.to_container(OmegaConf.create(self._settings), resolve=True)  # type: ignore[assignment]
        settings = SlurmSettings(**plain)
        frozen, _ = frozen_from(configs, lambda plan: settings.shards, {"slurm": plain})
        launch_slurm(frozen, frozen.shards, settings)
        return completed(job_overrides, str(frozen.folder))
