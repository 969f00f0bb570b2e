"""Equal cores learn together: one curve for all of them, and a factor for each.

What one core has shown at some size then holds for all, so that 64 cores know in one run what one
of them would know in 64. A core may still be slower than its equals (a busy neighbour, a slot that
is cooled badly): its factor is the median of what it took over what the others take at the same
sizes, and 1 as long as noise explains it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hetsched.models.curves.curve import SpeedFunction
from hetsched.models.curves.isotonic import rising
from hetsched.models.curves.piecewise_linear import PiecewiseLinear
from hetsched.models.evidence.confidence import middle
from hetsched.models.evidence.smoothing import noise, smoothed

NEAR = 1.25
"""Sizes that differ by less are compared, by their seconds a unit. Arbitrary."""
SAME = 0.15
"""Two and a half standard deviations of a median's logarithm, over the root of the number of
observations, on a quiet machine: a factor that is closer to 1 may be noise."""
COUNTED = 30
"""Observations of one size that count; more are no surer."""

Times = dict[float, list[float]]
"""By size, seconds."""


def pooled_curves(curves: Sequence[SpeedFunction]) -> list[SpeedFunction]:
    """The total curves of equal devices, fitted to the observations of all of them.

    Parameters
    ----------
    curves : sequence of SpeedFunction
        One per device. Those that keep no observations are returned unchanged.

    Returns
    -------
    list of SpeedFunction
        In the same order; see `together`.
    """
    pooled = list(curves)
    indices = [i for i, curve in enumerate(curves) if isinstance(curve, PiecewiseLinear)]
    learnt = tuple(curve for curve in curves if isinstance(curve, PiecewiseLinear))
    for index, curve in zip(indices, together(learnt), strict=True):
        pooled[index] = curve
    return pooled


def together(curves: tuple[PiecewiseLinear, ...]) -> tuple[PiecewiseLinear, ...]:
    """The curves of equal devices, each as all of them know it.

    Parameters
    ----------
    curves : tuple of PiecewiseLinear
        Each learnt by one device. They must not learn any more.

    Returns
    -------
    tuple of PiecewiseLinear
        In the same order: the common curve times the device's factor. A device that was never seen
        near a size of another one keeps its own curve.
    """
    order = sorted(range(len(curves)), key=lambda i: -sum(k[2] for k in curves[i].latest()))
    pooled: Times = {}
    factors: dict[int, float] = {}
    for index in order:
        times = curves[index].times()
        factor = _factor(times, pooled)
        if factor is None:
            continue
        factors[index] = factor
        for size, seconds in times.items():
            some = pooled.setdefault(size, [])
            some += [one / factor for one in seconds[: COUNTED - len(some)]]
    if len(factors) < 2:
        return curves
    sizes = sorted(pooled)
    seen = [pooled[size] for size in sizes]
    counts = [len(some) for some in seen]
    seconds = smoothed(sizes, [middle(some) for some in seen], counts, noise(seen))
    units = np.array(sizes)
    common = rising(np.array(seconds), np.array(counts, dtype=np.float64))
    return tuple(
        curve.through(units, common * factors[index]) if index in factors else curve
        for index, curve in enumerate(curves)
    )


def _factor(times: Times, pooled: Times) -> float | None:
    """How many times as long as the others; None: nothing can be compared."""
    if not pooled:
        return 1.0
    ratios: list[float] = []
    others = 0
    for size, seconds in times.items():
        near = [size] if size in pooled else _near(size, pooled)
        paces = [one / other for other in near for one in pooled[other]]
        if paces:
            others += len(paces)
            pace = middle(paces)
            ratios += [one / size / pace for one in seconds]
    if not ratios:
        return None
    factor = middle(ratios)
    noise_of_both = SAME * math.sqrt(1 / len(ratios) + 1 / others)
    return factor if abs(math.log(factor)) > noise_of_both else 1.0


def _near(size: float, pooled: Times) -> list[float]:
    return [other for other in pooled if size / NEAR <= other <= size * NEAR]
