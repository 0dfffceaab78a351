"""Hydra launcher `freeze`: checks a sweep, freezes it and splits its items, and runs nothing; for scripts of your own.

Hydra imports every plugin at each start: standard library and hydra only at module level.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from hydra_plugins.debate_local.fused import completed


@dataclass
class FreezeConfig:
    """shards: into how many slices the items are dealt."""

    _target_: str = "hydra_plugins.debate_local.freeze.FreezeLauncher"
    shards: int = 1


ConfigStore.instance().store(group="hydra/launcher", name="freeze", node=FreezeConfig, provider="debate-local")


class FreezeLauncher(Launcher):
    """Writes the sweep's folder and says how its shards are run."""

    def __init__(self, shards: int) -> None:
        self._shards = shards

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Keep what `launch` needs."""
        self._context = hydra_context
        self._config = config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Freeze, and print the folder."""
        from debate_local.commands.run import frozen_from
        from debate_local.sweep.compose import compose_jobs

        loader = self._context.config_loader
        configs = compose_jobs(job_overrides, lambda job: loader.load_sweep_config(self._config, list(job)))
        frozen, _ = frozen_from(configs, lambda plan: self._shards)
        print(f"frozen: {frozen.folder.absolute()}")
        print(f"a worker: debate-local work {frozen.folder.absolute()} --shard I/{self._shards}  (I from 0)")
        return completed(job_overrides, str(frozen.folder))
