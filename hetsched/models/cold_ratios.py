"""How much slower a core's share is in a fresh process, by its size. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from hetsched.models.curves.curve import SpeedFunction
from hetsched.models.evidence.confidence import robust_median

MIN_RATIO, MAX_RATIO = 0.8, 2.0
"""Limits of the ratio; a run beyond them says that the speed has changed."""
MAX_GROWTH = 4.0
"""Largest ratio of a share to a measured one that says something about it. A fresh process also
has fixed costs of some milliseconds: they may double a share of 2 ms, but not one of 40.
Arbitrary."""


@dataclass(frozen=True)
class ColdRatios:
    """The times of shares in fresh processes over those in warm ones.

    Attributes
    ----------
    ratios : tuple of (float, float)
        Units and ratio of each size that a fresh process has computed.
    """

    ratios: tuple[tuple[float, float], ...] = ()

    def covers(self, units: float) -> bool:
        """Return whether a share of `units` has comparable measurements."""
        return any(size * MAX_GROWTH >= units for size, _ in self.ratios)

    def ratio(self, units: float) -> float:
        """Return the ratio for a share of `units`; 1 without comparable measurements."""
        comparable = [ratio for size, ratio in self.ratios if size * MAX_GROWTH >= units]
        return min(max(robust_median(comparable), MIN_RATIO), MAX_RATIO) if comparable else 1.0

    def rebased(self, before: SpeedFunction, after: SpeedFunction) -> ColdRatios:
        """Return the ratios of the same times to those of warm processes by another curve."""
        return ColdRatios(
            tuple(
                (units, ratio * float(before.time(units)) / float(after.time(units)))
                for units, ratio in self.ratios
            )
        )
