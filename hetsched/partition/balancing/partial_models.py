"""Partial speed functions: each learns from what the loop visits (Clarke 4; DFPA 2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hetsched.partition.balancing.phase import Reading

REPEATED = 1e-6
"""Relative difference of times for the same size from which on times are noisy."""
NEAR = 1.5
"""Once they are, sizes that differ by less correct each other."""


class Learner:
    """A model that somebody gave, told of runs if it has `observe`."""

    def __init__(self, curve: Any) -> None:
        self.curve = curve

    def learn(self, units: int, reading: Reading) -> None:
        """Tell the curve of a run of `units` > 0."""
        observe = getattr(self.curve, "observe", None)
        if observe is not None:
            observe(units, reading.busy)


class Partial(Learner):
    """A speed function of ours, exact as long as times are, smoothed once they prove noisy.

    Without noise every time is as good as any, a cliff between two neighbours too, and the papers'
    experiments rest on that. With noise, one bad time would stand there like a cliff for ever.

    Parameters
    ----------
    curve : callable (near) -> curve
        A new one; `near` as of `PiecewiseLinear`.
    """

    def __init__(self, curve: Callable[[float | None], Any]) -> None:
        super().__init__(curve(None))
        self._smoothed: Any = curve(NEAR)
        self._seconds: dict[int, float] | None = {}

    def learn(self, units: int, reading: Reading) -> None:
        """Tell both curves, until one is chosen."""
        self.curve.observe(units, reading.busy)
        if self._seconds is None:
            return
        self._smoothed.observe(units, reading.busy)
        before = self._seconds.setdefault(units, reading.busy)
        if abs(reading.busy - before) > REPEATED * before:
            self.curve, self._seconds = self._smoothed, None
