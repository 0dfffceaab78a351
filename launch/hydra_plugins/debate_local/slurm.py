"""Hydra launcher `slurm`: a sweep as one Slurm array whose tasks are shards of the items; returns at once."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn

from hydra_plugins.debate_local.composed import SweepLauncher, completed


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


class SlurmLauncher(SweepLauncher):
    """Checks the sweep, freezes it, splits its items and submits the array."""

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Submit, and say how to watch, cancel and resume."""
        from debate_local.commands.launching import launch_slurm
        from debate_local.commands.run import frozen_from
        from debate_local.launchers.slurm import SlurmSettings

        settings = SlurmSettings(**self._settings)
        frozen, _ = frozen_from(self._composed(job_overrides), lambda plan: settings.shards, {"slurm": self._settings})
        launch_slurm(frozen, frozen.shards, settings)
        return completed(job_overrides, str(frozen.folder))
