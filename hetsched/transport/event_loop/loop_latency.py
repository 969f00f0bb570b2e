"""Latency of the event loop: how long callbacks wait for their turn, and the longest callback.

A histogram of fixed size with four buckets per power of two, so quantiles are at most 25 % too
high. Recording takes a few hundred nanoseconds. No clock: the loop measures.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_BUCKETS = 4 * 65
"""Four per bit of a number of nanoseconds in 64 bits."""


@dataclass(frozen=True)
class LatencySnapshot:
    """Latency since the start or the last reset; all times in seconds.

    `p50` to `max`: from the time at which a callback was due, or its descriptor may have become
    readable, to its start. `longest_callback`: the time that the slowest callback took, whose
    name is `longest_name`. All are 0.0 if no callback has run.
    """

    count: int
    p50: float
    p99: float
    p999: float
    max: float
    longest_callback: float
    longest_name: str


class LoopLatency:
    """The histogram. Belongs to the loop's thread; `snapshot` may be called from any."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything recorded so far."""
        self._counts = [0] * _BUCKETS
        self._max_wait = 0.0
        self._longest = 0.0
        self._longest_name = ""

    def record(self, wait: float, duration: float, callback: Callable[[], Any]) -> None:
        """Record a callback that waited for `wait` seconds and took `duration` seconds."""
        nanoseconds = int(wait * 1e9) if 0.0 < wait < 1e9 else 0
        bits = nanoseconds.bit_length()
        self._counts[bits << 2 | (nanoseconds >> bits - 3 & 3 if bits > 2 else 0)] += 1
        self._max_wait = max(self._max_wait, wait)
        if duration > self._longest:
            self._longest = duration
            self._longest_name = callback_name(callback)

    def snapshot(self) -> LatencySnapshot:
        """Return the quantiles so far."""
        counts = list(self._counts)
        p50, p99, p999 = (self._quantile(counts, fraction) for fraction in (0.5, 0.99, 0.999))
        return LatencySnapshot(
            sum(counts), p50, p99, p999, self._max_wait, self._longest, self._longest_name
        )

    def _quantile(self, counts: list[int], fraction: float) -> float:
        """Return the upper end of the bucket in which the quantile lies."""
        rank = fraction * sum(counts)
        seen = 0
        for index, count in enumerate(counts):
            seen += count
            if count and seen >= rank:
                return min(_upper_end(index), self._max_wait)
        return 0.0


def callback_name(callback: Callable[..., Any]) -> str:
    """Return where a callback is defined: "Server._accept", "Engine.submit.<locals>.<lambda>"."""
    while isinstance(callback, functools.partial):
        callback = callback.func
    return getattr(callback, "__qualname__", "") or type(callback).__qualname__


def _upper_end(index: int) -> float:
    bits, quarter = divmod(index, 4)
    if bits < 3:
        return ((1 << bits) - 1) * 1e-9
    return ((5 + quarter) << bits - 3) * 1e-9
