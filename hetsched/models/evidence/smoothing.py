"""What neighbouring sizes say of each other's times, where shares are followed from run to run.

A share moves by a few units from run to run, so that each size is seen a few times only. The
logarithm of seconds a unit is taken for a random walk over the logarithm of size, seen through
noise (Wahba, J. R. Stat. Soc. B 40, 1978: the estimate is a linear smoothing spline; computed by
the smoother of Rauch, Tung & Striebel, AIAA J. 3, 1965). Without noise it passes through every
observation; with noise, a size that was seen once leans on neighbours that were seen often.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

ROUGH = 0.15
"""Standard deviation of the walk over one unit of log size: of sizes that differ by a tenth, 5 %;
of doubled ones, 12 %. Arbitrary; the less noise there is, the less it matters."""
WILD = 3.0
"""Standard errors above its neighbours from which on a size seen less than `SURE` times is
doubted, if there are so many observations in all: disturbances only ever add to a time."""
LEAST, MOST = 0.05, 0.1
"""Standard deviation of the logarithm of one time: the least that doubts reckon with, as repeats
may agree by luck; and the most, as what is beyond it are hiccups."""
SURE = 3
"""Observations of which one that is wild is outvoted: doubted no more."""
STEPS = 3
"""Times that doubts are raised anew."""
MEDIAN = math.pi / 2
"""Variance of a median over that of a mean, of normal noise."""
NORMAL = 1.4826
"""Standard deviation over median absolute deviation, of normal noise."""


def noise(windows: Sequence[Sequence[float]]) -> float:
    """Standard deviation of the logarithm of repeated times, robustly; 0 without repeats."""
    repeated = [[math.log(time) for time in times] for times in windows if len(times) > 1]
    if not repeated:
        return 0.0
    centred = []
    for logs in repeated:
        centre = median(logs)
        centred += [abs(one - centre) for one in logs]
    count = len(centred)
    found = NORMAL * median(centred) * math.sqrt(count / (count - len(repeated)))
    return min(found, MOST)


def smoothed(
    units: Sequence[float], seconds: Sequence[float], counts: Sequence[int], sigma: float
) -> list[float]:
    """Times of sizes, each corrected by its neighbours as far as its noise allows.

    Parameters
    ----------
    units, seconds, counts : sequences of n >= 1 numbers
        By units: sizes, median times and numbers of observations.
    sigma : float
        Standard deviation of the logarithm of one time.

    Returns
    -------
    list of n float, seconds
        Of sizes seen `SURE` times, within two standard errors of the median. O(n).
    """
    if len(units) == 1:
        return list(seconds)
    steps = [ROUGH**2 * math.log(right / left) for left, right in pairwise(units)]
    paces = [math.log(time / size) for size, time in zip(units, seconds, strict=True)]
    doubts = _doubts(paces, counts, steps, MEDIAN * max(sigma, LEAST) ** 2)
    errors = [
        MEDIAN * (sigma if doubt == 1 else max(sigma, LEAST)) ** 2 * doubt / count
        for doubt, count in zip(doubts, counts, strict=True)
    ]
    found = _walk(paces, errors, steps)
    return [
        time if error == 0 else size * math.exp(_kept(now, pace, error, count))
        for size, time, now, pace, error, count in zip(
            units, seconds, found, paces, errors, counts, strict=True
        )
    ]


def _kept(now: float, pace: float, error: float, count: int) -> float:
    """The estimate, no further from what was seen often than its evidence allows."""
    wide = 2 * math.sqrt(error) if count >= SURE else math.inf
    return min(max(now, pace - wide), pace + wide)


def _doubts(
    paces: Sequence[float], counts: Sequence[int], steps: Sequence[float], variance: float
) -> list[float]:
    """How many times the variance of each size is to be raised; 1 where nothing is wild."""
    doubts = [1.0] * len(paces)
    for _ in range(STEPS):
        found = _walk(
            paces, [variance * d / c for d, c in zip(doubts, counts, strict=True)], steps
        )
        doubts = [
            _doubt(pace - now, variance / count) if count < SURE <= sum(counts) else 1.0
            for now, pace, count in zip(found, paces, counts, strict=True)
        ]
        if max(doubts) == 1.0:
            break
    return doubts


def _doubt(slower: float, error: float) -> float:
    return max(1.0, (slower / WILD) ** 2 / error) ** 2 if slower > 0 else 1.0


def _walk(seen: Sequence[float], errors: Sequence[float], steps: Sequence[float]) -> list[float]:
    """The most likely walk with variances `steps` that was seen with variances `errors`."""
    means, variances = [seen[0]], [errors[0]]
    for value, error, step in zip(seen[1:], errors[1:], steps, strict=True):
        before = variances[-1] + step
        gain = before / (before + error)
        means.append(means[-1] + gain * (value - means[-1]))
        variances.append((1 - gain) * before)
    for i in range(len(steps) - 1, -1, -1):
        means[i] += variances[i] / (variances[i] + steps[i]) * (means[i + 1] - means[i])
    return means
