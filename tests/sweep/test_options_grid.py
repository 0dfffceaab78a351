"""A grid of options is planned and sent as its distinct requests only."""

from pathlib import Path

import pytest

from tests.bench.options_grid import counted

pytestmark = pytest.mark.slow


def test_of_a_grid_of_agents_rounds_and_peers_only_distinct_requests_are_planned_and_sent(tmp_path: Path) -> None:
    found = counted(2, str(tmp_path))
    a_cell_alone = sum(agents * rounds for agents in range(1, 7) for rounds in range(1, 7))
    # Round 0 is everybody's; who hears nobody verifies, in a debate of one as in one without peers; who hears others
    # hears whole replies or answers, of as many as there are.
    first, alone, hearing = 6, 6 * 5, 2 * sum(range(2, 7)) * 5
    assert (first + alone + hearing, 3 * a_cell_alone) == (236, 1323)
    assert found == {"cells": 108, "naive": 2 * 1323, "planned": 2 * 236, "sent": 2 * 236}
