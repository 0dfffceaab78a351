"""Places on a machine: whoever holds one shares neither ports nor folder with another. Real ports, real processes."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from debate_local.engines.place import NoPlace, Place, claim

pytestmark = pytest.mark.hazard("B15", "B23")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEBATE_LOCAL_CACHE", str(tmp_path))


@pytest.fixture
def held() -> Iterator[list[Place]]:
    """Places that are let go of in the end."""
    places: list[Place] = []
    yield places
    for one in places:
        one.release()


def test_places_have_no_port_and_no_folder_in_common(held: list[Place]) -> None:
    held += [claim() for _ in range(5)]
    ports = [port for one in held for port in one.ports]
    assert len(ports) == len(set(ports)) == 5 * 99
    assert len({one.folder for one in held}) == 5
    # Linux gives those from 32768 on to whoever asks for any.
    assert max(ports) < 32768


def test_a_place_that_was_let_go_is_had_again_with_its_folder(held: list[Place]) -> None:
    first = claim()
    first.release()
    first.release()
    held.append(claim())
    assert (held[0].ports, held[0].folder) == (first.ports, first.folder)


def test_the_ports_of_a_place_can_be_bound(held: list[Place]) -> None:
    held.append(claim())
    with socket.socket() as one:
        one.bind(("", held[0].ports.start))


def test_places_of_which_another_program_has_the_port_are_left_out(held: list[Place]) -> None:
    there = claim()
    there.release()
    with socket.socket() as other:
        other.bind(("127.0.0.1", there.ports.start - 1))
        other.listen()
        held.append(claim())
    assert held[0].ports.start > there.ports.start


HOLD = """
import sys
from debate_local.engines.place import claim
place = claim()
print(place.ports.start, place.folder, flush=True)
sys.stdin.read()
"""


def test_processes_that_start_at_once_have_different_places_and_a_kill_frees_them() -> None:
    holders = [
        subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    try:
        said = [holder.stdout.readline().split() for holder in holders if holder.stdout]
        assert len({ports for ports, _ in said}) == len({folder for _, folder in said}) == 4
    finally:
        for holder in holders:
            holder.kill()
            holder.communicate()
    for ports, _ in said:
        with socket.socket() as free:
            free.bind(("", int(ports) - 1))


def test_a_folder_belongs_to_one_machine(held: list[Place], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.node", lambda: "node17")
    held.append(claim())
    assert held[0].folder.parent.parent == tmp_path
    assert held[0].folder.name.startswith("node17-")


def test_where_no_port_can_be_bound_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing(socket.socket):
        def bind(self, address: object) -> None:
            raise PermissionError(1, os.strerror(1))

    monkeypatch.setattr("socket.socket", Refusing)
    with pytest.raises(NoPlace, match="no port can be bound of 20000, 20100"):
        claim()
