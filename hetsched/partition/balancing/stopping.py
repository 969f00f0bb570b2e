"""When a balancing loop stops: its reasons, the test of equal times, deferred gains.

The papers stop at (t_max - t_min) / t_min <= epsilon (Clarke 3, DFPA 2), which limits, few units
or a cliff in the speed can make unreachable. So a loop also stops when the models promise no
further gain, when it returns to a measured distribution, and after a maximum number of runs; it
then keeps the best measured distribution.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hetsched.partition.distribution import Limits

BALANCED = "balanced"
NO_GAIN = "no further gain"
SEEN = "no further gain: seen before"
NOT_WORTH_MOVING = "not worth moving"
BUDGET = "budget"
COMMUNICATION_BOUND = "communication-bound"
BALANCED_REASONS = (BALANCED, COMMUNICATION_BOUND)
"""Reasons with which the devices finish together."""

MAX_SPEED_RATIO = 1.2
"""Ratio of the speeds of two measured sizes above which an interpolated time is a guess.
Arbitrary: far above noise."""
MIN_GUESSED_GAIN = 0.1
"""Fraction of the tolerance that a guessed gain must exceed to be tried: near a cliff of the
speed, interpolation underestimates the possible gain. Arbitrary."""
SLACK = 0.2
"""Fraction of the tolerance subtracted from each deferred gain, for model error."""
SETTLED_RUNS = 10
"""Runs after which a gain must reach the full tolerance, with models that also learn from other
runs. Arbitrary."""
MIN_SETTLED = 0.25
"""Fraction of the tolerance that a gain must exceed even after the first run, whose noise it may
be. Arbitrary."""
ROUNDING = 1e-9
"""Relative error allowed in comparing times."""


def relative_spread(shares: Sequence[int], seconds: Sequence[float], limits: Limits) -> float:
    """Return (max - min) / min of the times of devices with a share.

    A device at its limit can't take more units, so it never counts as finishing too early.
    """
    busy = [i for i, share in enumerate(shares) if share]
    free = [seconds[i] for i in busy if limits[i] is None or shares[i] < (limits[i] or 0)]
    if not free:
        return 0.0
    return max(0.0, max(seconds[i] for i in busy) / min(free) - 1)


def is_within_one_unit(shares: Sequence[int], seconds: Sequence[float], spread: float) -> bool:
    """Return whether the times differ by at most the slowest device's time for one unit.

    Moving whole units can't equalise such times. `spread`: from `relative_spread`.
    """
    busy = [(share, time) for share, time in zip(shares, seconds, strict=True) if share]
    unit = max(time / share for share, time in busy)
    return max(time for _, time in busy) * spread / (1 + spread) <= unit * (1 + ROUNDING)


def is_guess(models: Sequence[Any], shares: Sequence[int]) -> bool:
    """Return whether a share lies between measured sizes with too different speeds.

    Models without `points` are trusted.
    """
    return any(
        share and _spans_a_cliff(model, share) for model, share in zip(models, shares, strict=True)
    )


def _spans_a_cliff(model: Any, units: int) -> bool:
    points = getattr(model, "points", ())
    after = next((j for j, (size, _) in enumerate(points) if size >= units), 0)
    if not after or points[after][0] == units:
        return False
    (small, small_seconds), (large, large_seconds) = points[after - 1], points[after]
    ratio = (small / small_seconds) / (large / large_seconds)
    return not 1 / MAX_SPEED_RATIO <= ratio <= MAX_SPEED_RATIO


class DeferredGain:
    """The sum of deferred gains: a small gain that persists is worth a move.

    A cumulative sum (Page, Biometrika 41, 1954) with slack for model error.

    Parameters
    ----------
    tolerance : float
        The largest sum that is deferred.
    settled_runs : int
        Slack and limit grow over so many runs: early moves cost little, later gains are more often
        noise.
    """

    def __init__(self, tolerance: float, settled_runs: int) -> None:
        self._tolerance = tolerance
        self._settled_runs = settled_runs
        self._sum = 0.0
        self._last_runs = 0

    def defer(self, gain: float, runs: int) -> bool:
        """Add a relative gain, `runs` after the last change; return whether to defer it again.

        It counts once for each run since the last call, in which it was forgone, too.
        """
        settled = max(MIN_SETTLED, min(1.0, runs / self._settled_runs))
        limit = self._tolerance * settled
        elapsed = max(1, runs - self._last_runs) if self._sum else 1
        self._last_runs = runs
        self._sum += elapsed * max(0.0, gain - SLACK * limit)
        return self._sum <= limit

    def clear(self) -> None:
        """Reset the sum, after a move."""
        self._sum = 0.0
