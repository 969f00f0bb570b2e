"""How long what a core computes lasts: an emulated core is a core with another clock."""

from __future__ import annotations

import time
from typing import Protocol

from hetsched.devices.base import DeviceJob


class CoreClock(Protocol):
    """Times the computations of one core.

    Attributes
    ----------
    is_virtual : bool
        Times are computed: nothing else takes any.
    has_own_core : bool
        Between computations the thread may look for other devices before it sleeps.
    """

    is_virtual: bool
    has_own_core: bool

    def begin(self, job: DeviceJob | None, parts: int = 1) -> None:
        """A job starts, each unit of which is computed in equal parts.

        None: the previous one has ended, so drop every reference to it.
        """

    def now(self) -> float:
        """Return seconds on this clock."""

    def end_of(self, number: int, units: int, start: float) -> tuple[float, int]:
        """Return the end of the computation begun at `start` and just completed; 1 if late."""

    def beside(self) -> CoreClock:
        """Return a clock for a second job on the same core."""


class WallClock:
    """A computation lasts until its call returns."""

    is_virtual = False
    has_own_core = True

    def begin(self, job: DeviceJob | None, parts: int = 1) -> None:
        pass

    def now(self) -> float:
        return time.monotonic()

    def end_of(self, number: int, units: int, start: float) -> tuple[float, int]:
        return time.monotonic(), 0

    def beside(self) -> WallClock:
        return WallClock()
