"""A place of its own on this machine for an engine that runs in processes: a range of ports, and a folder for caches.

Engines that start together look for a free port and bind it only later, so that two find the same one; and they write
what they compile into one folder, in a home that several machines may share. Whoever holds a place shares neither with
another one. Knows ports and folders; refuses to know engines.
"""

import platform
import socket
from dataclasses import dataclass
from pathlib import Path

from debate_local.engines.weights import cache_folder

# Below the ports that operating systems give to whoever asks for any.
_FIRST, _COUNT, _PORTS = 20_000, 100, 100


class NoPlace(OSError):
    """All places of this machine are taken, or it lets nobody bind a port."""


@dataclass(frozen=True, slots=True)
class Place:
    """A claimed place. ports: for its holder alone. folder: the same one for the next holder, who finds its caches.

    The claim is a port that stays bound, so it ends with the process that made it, however that ends.
    """

    ports: range
    folder: Path
    _claim: socket.socket

    def release(self) -> None:
        """Let others have it. Twice is fine."""
        self._claim.close()


def claim() -> Place:
    """The first place that nobody holds. Raises NoPlace."""
    for number in range(_COUNT):
        first = _FIRST + number * _PORTS
        mark = socket.socket()
        try:
            mark.bind(("", first))
        except OSError:
            mark.close()
            continue
        folder = cache_folder() / "engines" / f"{platform.node()}-{number}"
        return Place(range(first + 1, first + _PORTS), folder, mark)
    raise NoPlace(f"no port can be bound of {_FIRST}, {_FIRST + _PORTS}, ... {_FIRST + (_COUNT - 1) * _PORTS}")
