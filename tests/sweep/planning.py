"""What tests of options share: plans of overrides, and what is said of overrides that cannot be planned."""

from collections.abc import Callable

import pytest

from debate_local.sweep.compose import compose
from debate_local.sweep.options import OptionFault
from debate_local.sweep.plan import Plan, make_plan


def planner(*on: str) -> tuple[Callable[..., Plan], Callable[..., str]]:
    """`planned(*overrides, multirun=False)` and `fault(*overrides)`, each behind these overrides."""

    def planned(*overrides: str, multirun: bool = False) -> Plan:
        cells, _ = compose([*on, *overrides], multirun)
        return make_plan(cells)

    def fault(*overrides: str) -> str:
        with pytest.raises(OptionFault) as caught:
            planned(*overrides)
        return str(caught.value)

    return planned, fault
