"""When a balancing loop ends: the reasons, the test of equal times, and what was measured before.

The papers stop at (t_max - t_min) / t_min <= epsilon (Clarke 3, DFPA 2), which limits, few units
or a cliff in the speed can make unreachable. So a loop also ends when the models promise no
further gain, when it comes back to a split that it has measured, and after a number of runs; it
then keeps the best split that it has measured.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from statistics import median
from typing import Any

from hetsched.partition.distribution import Distribution, Limits

BALANCED = "balanced"
NO_GAIN = "no further gain"
SEEN = "no further gain: seen before"
NOT_WORTH = "not worth moving"
BUDGET = "budget"
COMMUNICATION = "communication-bound"
TOLERATED = (BALANCED, COMMUNICATION)
"""With these the devices finish together."""

WINDOW = 5
"""Runs of one split that are remembered; their median counts."""
MOST_SPLITS = 256
"""Splits that are remembered, the latest."""
MOVED = 1.2
"""A device's time for the same share that differs by this factor has changed. Arbitrary: far above
noise, and a change that costs less is worth no search."""
BELIEVED = 2
"""Runs in a row that must show a change: one may be a hiccup."""

GUESSED = 0.1
"""Share of the tolerance that a predicted gain must exceed to be tried if it is only a guess:
near a cliff of the speed interpolation sees little of what there is to win. Arbitrary."""

Shares = tuple[int, ...]


def spread(shares: Sequence[int], seconds: Sequence[float], limits: Limits) -> float:
    """(max - min) / min of the devices' times, those without a share left out.

    A device at its limit can't be given more, so that it doesn't count as too early.
    """
    busy = [i for i, share in enumerate(shares) if share]
    free = [seconds[i] for i in busy if limits[i] is None or shares[i] < (limits[i] or 0)]
    if not free:
        return 0.0
    return max(0.0, max(seconds[i] for i in busy) / min(free) - 1)


def one_unit(shares: Sequence[int], seconds: Sequence[float]) -> float:
    """The slowest device's time for one unit over the longest time.

    Times that differ by less can't be made equal by moving whole units.
    """
    busy = [(share, time) for share, time in zip(shares, seconds, strict=True) if share]
    return max(time / share for share, time in busy) / max(time for _, time in busy)


def guessed(models: Sequence[Any], shares: Sequence[int]) -> bool:
    """Whether a share lies between two measured sizes of so different speeds that all is possible.

    Models without `points` are believed.
    """
    return any(share and _bends(model, share) for model, share in zip(models, shares, strict=True))


def _bends(model: Any, units: int) -> bool:
    points = getattr(model, "points", ())
    after = next((j for j, (size, _) in enumerate(points) if size >= units), 0)
    if not after or points[after][0] == units:
        return False
    (left, soon), (right, late) = points[after - 1], points[after]
    ratio = (left / soon) / (right / late)
    return not 1 / MOVED <= ratio <= MOVED


class Record:
    """The splits that were measured, and how long each device took."""

    def __init__(self) -> None:
        self._runs: dict[Shares, deque[tuple[float, ...]]] = {}
        self._differing: dict[int, int] = {}

    def __contains__(self, shares: Shares) -> bool:
        return shares in self._runs

    def add(self, shares: Shares, seconds: Sequence[float]) -> list[int]:
        """Remember a run.

        Returns
        -------
        list of int
            Devices that have changed: `BELIEVED` runs in a row differ from earlier ones of the
            same split. All other splits are forgotten then, as their times hold no longer.
        """
        runs = self._runs.pop(shares, None) or deque(maxlen=WINDOW)
        differing = _differing(runs, seconds) if runs else []
        self._differing = {i: self._differing.get(i, 0) + 1 for i in differing}
        changed = [i for i, times in self._differing.items() if times >= BELIEVED]
        if changed:
            self._runs.clear()
            self._differing.clear()
            runs.clear()
        runs.append(tuple(seconds))
        self._runs[shares] = runs
        if len(self._runs) > MOST_SPLITS:
            del self._runs[next(iter(self._runs))]
        return changed

    def seconds(self, shares: Shares) -> list[float]:
        """Each device's median time under `shares`."""
        return [median(times) for times in zip(*self._runs[shares], strict=True)]

    def makespan(self, shares: Shares) -> float:
        """Median of the runs' longest times."""
        return median(max(times) for times in self._runs[shares])

    def best(self) -> Shares:
        """The split that took the least time."""
        return min(self._runs, key=self.makespan)

    def distribution(self, shares: Shares, limits: Limits, reason: str) -> Distribution:
        """`shares` with what was measured."""
        seconds = self.seconds(shares)
        return Distribution(shares, self.makespan(shares), spread(shares, seconds, limits), reason)


def _differing(runs: deque[tuple[float, ...]], seconds: Sequence[float]) -> list[int]:
    before = [median(times) for times in zip(*runs, strict=True)]
    return [
        i
        for i, (old, new) in enumerate(zip(before, seconds, strict=True))
        if not old / MOVED <= new <= old * MOVED
    ]
