"""Converts events to seconds of CLOCK_MONOTONIC.

The runtime returns the milliseconds between two events as float32, which loses microseconds over
long intervals. So each time is measured from a recent event: the start of the previous chunk.
"""

from __future__ import annotations

import time

from hetsched.devices.cuda.faults import NOT_READY, CudaError
from hetsched.devices.cuda.runtime import Event, Runtime, Stream

MAX_ANCHORS = 3
"""Number of anchors, of which the tightest is used: a context switch can spoil one."""
STALE_SECONDS = 1.0
"""Seconds after which an idle device's clock is set again; clocks drift by parts per million."""


class DeviceClock:
    """Times of events, accurate to the few microseconds that a launch takes."""

    def __init__(self, runtime: Runtime, stream: Stream) -> None:
        self._stream = stream
        self._events = (runtime.event(), runtime.event())
        self._base = self._events[0]
        self._seconds = 0.0
        self._set_time = float("-inf")

    def set(self) -> None:
        """Anchor to the host's clock. The device must be idle."""
        best = float("inf")
        for _ in range(MAX_ANCHORS):
            spare = self._events[1] if self._base is self._events[0] else self._events[0]
            before = time.monotonic()
            self._stream.record(spare)
            _spin(spare)
            after = time.monotonic()
            if after - before < best:
                best = after - before
                self._base, self._seconds = spare, (before + after) / 2
        self._set_time = time.monotonic()

    def refresh(self) -> bool:
        """Call `set` if the clock is stale; return whether it was."""
        if time.monotonic() - self._set_time <= STALE_SECONDS:
            return False
        self.set()
        return True

    def seconds(self, event: Event) -> float:
        """Return the time of `event`, which must have passed."""
        return self._seconds + event.milliseconds_after(self._base) * 1e-3

    def follow(self, event: Event) -> None:
        """Measure relative to `event`, which must not be recorded again until the next call."""
        self._seconds = self.seconds(event)
        self._base = event


def _spin(event: Event) -> None:
    """Wait a few microseconds without sleeping: waking up would take longer."""
    while (status := event.status()) != 0:
        if status != NOT_READY:
            raise CudaError(status, "setting the clock")
