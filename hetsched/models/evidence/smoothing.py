"""Smoothing over neighbouring sizes.

A share moves by a few units from run to run, so each size is measured only a few times. The
logarithm of seconds per unit is modelled as a random walk over the logarithm of size, observed
with noise (Wahba, J. R. Stat. Soc. B 40, 1978: the estimate is a linear smoothing spline, computed
by the smoother of Rauch, Tung & Striebel, AIAA J. 3, 1965). Without noise it passes through every
observation; with noise, a size measured once follows neighbours that were measured often.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

WALK_DEVIATION = 0.15
"""Standard deviation of the walk per unit of log size: 5 % between sizes that differ by a tenth,
12 % between sizes that differ by a factor of two. Arbitrary; it matters less with less noise."""
OUTLIER_ERRORS = 3.0
"""Standard errors above its neighbours at which a size measured less than `MIN_TRUSTED_COUNT`
times is an outlier, given that many observations in all: contention only lengthens times."""
MIN_NOISE = 0.05
"""Minimum standard deviation of the logarithm of a time in outlier tests: repeats may agree by
chance."""
MAX_NOISE = 0.1
"""Maximum of that deviation; larger ones are due to outliers."""
MIN_TRUSTED_COUNT = 3
"""Observations whose median a single outlier can't move far."""
MAX_OUTLIER_ROUNDS = 3
"""Rounds of outlier detection."""
MEDIAN_VARIANCE = math.pi / 2
"""Variance of a median over that of a mean, for normal noise."""
DEVIATION_PER_MAD = 1.4826
"""Standard deviation over median absolute deviation, for normal noise."""


def noise_deviation(windows: Sequence[Sequence[float]]) -> float:
    """Estimate, robustly, the standard deviation of the logarithm of repeated times.

    0 without repeats.
    """
    repeated = [[math.log(time) for time in times] for times in windows if len(times) > 1]
    if not repeated:
        return 0.0
    deviations = []
    for logs in repeated:
        centre = median(logs)
        deviations += [abs(log - centre) for log in logs]
    count = len(deviations)
    estimate = DEVIATION_PER_MAD * median(deviations) * math.sqrt(count / (count - len(repeated)))
    return min(estimate, MAX_NOISE)


def smoothed(
    units: Sequence[float], seconds: Sequence[float], counts: Sequence[int], sigma: float
) -> list[float]:
    """Correct the time of each size by its neighbours, within its noise.

    Parameters
    ----------
    units, seconds, counts : sequences of n >= 1 numbers
        By units: sizes, median times and numbers of observations.
    sigma : float
        Standard deviation of the logarithm of one time.

    Returns
    -------
    list of n float, seconds
        Within two standard errors of the median for sizes measured `MIN_TRUSTED_COUNT` times.
        O(n).
    """
    if len(units) == 1:
        return list(seconds)
    steps = [WALK_DEVIATION**2 * math.log(larger / smaller) for smaller, larger in pairwise(units)]
    paces = [math.log(time / size) for size, time in zip(units, seconds, strict=True)]
    outlier_noise = max(sigma, MIN_NOISE)
    inflations = _outlier_inflations(paces, counts, steps, MEDIAN_VARIANCE * outlier_noise**2)
    variances = [
        MEDIAN_VARIANCE * (sigma if inflation == 1 else outlier_noise) ** 2 * inflation / count
        for inflation, count in zip(inflations, counts, strict=True)
    ]
    estimates = _walk(paces, variances, steps)
    return [
        time if variance == 0 else size * math.exp(_clamped(estimate, pace, variance, count))
        for size, time, estimate, pace, variance, count in zip(
            units, seconds, estimates, paces, variances, counts, strict=True
        )
    ]


def _clamped(estimate: float, pace: float, variance: float, count: int) -> float:
    """Return the estimate, clamped to the observed pace if that was measured often."""
    margin = 2 * math.sqrt(variance) if count >= MIN_TRUSTED_COUNT else math.inf
    return min(max(estimate, pace - margin), pace + margin)


def _outlier_inflations(
    paces: Sequence[float], counts: Sequence[int], steps: Sequence[float], variance: float
) -> list[float]:
    """Return the factor for the variance of each size; 1 where it isn't an outlier."""
    inflations = [1.0] * len(paces)
    for _ in range(MAX_OUTLIER_ROUNDS):
        variances = [
            variance * inflation / count
            for inflation, count in zip(inflations, counts, strict=True)
        ]
        estimates = _walk(paces, variances, steps)
        inflations = [
            _inflation(pace - estimate, variance / count)
            if count < MIN_TRUSTED_COUNT <= sum(counts)
            else 1.0
            for estimate, pace, count in zip(estimates, paces, counts, strict=True)
        ]
        if max(inflations) == 1.0:
            break
    return inflations


def _inflation(excess: float, variance: float) -> float:
    return max(1.0, (excess / OUTLIER_ERRORS) ** 2 / variance) ** 2 if excess > 0 else 1.0


def _walk(
    observed: Sequence[float], variances: Sequence[float], steps: Sequence[float]
) -> list[float]:
    """Return the most likely walk with variances `steps`, observed with these `variances`."""
    means, errors = [observed[0]], [variances[0]]
    for value, variance, step in zip(observed[1:], variances[1:], steps, strict=True):
        predicted = errors[-1] + step
        gain = predicted / (predicted + variance)
        means.append(means[-1] + gain * (value - means[-1]))
        errors.append((1 - gain) * predicted)
    for i in range(len(steps) - 1, -1, -1):
        means[i] += errors[i] / (errors[i] + steps[i]) * (means[i + 1] - means[i])
    return means
