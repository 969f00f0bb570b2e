"""Partial speed functions: each learns only the sizes that the loop visits (Clarke 4; DFPA 2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hetsched.partition.balancing.phase import Reading

MIN_NOISE = 1e-6
"""Relative difference of two times of the same size above which times are noisy."""
NEAR = 1.5
"""With noise, sizes within this ratio correct each other."""


class Learner:
    """A model passed to the Balancer, which learns from runs if it has `observe`."""

    def __init__(self, curve: Any) -> None:
        self.curve = curve

    def learn(self, units: int, reading: Reading) -> None:
        """Add a run of `units` > 0 to the curve."""
        observe = getattr(self.curve, "observe", None)
        if observe is not None:
            observe(units, reading.busy)


class PartialLearner(Learner):
    """A new speed function: exact until times prove noisy, smoothed from then on.

    Without noise every time is exact, even across a cliff between two neighbours, and the papers'
    experiments rely on that. With noise, a single outlier would look like a cliff.

    Parameters
    ----------
    new_curve : callable (near) -> curve
        `near` as in `PiecewiseLinear`.
    """

    def __init__(self, new_curve: Callable[[float | None], Any]) -> None:
        super().__init__(new_curve(None))
        self._smoothed: Any = new_curve(NEAR)
        self._seconds: dict[int, float] | None = {}

    def learn(self, units: int, reading: Reading) -> None:
        """Add a run to both curves, until one is chosen."""
        self.curve.observe(units, reading.busy)
        if self._seconds is None:
            return
        self._smoothed.observe(units, reading.busy)
        first = self._seconds.setdefault(units, reading.busy)
        if abs(reading.busy - first) > MIN_NOISE * first:
            self.curve, self._seconds = self._smoothed, None
