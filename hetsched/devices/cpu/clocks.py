"""The clocks of a core: how long a computation lasts. An emulated core has another one."""

from __future__ import annotations

import time
from typing import Protocol

from hetsched.device import Chunk
from hetsched.devices.base import DeviceJob


class CoreClock(Protocol):
    """Times the computations of one core."""

    def begin(self, job: DeviceJob | None) -> None:
        """A job starts; None: the previous one has ended, so drop every reference to it."""

    def now(self) -> float:
        """Seconds on this clock."""

    def busy_seconds(self) -> float | None:
        """Processor time that this thread has used so far; None if that means nothing here."""

    def end_of(self, chunk: Chunk, start: float) -> tuple[float, int]:
        """End of the computation that began at `start` and has just returned; 1 if it was late."""


class WallClock:
    """A computation lasts until its call returns."""

    def begin(self, job: DeviceJob | None) -> None:
        pass

    def now(self) -> float:
        return time.monotonic()

    def busy_seconds(self) -> float | None:
        return time.thread_time()

    def end_of(self, chunk: Chunk, start: float) -> tuple[float, int]:
        return time.monotonic(), 0


class TeamClock(WallClock):
    """One thread of a team can't tell how much processor time the others got."""

    def busy_seconds(self) -> float | None:
        return None
