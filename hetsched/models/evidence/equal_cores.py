"""Pooled models of equal cores: one curve for all of them, and a factor for each.

An observation of one core then holds for all, so 64 cores learn in one run what a single core
would learn in 64. A core may still be slower than its equals (a busy neighbour, bad cooling): its
factor is the median ratio of its times to the others' at the same sizes, or 1 where noise explains
the difference.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hetsched.models.curves.curve import SpeedFunction
from hetsched.models.curves.isotonic import rising
from hetsched.models.curves.piecewise_linear import PiecewiseLinear
from hetsched.models.evidence.confidence import robust_median
from hetsched.models.evidence.smoothing import noise_deviation, smoothed

MAX_SIZE_RATIO = 1.25
"""Sizes that differ by less are compared, by their seconds per unit. Arbitrary."""
FACTOR_NOISE = 0.15
"""Two and a half standard deviations of a median's logarithm, over the root of the number of
observations, on a quiet machine: a factor that is closer to 1 may be noise."""
MAX_POOLED = 30
"""Observations pooled per size; more add no certainty."""

Times = dict[float, list[float]]
"""By size, seconds."""


def pooled_curves(curves: Sequence[SpeedFunction]) -> list[SpeedFunction]:
    """Return the total curves of equal devices, fitted to the observations of all of them.

    Parameters
    ----------
    curves : sequence of SpeedFunction
        One per device. Curves without stored observations are returned unchanged.

    Returns
    -------
    list of SpeedFunction
        In the same order; see `pool_equal_cores`.
    """
    pooled = list(curves)
    indices = [i for i, curve in enumerate(curves) if isinstance(curve, PiecewiseLinear)]
    learnt = tuple(curve for curve in curves if isinstance(curve, PiecewiseLinear))
    for index, curve in zip(indices, pool_equal_cores(learnt), strict=True):
        pooled[index] = curve
    return pooled


def pool_equal_cores(curves: tuple[PiecewiseLinear, ...]) -> tuple[PiecewiseLinear, ...]:
    """Pool the evidence of equal devices.

    Parameters
    ----------
    curves : tuple of PiecewiseLinear
        One per device. They must not learn afterwards.

    Returns
    -------
    tuple of PiecewiseLinear
        In the same order: the common curve times the device's factor. A device without
        measurements near another device's sizes keeps its curve.
    """
    pooled, factors = _pool([curve.times() for curve in curves], _by_evidence(curves))
    if len(factors) < 2:
        return curves
    sizes = sorted(pooled)
    windows = [pooled[size] for size in sizes]
    counts = [len(times) for times in windows]
    medians = [robust_median(times) for times in windows]
    seconds = smoothed(sizes, medians, counts, noise_deviation(windows))
    units = np.array(sizes)
    common = rising(np.array(seconds), np.array(counts, dtype=np.float64))
    return tuple(
        curve.through(units, common * factors[index]) if index in factors else curve
        for index, curve in enumerate(curves)
    )


def _by_evidence(curves: tuple[PiecewiseLinear, ...]) -> list[int]:
    """Return the indices of the curves, most observations first."""
    counts = [sum(count for _, _, count in curve.latest()) for curve in curves]
    return sorted(range(len(curves)), key=lambda index: -counts[index])


def _pool(all_times: list[Times], order: list[int]) -> tuple[Times, dict[int, float]]:
    """Return the times of all cores divided by their factors; and the factors, by index."""
    pooled: Times = {}
    factors: dict[int, float] = {}
    for index in order:
        times = all_times[index]
        factor = _factor(times, pooled)
        if factor is None:
            continue
        factors[index] = factor
        for size, seconds in times.items():
            window = pooled.setdefault(size, [])
            window += [time / factor for time in seconds[: MAX_POOLED - len(window)]]
    return pooled, factors


def _factor(times: Times, pooled: Times) -> float | None:
    """Return the median ratio to the others' times; None without comparable sizes."""
    if not pooled:
        return 1.0
    ratios: list[float] = []
    compared = 0
    for size, seconds in times.items():
        nearby = [size] if size in pooled else _near(size, pooled)
        paces = [time / other for other in nearby for time in pooled[other]]
        if paces:
            compared += len(paces)
            pace = robust_median(paces)
            ratios += [time / size / pace for time in seconds]
    if not ratios:
        return None
    factor = robust_median(ratios)
    noise = FACTOR_NOISE * math.sqrt(1 / len(ratios) + 1 / compared)
    return factor if abs(math.log(factor)) > noise else 1.0


def _near(size: float, pooled: Times) -> list[float]:
    return [other for other in pooled if size / MAX_SIZE_RATIO <= other <= size * MAX_SIZE_RATIO]
