"""What a tracker is told, and what it must do with it. A tracker is one file beside this one.

Rule 1: a tracker lives in a process of its own (`follow.py`). It may fail, hang or wait for a network: the sweep does
not notice, and neither does the end of the process that runs it. Rule 2: it works without a network and asks nobody.
Rule 3: what it keeps on disk lies in the folder that it is given.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

Value = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Start:
    """One worker's start of a sweep. name: of this start, unique. time: seconds since the epoch."""

    sweep: str
    name: str
    time: float
    settings: Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Told:
    """A finished run: its settings, and its results as numbers (the score with its interval, rates, costs an item)."""

    id: str
    label: str
    settings: Mapping[str, Value]
    numbers: Mapping[str, float]


class Tracker(Protocol):
    """Takes what is told to where people look at it. Whatever it raises switches it off, with a warning."""

    @property
    def destination(self) -> str:
        """Where it goes: a run is told to each destination once."""

    def progress(self, seconds: int, numbers: Mapping[str, float]) -> None:
        """How far this start is, so many seconds after its beginning."""

    def finished(self, run: Told) -> None:
        """Results of a run; they are kept when this returns."""

    def close(self, failed: bool) -> None:
        """This start has ended. failed: something went wrong in it."""
