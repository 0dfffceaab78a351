"""A pytest plugin: in CI a skipped test that needs a real engine, cluster or browser is a failure, not a gap."""

import os
from collections.abc import Generator
from typing import Any

import pytest

NEVER_SKIPPED_IN_CI = ("vllm", "slurm", "chromium", "stockfish")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Turn such a skip into a failure that says why it was skipped."""
    report = yield
    needed = [name for name in NEVER_SKIPPED_IN_CI if item.get_closest_marker(name)]
    if os.environ.get("CI") and report.skipped and needed:
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} needs {', '.join(needed)} and was skipped in CI: {report.longrepr}"
    return report
