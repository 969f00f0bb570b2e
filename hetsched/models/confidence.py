"""The certainty of a measured time: the median of its repeats and its confidence interval.

From six repeats on, the interval is that of the median by order statistics, which assumes
nothing about the noise (Hahn & Meeker, Statistical Intervals, 1991, section 5.2; Hoefler & Belli,
SC 2015, rule 8). With fewer it is Student's for the mean of the logarithms of the times, because
contention multiplies times (Khaleghzadeh, Reddy & Lastovetsky, TPDS 2018: repeat until the
half-width is 2.5 %).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

STUDENT_T = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}
"""Student's t of a two-sided interval of 95 %, by the number of repeats. From six on, order
statistics reach that: 1 - 2 / 2**6 = 0.97."""
MAX_MIDDLE_RATIO = 1.2
"""The middle two of an even number of times are averaged if they differ by less."""


@dataclass(frozen=True)
class Knot:
    """The evidence for one size.

    Attributes
    ----------
    units : float, units
    seconds : float, seconds
        Median of the repeats that count.
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


def knot_of(units: float, values: Sequence[float]) -> Knot:
    return Knot(units, robust_median(values), len(values), *confidence_interval(values))


def robust_median(values: Sequence[float]) -> float:
    """Return the median of positive values; of two middle ones that disagree, the lower.

    Contention only lengthens times.
    """
    ordered = sorted(values)
    half = len(ordered) // 2
    upper = ordered[half]
    if len(ordered) % 2:
        return upper
    lower = ordered[half - 1]
    return lower + (upper - lower) / 2 if upper < MAX_MIDDLE_RATIO * lower else lower


def confidence_interval(values: Sequence[float]) -> tuple[float, float]:
    if len(values) == 1:
        return 0.0, math.inf
    if len(values) in STUDENT_T:
        return _student_interval(values)
    ordered = sorted(values)
    rank = _interval_rank(len(ordered))
    return ordered[rank], ordered[-1 - rank]


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
    """Return the largest r with P(Binomial(count, 1/2) <= r) <= 0.025.

    The median lies between the values of rank r and count - 1 - r, counted from 0.
    """
    tail, rank, ways = 0.025 * 2**count, 0, 1
    while ways <= tail:
        tail -= ways
        rank += 1
        ways = math.comb(count, rank)
    return rank - 1
