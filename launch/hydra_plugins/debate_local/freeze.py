"""Hydra launcher `freeze`: checks a sweep, freezes it and splits its items, and runs nothing; for your own scripts."""

from collections.abc import Sequence
from dataclasses import dataclass

from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn

from hydra_plugins.debate_local.composed import SweepLauncher, completed


@dataclass
class FreezeConfig:
    """shards: into how many slices the items are dealt."""

    _target_: str = "hydra_plugins.debate_local.freeze.FreezeLauncher"
    shards: int = 1


ConfigStore.instance().store(group="hydra/launcher", name="freeze", node=FreezeConfig, provider="debate-local")


class FreezeLauncher(SweepLauncher):
    """Writes the sweep's folder and says how its shards are run."""

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Freeze, and print the folder."""
        from debate_local.commands.run import frozen_from
        from debate_local.commands.terminal import to_type

        shards: int = self._settings["shards"]
        frozen, _ = frozen_from(self._composed(job_overrides), lambda plan: shards)
        print(f"frozen: {frozen.folder.absolute()}")
        print(f"a worker: {to_type('work', frozen.folder.absolute(), '--shard', f'I/{shards}')}  (I from 0)")
        return completed(job_overrides, str(frozen.folder))
