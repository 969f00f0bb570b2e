"""The way to a split whose times are partly unknown: how far to go at a time.

Somewhere on the way a device may become much slower. Small steps make a fall shallow, and few rows
move back after it, but each step takes an iteration with a split that could be better. `next_step`
finds the steps with the least expected cost by dynamic programming: over all pairs of a point that
was good and one that was bad.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hetsched.partition.balancing.run_history import Shares
from hetsched.partition.distribution import Distribution

Cost = Callable[[Shares, Shares], float]
"""(old shares, new shares) -> seconds that moving takes."""


@dataclass(frozen=True)
class TrialPoint:
    """A split on the way.

    Attributes
    ----------
    distribution : Distribution
        Its makespan holds if no device has become slower.
    survival : float
        Probability of that.
    failure_seconds : float
        Of an iteration otherwise.
    """

    distribution: Distribution
    survival: float = 1.0
    failure_seconds: float = 0.0


@dataclass(frozen=True)
class TrialStep:
    """The next point, the last one that is worth going to, and the expected gain, seconds."""

    point: TrialPoint
    end: TrialPoint
    value: float


def next_step(
    present: Distribution,
    points: Sequence[TrialPoint],
    further: float,
    cost: Cost,
    trials: int,
) -> TrialStep:
    """Return the step with the least expected seconds in all further iterations.

    Parameters
    ----------
    present : Distribution
        The present split.
    points : sequence of TrialPoint
        In the order of the way. The first one is certain.
    further : float
        Iterations.
    cost : callable
    trials : int
        Doubtful splits that may be tried.

    Notes
    -----
    O(m^3 trials) for m points.
    """
    search = _TrialSearch(points, further, cost)
    reachable = points if trials else points[:1]
    costs = [
        cost(present.shares, point.distribution.shares)
        + search.trial(0, len(points), target, trials - 1)
        for target, point in enumerate(reachable)
    ]
    first = min(range(len(costs)), key=costs.__getitem__)
    value = further * (present.makespan - search.least) - costs[first]
    return TrialStep(points[first], points[search.end_from(first, trials - 1)], value)


class _TrialSearch:
    """Least expected costs, seconds above the best point's, by the good and the bad point."""

    def __init__(self, points: Sequence[TrialPoint], further: float, cost: Cost) -> None:
        self._seconds = [point.distribution.makespan for point in points]
        self._failures = [point.failure_seconds for point in points]
        self._survival = [point.survival for point in points] + [0.0]
        shares = [point.distribution.shares for point in points]
        self._moving = [[cost(old, new) for new in shares] for old in shares]
        self.least = min(self._seconds)
        self._further = further
        self._once = min(1.0, further)
        self._rest = max(0.0, 1 - 1 / further) if further else 0.0
        self._options: dict[tuple[int, int, int, int], tuple[float, int]] = {}

    def trial(self, good: int, bad: int, target: int, trials: int) -> float:
        """Return the cost of `target` and of up to `trials` more, apart from moving there."""
        excess = self._once * (self._seconds[target] - self.least)
        excess += self._rest * self._best(target, bad, target, trials)[0]
        if target == good:
            return excess
        survival = self._survival
        risk = (survival[good] - survival[target]) / (survival[good] - survival[bad])
        fall = self._once * (self._failures[target] - self.least)
        fall += self._rest * self._best(good, target, target, trials)[0]
        return excess + risk * (fall - excess)

    def _best(self, good: int, bad: int, at: int, trials: int) -> tuple[float, int]:
        """Return the least cost between two points, and the next point: `at` to stay there."""
        state = (good, bad, at, trials)
        if state not in self._options:
            seconds = self._seconds[at] if at == good else self._failures[at]
            options = [(self._further * (seconds - self.least), at)]
            options += [
                (
                    self._moving[at][target]
                    + self.trial(good, bad, target, trials - (target != good)),
                    target,
                )
                for target in range(good, bad if trials > 0 else good + 1)
                if target != at
            ]
            self._options[state] = min(options)
        return self._options[state]

    def end_from(self, point: int, trials: int) -> int:
        """Return where the way ends if no step leads beyond a cliff."""
        while (following := self._best(point, len(self._seconds), point, trials)[1]) != point:
            point, trials = following, trials - 1
        return point
