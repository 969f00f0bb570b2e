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

from hetsched.partition.distribution import Limits

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
GUESSED = 0.1
"""Share of the tolerance that a predicted gain must exceed to be tried if it is only a guess:
near a cliff of the speed interpolation sees little of what there is to win. Arbitrary."""

SLACK = 0.2
"""Share of the tolerance that doesn't count of a gain that is passed over: models err, too."""
SETTLED = 10
"""Runs after which gains must be as large as the tolerance says, by models that learn from more
than these runs. Arbitrary."""

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


def a_unit_apart(shares: Sequence[int], seconds: Sequence[float], apart: float) -> bool:
    """Whether times whose `spread` is `apart` differ by no more than the slowest one's unit.

    Moving whole units can't make them equal then.
    """
    busy = [(share, time) for share, time in zip(shares, seconds, strict=True) if share]
    unit = max(time / share for share, time in busy)
    return max(time for _, time in busy) * apart / (1 + apart) <= unit * (1 + 1e-9)


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


class Regret:
    """Gains that were passed over, added up: a small one that lasts is worth a move.

    A cumulative sum (Page, Biometrika 41, 1954) with slack for what models can't tell.

    Parameters
    ----------
    tolerance : float
        The sum that is passed over.
    settled : int, runs
        Slack and limit grow until then: at first there is little that a move could spoil, later it
        is rather noise that promises a gain.
    """

    def __init__(self, tolerance: float, settled: int) -> None:
        self._tolerance = tolerance
        self._settled = settled
        self._sum = 0.0

    def passes(self, gain: float, runs: int) -> bool:
        """Whether to pass over a relative gain once more, `runs` after all was new."""
        limit = self._tolerance * min(1.0, runs / self._settled)
        self._sum += max(0.0, gain - SLACK * limit)
        return self._sum <= limit

    def clear(self) -> None:
        """A move was made."""
        self._sum = 0.0


class Record:
    """The splits that were measured, and how long each device took."""

    def __init__(self) -> None:
        self._runs: dict[Shares, deque[tuple[float, ...]]] = {}

    def __contains__(self, shares: Shares) -> bool:
        return shares in self._runs

    def add(self, shares: Shares, seconds: Sequence[float]) -> None:
        """Remember a run."""
        runs = self._runs.pop(shares, None) or deque(maxlen=WINDOW)
        runs.append(tuple(seconds))
        self._runs[shares] = runs
        if len(self._runs) > MOST_SPLITS:
            del self._runs[next(iter(self._runs))]

    def clear(self) -> None:
        """A device has changed: none of these times hold."""
        self._runs.clear()

    def seconds(self, shares: Shares) -> list[float]:
        """Each device's median time under `shares`."""
        return [median(times) for times in zip(*self._runs[shares], strict=True)]

    def makespan(self, shares: Shares) -> float:
        """Median of the runs' longest times."""
        return median(max(times) for times in self._runs[shares])

    def best(self) -> Shares:
        """The split that took the least time."""
        return min(self._runs, key=self.makespan)
