"""Hydra launcher `local`: the shards of a sweep on this machine, one worker a GPU group, one joint view."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn

from hydra_plugins.debate_local.composed import SweepLauncher, completed


@dataclass
class LocalConfig:
    """See `debate_local.launchers.local.LocalSettings`."""

    _target_: str = "hydra_plugins.debate_local.local.LocalLauncher"
    shards: int | None = None
    workers: int | None = None
    gpus: list[str] | None = field(default=None)
    max_restarts: int = 2


ConfigStore.instance().store(group="hydra/launcher", name="local", node=LocalConfig, provider="debate-local")


class LocalLauncher(SweepLauncher):
    """Freezes the sweep, splits its items, and runs a worker process for each shard."""

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Run the sweep. A failure is raised, so that the exit code is honest."""
        from debate_local.commands.launching import launch_local
        from debate_local.commands.run import frozen_from
        from debate_local.launchers.local import LocalSettings, places
        from debate_local.sweep.plan import Plan

        settings = LocalSettings(**self._settings)

        def shards(plan: Plan) -> int:
            return len(places(plan, settings)) if settings.shards is None else settings.shards

        frozen, plan = frozen_from(self._composed(job_overrides), shards, {"local": self._settings})
        launch_local(frozen, plan, frozen.shards, settings)
        return completed(job_overrides, str(frozen.folder))
