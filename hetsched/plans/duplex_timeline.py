"""Two copy engines that slow each other down, as a fluid: only where a model's duplex is below 1.

While copies in both directions run, each keeps its share of its one-way pace, its fixed part
included; with one alone it runs at full pace. Otherwise the pipeline of `timeline`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

Phases = tuple[float, float, float]
"""Seconds of copy in, compute and copy out of one chunk, each undisturbed."""
Interval = tuple[float, float]


@dataclass
class _Engine:
    """One phase of all chunks, in order; `may_start` says whether the next one's turn has come."""

    work: list[float]
    may_start: Callable[[int], bool]
    spans: list[Interval] = field(default_factory=list)
    left: float | None = None
    since: float = 0.0

    @property
    def done(self) -> int:
        return len(self.spans)

    def start(self, now: float) -> bool:
        """Begin the next chunk if nothing runs and it may; whether it did."""
        if self.left is not None or self.done == len(self.work) or not self.may_start(self.done):
            return False
        self.left, self.since = self.work[self.done], now
        return True

    def advance(self, seconds: float, pace: float, now: float) -> None:
        """`now`: the time after these `seconds`."""
        if self.left is None:
            return
        if self.left <= seconds * pace * (1 + 1e-12):  # rounding must not leave a crumb behind
            self.spans.append((self.since, now))
            self.left = None
        else:
            self.left -= seconds * pace


def stretched(
    phases: Sequence[Phases], slots: int, duplex: tuple[float, float], start: float
) -> list[tuple[Interval, Interval, Interval]]:
    """When each chunk is copied in, computed and copied out, from `start` on. O(chunks).

    Parameters
    ----------
    phases : sequence of (3,) float, seconds
    slots : int
        A chunk's copy in starts after the copy out of the chunk `slots` before it.
    duplex : (2,) float
        Share of its pace that h2d, d2h keeps while the other is busy.
    start : float, seconds
    """
    copy_in = _Engine([p[0] for p in phases], lambda k: out.done > k - slots)
    compute = _Engine([p[1] for p in phases], lambda k: copy_in.done > k)
    out = _Engine([p[2] for p in phases], lambda k: compute.done > k)
    engines, now = (copy_in, compute, out), start
    while out.done < len(phases):
        for engine in engines:
            engine.start(now)
        now = _step(engines, duplex, now)
    return list(zip(copy_in.spans, compute.spans, out.spans, strict=True))


def _step(
    engines: tuple[_Engine, _Engine, _Engine], duplex: tuple[float, float], now: float
) -> float:
    """Let time pass until the next operation ends; the time then."""
    both = engines[0].left is not None and engines[2].left is not None
    paces = (duplex[0], 1.0, duplex[1]) if both else (1.0, 1.0, 1.0)
    seconds = min(
        engine.left / pace
        for engine, pace in zip(engines, paces, strict=True)
        if engine.left is not None
    )
    for engine, pace in zip(engines, paces, strict=True):
        engine.advance(seconds, pace, now + seconds)
    return now + seconds
