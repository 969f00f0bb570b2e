"""The virtual clock: time is computed, and memory behaves as badly as a real device's may.

The host is taken to be infinitely fast, so that times don't depend on when messages arrive. When
an operation starts, all that it will write is filled with a bit pattern of its own; when it ends,
it writes. What changed in its source in between is lost. So an operation that doesn't wait for
another shows in the results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from hetsched.devices.emulated.streams import Operation, Streams

POISON = 0xFB
"""A byte. As a float a huge negative number, and no NaN, which a user's data may hold."""


@dataclass
class Work:
    """What an operation really does.

    Attributes
    ----------
    sources, targets : sequence of ndarray
        Memory that it reads, and that it writes or claims.
    run : callable
        Does it, given the sources' values (arrays like them).
    """

    sources: Sequence[np.ndarray]
    targets: Sequence[np.ndarray]
    run: Callable[[Sequence[np.ndarray]], None]
    _read: list[np.ndarray] = field(default_factory=list)
    _left: list[np.ndarray] = field(default_factory=list)

    def begin(self) -> None:
        self._read = [source.copy() for source in self.sources]
        for target in self.targets:
            target.reshape(-1).view(np.uint8).fill(POISON)
        # A target that overlaps a source (in place) has just changed it: that is no fault.
        self._left = [source.copy() for source in self.sources]

    def finish(self) -> None:
        self.run([torn(*each) for each in zip(self._read, self._left, self.sources, strict=True)])
        self._read, self._left = [], []


def torn(read: np.ndarray, left: np.ndarray, now: np.ndarray) -> np.ndarray:
    """`read`, with poison wherever the source isn't any more what it was `left` as."""
    raw = read.reshape(-1).view(np.uint8)
    changed = left.reshape(-1).view(np.uint8) != now.reshape(-1).view(np.uint8)
    raw[changed] = POISON
    return read


class VirtualClock:
    """Runs operations in the order of virtual time, as far as somebody waits."""

    def __init__(self, engines: int, duplex: tuple[float, float]) -> None:
        self._engines = engines
        self._duplex = duplex
        self._streams = Streams(engines, duplex)
        self._frontier = 0.0

    def reset(self) -> None:
        """Time starts at 0 again."""
        self._streams = Streams(self._engines, self._duplex)
        self._frontier = 0.0

    def floor(self, behind: bool) -> float:
        """When an operation may start, at the earliest, that is issued now.

        `behind`: it had to wait until all before it was through.
        """
        return self._frontier if behind else 0.0

    def issue(self, operation: Operation, work: Work) -> None:
        operation.begin = work.begin
        operation.finish = work.finish
        self._streams.issue(operation)

    def wait(self, operation: Operation) -> None:
        """Run on until `operation` has ended."""
        events = self._streams.advance(float("inf"))
        while operation.ended is None:
            happened, ends = next(events)
            _perform(happened, ends)
        self._frontier = max(self._frontier, operation.ended)

    def close(self) -> None:
        pass


def _perform(operation: Operation, ends: bool) -> None:
    """An error belongs to whoever waits for the operation, not to whoever happens to wait now."""
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
