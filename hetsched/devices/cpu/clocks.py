"""Clocks that time a core's computations. Emulated cores have other clocks."""

from __future__ import annotations

import time
from typing import Protocol

from hetsched.device import Chunk
from hetsched.devices.base import DeviceJob
from hetsched.devices.cpu.stages import StageClock, WallStageClock
from hetsched.devices.iterating import IterativeJob


class CoreClock(Protocol):
    """Times the computations of one core."""

    def begin(self, job: DeviceJob | None) -> None:
        """A job starts; None: the previous one has ended, so drop every reference to it."""

    def now(self) -> float:
        """Return seconds on this clock."""

    def busy_seconds(self) -> float | None:
        """Return the processor time that this thread has used so far; None if meaningless."""

    def end_of(self, chunk: Chunk, start: float) -> tuple[float, int]:
        """Return the end of the computation begun at `start` and just completed; 1 if late."""

    def stage_clock(self, job: IterativeJob) -> StageClock:
        """Return the clock of the stages of an iterative job."""

    def beside(self) -> CoreClock:
        """Return a clock for side jobs of the same core, which run in another thread."""


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

    def stage_clock(self, job: IterativeJob) -> StageClock:
        return WallStageClock()

    def beside(self) -> WallClock:
        return WallClock()


class TeamClock(WallClock):
    """A clock without processor time: a thread can't measure that of the team's other threads."""

    def busy_seconds(self) -> float | None:
        return None
