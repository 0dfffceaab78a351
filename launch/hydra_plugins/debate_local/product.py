"""Hydra sweeper `product`: the Cartesian product of swept values, as Hydra's own `basic`, handed over in one batch.

`basic` composes every job once only to validate it and writes multirun.yaml into the working folder; the launcher
composes every job anyway, before anything runs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.utils import JobReturn


@dataclass
class ProductConfig:
    """params: key=values pairs swept in every multirun, as for `basic`."""

    _target_: str = "hydra_plugins.debate_local.product.ProductSweeper"
    max_batch_size: int | None = None
    params: dict[str, str] | None = field(default=None)


ConfigStore.instance().store(group="hydra/sweeper", name="product", node=ProductConfig, provider="debate-local")


class ProductSweeper(BasicSweeper):
    """One batch with every combination."""

    def sweep(self, arguments: list[str]) -> Sequence[Sequence[JobReturn]]:
        """Split the swept values and launch all jobs together."""
        launcher: Any = self.launcher
        context: Any = self.hydra_context
        assert launcher is not None and context is not None
        parser = OverridesParser.create(config_loader=context.config_loader)
        overrides = parser.parse_overrides([*self._parse_config(), *arguments])
        (jobs,) = self.split_arguments(overrides, max_batch_size=None)
        return [launcher.launch(jobs, initial_job_idx=0)]
