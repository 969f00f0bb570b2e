"""The one rule of trials: what something that isn't known well is worth. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MIN_GAIN = 0.02
"""Part of the present time that a known option must save: no noise moves work to and fro."""

Outcome = tuple[float, float, float]
"""Probability, seconds of a run if it is adopted, seconds of the trial."""


@dataclass(frozen=True)
class Option:
    """Something that might be faster than the present way, which takes T seconds a run.

    Its value over a horizon of H runs that may follow is ::

        H sum p max(0, T - s) - sum p max(0, t - T) - moving_cost

    It is kept only where it turns out to be faster, and its trial costs only what takes longer.

    Attributes
    ----------
    outcomes : sequence of (p, s, t)
        How it may turn out; probabilities sum to 1. A known option has a single outcome.
    moving_cost : float, seconds
    """

    outcomes: Sequence[Outcome] = ()
    moving_cost: float = 0.0

    def value(self, present_seconds: float, horizon: float) -> float:
        """Return the expected seconds saved; the best option with more than 0 is tried."""
        lost = sum(p * max(0.0, t - present_seconds) for p, _, t in self.outcomes)
        return horizon * self.saved(present_seconds) - lost - self.moving_cost

    def saved(self, present_seconds: float) -> float:
        return sum(p * max(0.0, present_seconds - s) for p, s, _ in self.outcomes)
