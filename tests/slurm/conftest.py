"""The cluster that all Slurm tests share: started when a test first asks for it."""

import contextlib
from collections.abc import Iterator

import pytest

from tests.slurm.cluster import Cluster, SlurmMissing, running


@pytest.fixture(scope="session")
def slurm_cluster() -> Iterator[Cluster]:
    """A real Slurm cluster of one node. Skips where none can be had."""
    with contextlib.ExitStack() as stack:
        try:
            cluster = stack.enter_context(running())
        except SlurmMissing as error:
            pytest.skip(str(error))
        yield cluster


@pytest.fixture
def on_slurm(slurm_cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """The cluster, for a test that calls Slurm's commands from this very process."""
    monkeypatch.setenv("SLURM_CONF", slurm_cluster.env["SLURM_CONF"])
    return slurm_cluster
