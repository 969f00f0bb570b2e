"""Sizes of which it isn't known how long they take, and splits with such sizes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from hetsched.partition.distribution import Distribution
from hetsched.partition.iterations.adaptive.trial_path import TrialPoint

HAZARD = 0.1
"""A device that had a share is as fast with r times as many rows with a probability of
r ^ -HAZARD. Arbitrary: 0.93 for twice as many."""
STEPS = 8
"""Equal steps of a size's logarithm that are compared on the way to another one. Arbitrary."""
LAST_HALVES = 3
"""Points between the last two of these, ever nearer to the last one."""

PARTS = sorted(
    {step / STEPS for step in range(STEPS + 1)}
    | {1 - 0.5**k / STEPS for k in range(1, LAST_HALVES + 1)}
)
"""Points of the way, as parts of it."""


@dataclass(frozen=True)
class Doubt:
    """Sizes of which it isn't known whether the time per unit has risen to `pace` there.

    It hasn't at `below` units; it has at `above`, if that is measured. `edge`: the probability
    that it does so right after `below`.
    """

    below: int
    above: int
    pace: float
    edge: float = 0.0
    is_measured: bool = True
    first: int | None = None
    """The only size to try before the goal, right after `below`."""

    def size_at(self, part: float, goal: int) -> int:
        """Return the size at a part of the way to `goal` units, by logarithms."""
        goal = max(self.below, min(goal, self.above))
        if self.first is not None and 0 < part < 1:
            return min(self.first, goal)
        return round(self.below * math.pow(goal / self.below, part))

    def survival(self, units: int) -> float:
        """Return the probability that `units` > `below` aren't beyond the cliff."""
        if not self.is_measured:
            start = self.first or self.below
            return (1 - self.edge) * math.pow(start / max(start, units), HAZARD)
        part = math.log(units / self.below) / math.log(self.above / self.below)
        return (1 - self.edge) * (1 - part)


def trial_point(distribution: Distribution, doubts: Mapping[int, Doubt]) -> TrialPoint:
    """Return a split with doubtful sizes, by device; the most doubtful one decides."""
    survival, failure = 1.0, distribution.makespan
    for i, doubt in doubts.items():
        share = distribution.shares[i]
        if share > doubt.below:
            survival = min(survival, doubt.survival(share))
            failure = max(failure, doubt.pace * share)
    return TrialPoint(distribution, survival, failure)
