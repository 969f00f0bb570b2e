"""Pooled models of equal cores: one curve for all of them, and a factor for each.

An observation of one core then holds for all, so 64 cores learn in one run what a single core
would learn in 64. A core may still be slower than its equals (a busy neighbour, bad cooling): its
factor is the median ratio of its times to the others' at the same sizes. It is 1 where noise
explains the difference, and until three observations show one. Once the last three contradict it,
only these count: a core that was slow for a while is equal again, even by its probes alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hetsched.models.confidence import robust_median
from hetsched.models.fits import rising
from hetsched.models.functions import PiecewiseLinear, SpeedFunction
from hetsched.models.samples import MAX_SIZE_RATIO
from hetsched.models.windows import (
    CERTAIN_ERRORS,
    MIN_CHANGE,
    MIN_NOISE,
    MIN_TRUSTED_COUNT,
    noise_deviation,
    smoothed,
)

Observed = tuple[float, float]
"""Units, seconds."""
Times = dict[float, list[float]]
"""By size, seconds."""


def pooled_curves(curves: Sequence[SpeedFunction]) -> list[SpeedFunction]:
    """Return the total curves of equal devices: the common curve times the device's factor.

    Unchanged are those without observations, or without any near another device's sizes.
    """
    pooled = list(curves)
    indices = [i for i, curve in enumerate(curves) if isinstance(curve, PiecewiseLinear)]
    learnt = [curve for curve in curves if isinstance(curve, PiecewiseLinear)]
    cores = [[(s.units, s.seconds) for s in curve.evidence()] for curve in learnt]
    order = sorted(range(len(cores)), key=lambda index: _certainty(cores[index]))
    times, factors = _pool(cores, order)
    if factors and robust_median(list(factors.values())) < 1 / MIN_CHANGE:
        # The core with most observations is the slow one: compare it with the others instead.
        times, factors = _pool(cores, [*order[1:], order[0]])
    if len(factors) < 2:
        return pooled
    sizes = sorted(times)
    windows = [times[size] for size in sizes]
    counts = [len(window) for window in windows]
    medians = [robust_median(window) for window in windows]
    seconds = smoothed(sizes, medians, counts, noise_deviation(windows))
    common = rising(np.array(seconds), np.array(counts, dtype=np.float64))
    for number, factor in factors.items():
        curve = learnt[number]
        pooled[indices[number]] = curve.through(np.array(sizes), common * factor)
    return pooled


def _certainty(observations: Sequence[Observed]) -> tuple[bool, float]:
    """Return a key: most observations first, of few ones the shortest times."""
    if len(observations) >= MIN_TRUSTED_COUNT:
        return False, -len(observations)
    return True, min((seconds / size for size, seconds in observations), default=0.0)


def _pool(
    cores: Sequence[Sequence[Observed]], order: Sequence[int]
) -> tuple[Times, dict[int, float]]:
    """Return the times of all cores divided by their factors; and the factors, by index."""
    pooled: Times = {}
    factors: dict[int, float] = {}
    for index in order:
        observations = cores[index]
        factor = _factor(observations, pooled)
        if len(observations) < MIN_TRUSTED_COUNT:
            factors[index] = 1.0
            if factor is not None and factor > 1.0:
                continue  # bad luck, perhaps: it says nothing about the others
            factor = 1.0
        if factor is None:
            continue
        if _is_recovered(observations, factor, pooled):
            observations = observations[-MIN_TRUSTED_COUNT:]
            factor = _factor(observations, pooled) or 1.0
        factors[index] = factor
        for size, seconds in observations:
            times = pooled.setdefault(size, [])
            if len(times) < 30:  # more add no certainty
                times.append(seconds / factor)
    return pooled, factors


def _factor(observations: Sequence[Observed], pooled: Times) -> float | None:
    """Return the median ratio to the others' times; None without comparable sizes."""
    if not pooled:
        return 1.0
    times: Times = {}
    for size, seconds in observations:
        times.setdefault(size, []).append(seconds)
    ratios: list[float] = []
    compared = 0
    for size, observed in times.items():
        paces = _paces([size] if size in pooled else _near(size, pooled), pooled)
        if paces:
            compared += len(paces)
            pace = robust_median(paces)
            ratios += [time / size / pace for time in observed]
    if not ratios:
        return None
    factor = robust_median(ratios)
    noise = 2 * MIN_NOISE * CERTAIN_ERRORS * math.sqrt(1 / len(ratios) + 1 / compared)
    return factor if abs(math.log(factor)) > noise else 1.0


def _is_recovered(observations: Sequence[Observed], factor: float, pooled: Times) -> bool:
    """Return whether the last observations are all much shorter than a slow core's.

    Probes of a few units are compared with the nearest size, at the same seconds per unit: fixed
    costs make the core look slower, not faster.
    """
    if factor <= 1.0 or len(observations) <= MIN_TRUSTED_COUNT:
        return False
    smallest = min(pooled)
    for size, seconds in observations[-MIN_TRUSTED_COUNT:]:
        paces = _paces([smallest] if size < smallest else _near(size, pooled), pooled)
        if not paces or seconds / size > factor / MIN_CHANGE * robust_median(paces):
            return False
    return True


def _near(size: float, pooled: Times) -> list[float]:
    return [other for other in pooled if size / MAX_SIZE_RATIO <= other <= size * MAX_SIZE_RATIO]


def _paces(sizes: Sequence[float], pooled: Times) -> list[float]:
    return [time / size for size in sizes for time in pooled[size]]
