"""The virtual clock: time is computed, and memory behaves as badly as a real device's may.

The host is assumed infinitely fast, so that times don't depend on when messages arrive. When an
operation starts, its whole output is poisoned; the output is written when it ends. Bytes of its
source that changed in between are read as poison. So a missing wait corrupts the results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from hetsched.devices.emulated.streams import Operation, Streams

POISON = 0xFB
"""A byte. As a float it is a huge negative number; NaN could occur in users' data."""


@dataclass
class Work:
    """The real work of an operation.

    Attributes
    ----------
    sources, targets : sequence of ndarray
        Memory that it reads, and memory that it writes or owns.
    run : callable
        Does the work, given the values of the sources (arrays like them).
    """

    sources: Sequence[np.ndarray]
    targets: Sequence[np.ndarray]
    run: Callable[[Sequence[np.ndarray]], None]
    _values: list[np.ndarray] = field(default_factory=list)
    """The sources when the operation began."""
    _poisoned: list[np.ndarray] = field(default_factory=list)
    """The sources once the targets were poisoned."""

    def begin(self) -> None:
        self._values = [source.copy() for source in self.sources]
        for target in self.targets:
            target.reshape(-1).view(np.uint8).fill(POISON)
        # A target that overlaps a source (in place) has just changed it: that is not a fault.
        self._poisoned = [source.copy() for source in self.sources]

    def finish(self) -> None:
        snapshots = zip(self._values, self._poisoned, self.sources, strict=True)
        self.run([torn(*snapshot) for snapshot in snapshots])
        self._values, self._poisoned = [], []


def torn(values: np.ndarray, before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Return `values`, poisoned wherever the source changed from `before` to `after`."""
    raw = values.reshape(-1).view(np.uint8)
    changed = before.reshape(-1).view(np.uint8) != after.reshape(-1).view(np.uint8)
    raw[changed] = POISON
    return values


class VirtualClock:
    """A clock that runs operations in order of virtual time, up to the one that is waited for."""

    def __init__(self, engines: int, duplex: tuple[float, float]) -> None:
        self._engines = engines
        self._duplex = duplex
        self._streams = Streams(engines, duplex)
        self._frontier = 0.0

    def reset(self) -> None:
        """Restart the time at 0."""
        self._streams = Streams(self._engines, self._duplex)
        self._frontier = 0.0

    def earliest_start(self, after_wait: bool) -> float:
        """Return the earliest start of an operation issued now.

        `after_wait`: the host had to wait for earlier operations before it issued this one.
        """
        return self._frontier if after_wait else 0.0

    def issue(self, operation: Operation, work: Work) -> None:
        operation.begin = work.begin
        operation.finish = work.finish
        self._streams.issue(operation)

    def wait(self, operation: Operation) -> None:
        """Run until `operation` has ended."""
        events = self._streams.advance(float("inf"))
        while operation.ended is None:
            current, ends = next(events)
            _perform(current, ends)
        self._frontier = max(self._frontier, operation.ended)

    def close(self) -> None:
        pass


def _perform(operation: Operation, ends: bool) -> None:
    """Start or end `operation`; keep an error for the caller that waits for this operation."""
    try:
        if ends:
            operation.finish()
        else:
            operation.begin()
    except Exception as error:
        operation.error = operation.error or error
    if ends:
        operation.begin = operation.finish = _nothing


def _nothing() -> None:
    pass
