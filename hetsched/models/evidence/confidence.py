"""How sure a measured time is: the median of repeats, and its confidence interval.

From `RANKED` repeats on, the interval is that of the median by order statistics, which assumes
nothing of the noise (Hahn & Meeker, Statistical Intervals, 1991, section 5.2; Hoefler & Belli,
Scientific Benchmarking of Parallel Computing Systems, SC 2015, rule 8). Fewer can't give it: they
get Student's interval of the mean of the logarithms of the times, the protocol of Khaleghzadeh,
Reddy & Lastovetsky (HPOPTA, TPDS 2018: repeat until the half-width is 2.5 %), on a log scale
because disturbances multiply times. A wild repeat makes such an interval wide, never wrong.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

CONFIDENCE = 0.95
"""Of all intervals, so many hold what they are of."""
RANKED = 6
"""Repeats from which on order statistics reach `CONFIDENCE`: 1 - 2 / 2**6 = 0.97."""
STUDENT = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}
"""Student's t for `CONFIDENCE`, two-sided, by the number of repeats."""
NARROW = 0.025
"""Half-width, over the median, at which a time is well known (HPOPTA's protocol)."""
AGREE = 1.2
"""The middle two of an even number of times are averaged if they differ by less."""


@dataclass(frozen=True)
class Knot:
    """What is known of one size.

    Attributes
    ----------
    units : float, units
    seconds : float, seconds
        Median of the repeats that count.
    count : int
        How many those are.
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
    def narrow(self) -> bool:
        """Whether it needn't be measured again."""
        return self.half_width <= NARROW


def middle(values: Sequence[float]) -> float:
    """The median of positive values; of two middle ones that disagree, the lower.

    Disturbances only ever add to a time: of two that disagree the shorter is the likelier.
    """
    ordered = sorted(values)
    half = len(ordered) // 2
    high = ordered[half]
    if len(ordered) % 2:
        return high
    low = ordered[half - 1]
    return low + (high - low) / 2 if high < AGREE * low else low


def interval(values: Sequence[float]) -> tuple[float, float]:
    """(low, high): the confidence interval of the median of positive values, n >= 1."""
    if len(values) == 1:
        return 0.0, math.inf
    if len(values) < RANKED:
        return _student(values)
    ordered = sorted(values)
    rank = _rank(len(ordered))
    return ordered[rank], ordered[-1 - rank]


def knot(units: float, values: Sequence[float]) -> Knot:
    """The Knot of repeats, seconds each, of one size."""
    return Knot(units, middle(values), len(values), *interval(values))


def _student(values: Sequence[float]) -> tuple[float, float]:
    least, most = min(values), max(values)
    if least == most:
        return least, most
    logs = [math.log(value) for value in values]
    mean = math.fsum(logs) / len(logs)
    variance = math.fsum((one - mean) ** 2 for one in logs) / (len(logs) - 1)
    wide = STUDENT[len(logs)] * math.sqrt(variance / len(logs))
    # The log-normal's median is the exponential of the mean; far beyond a float is far enough.
    return math.exp(max(mean - wide, -700.0)), math.exp(min(mean + wide, 700.0))


@cache
def _rank(count: int) -> int:
    """The largest r with P(Binomial(count, 1/2) <= r) <= (1 - CONFIDENCE) / 2.

    The median lies between the values of rank r and count - 1 - r, counted from 0.
    """
    left, rank, ways = (1 - CONFIDENCE) / 2 * 2**count, 0, 1
    while ways <= left:
        left -= ways
        rank += 1
        ways = math.comb(count, rank)
    return rank - 1
