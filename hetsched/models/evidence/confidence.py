"""The certainty of a measured time: the median of its repeats and its confidence interval.

From `MIN_RANKED` repeats on, the interval is that of the median by order statistics, which assumes
nothing about the noise (Hahn & Meeker, Statistical Intervals, 1991, section 5.2; Hoefler & Belli,
Scientific Benchmarking of Parallel Computing Systems, SC 2015, rule 8). With fewer repeats it is
Student's interval for the mean of the logarithms of the times, the protocol of Khaleghzadeh,
Reddy & Lastovetsky (HPOPTA, TPDS 2018: repeat until the half-width is 2.5 %), on a log scale
because contention multiplies times. An outlier only widens such an interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

CONFIDENCE = 0.95
"""Fraction of intervals that contain the true value."""
MIN_RANKED = 6
"""Repeats from which on order statistics reach `CONFIDENCE`: 1 - 2 / 2**6 = 0.97."""
STUDENT_T = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}
"""Student's t for `CONFIDENCE`, two-sided, by the number of repeats."""
NARROW_HALF_WIDTH = 0.025
"""Half-width, relative to the median, at which a time is certain enough (HPOPTA's protocol)."""
MAX_MIDDLE_RATIO = 1.2
"""The middle two of an even number of times are averaged if they differ by less."""
ROUNDING = 1e-9
"""Rounding error of a sum of weights."""
CHUNK_VARIANCE = 1.0
"""Variance of the times of a run's equal chunks over that of whole runs. Arbitrary."""


@dataclass(frozen=True)
class Knot:
    """The evidence for one size.

    Attributes
    ----------
    units : float, units
    seconds : float, seconds
        Median of the repeats that count, weighted by `run_weight`.
    count : int
        Number of these repeats.
    low, high : float, seconds
        Confidence interval of `seconds`; 0 and infinity for a single repeat.
    """

    units: float
    seconds: float
    count: int
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half the interval, over the median; infinite for a single repeat."""
        return (self.high - self.low) / 2 / self.seconds

    @property
    def is_narrow(self) -> bool:
        """Whether the time is certain enough not to be measured again."""
        return self.half_width <= NARROW_HALF_WIDTH


def robust_median(values: Sequence[float]) -> float:
    """Return the median of positive values; of two middle ones that disagree, the lower.

    Contention only lengthens times, so the shorter of two that disagree is the more likely.
    """
    ordered = sorted(values)
    half = len(ordered) // 2
    upper = ordered[half]
    if len(ordered) % 2:
        return upper
    lower = ordered[half - 1]
    return lower + (upper - lower) / 2 if upper < MAX_MIDDLE_RATIO * lower else lower


def run_weight(chunks: int) -> float:
    """Return what the median of so many chunks of a run counts, at most 1.

    In inverse proportion to its variance: that of a run, and that of a chunk over their number
    (a one-way model with random effects; Searle, Casella & McCulloch, Variance Components, 1992).
    """
    return chunks / (chunks + CHUNK_VARIANCE)


def weighted_median(values: Sequence[float], weights: Sequence[float]) -> float:
    """Return `robust_median` of positive values that count as much as their weights, above 0."""
    pairs = sorted(zip(values, weights, strict=True))
    upper_half = sum(weights) / 2
    for index, (value, weight) in enumerate(pairs):
        upper_half -= weight
        if abs(upper_half) <= ROUNDING:
            return robust_median([value, pairs[index + 1][0]])
        if upper_half < 0:
            return value
    raise AssertionError("no values")


def confidence_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return (low, high) of the median of positive values, n >= 1."""
    if len(values) == 1:
        return 0.0, math.inf
    if len(values) < MIN_RANKED:
        return _student_interval(values)
    ordered = sorted(values)
    rank = _interval_rank(len(ordered))
    return ordered[rank], ordered[-1 - rank]


def knot_of(units: float, values: Sequence[float], chunks: Sequence[int] = ()) -> Knot:
    """Return the Knot of repeats of one size, in seconds; `chunks` as in `run_median`."""
    return Knot(units, run_median(values, chunks), len(values), *confidence_interval(values))


def run_median(values: Sequence[float], chunks: Sequence[int] = ()) -> float:
    """Return the median of runs' times, weighted by their chunks; default: equal numbers."""
    if len(set(chunks)) < 2:
        return robust_median(values)
    return weighted_median(values, [run_weight(count) for count in chunks])


def _student_interval(values: Sequence[float]) -> tuple[float, float]:
    shortest, longest = min(values), max(values)
    if shortest == longest:
        return shortest, longest
    logs = [math.log(value) for value in values]
    mean = math.fsum(logs) / len(logs)
    variance = math.fsum((log - mean) ** 2 for log in logs) / (len(logs) - 1)
    half_width = STUDENT_T[len(logs)] * math.sqrt(variance / len(logs))
    # The log-normal's median is the exponential of the mean; clamped to what a float can hold.
    return math.exp(max(mean - half_width, -700.0)), math.exp(min(mean + half_width, 700.0))


@cache
def _interval_rank(count: int) -> int:
    """Return the largest r with P(Binomial(count, 1/2) <= r) <= (1 - CONFIDENCE) / 2.

    The median lies between the values of rank r and count - 1 - r, counted from 0.
    """
    tail, rank, ways = (1 - CONFIDENCE) / 2 * 2**count, 0, 1
    while ways <= tail:
        tail -= ways
        rank += 1
        ways = math.comb(count, rank)
    return rank - 1
