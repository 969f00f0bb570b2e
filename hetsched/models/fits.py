"""Fits of times by size: rising, falling where that is proven, straight, of the papers' shape."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hetsched.models.confidence import Knot
from hetsched.models.curves import EQUAL, Floats
from hetsched.models.windows import MAX_SIZES


def isotonic(values: Floats, weights: Floats) -> Floats:
    """Return the nondecreasing (n,) array nearest `values` in weighted least squares. O(n).

    Pools adjacent violators (Barlow et al. 1972); importing SciPy's takes most of a start.
    """
    blocks: list[tuple[float, float, int]] = []
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        mean, total, count = value, weight, 1
        while blocks and blocks[-1][0] >= mean:
            other_mean, other_total, other_count = blocks.pop()
            mean = (other_mean * other_total + mean * total) / (other_total + total)
            total, count = other_total + total, other_count + count
        blocks.append((mean, total, count))
    return np.repeat([block[0] for block in blocks], [block[2] for block in blocks])


def rising(values: Floats, weights: Floats | None = None) -> Floats:
    """Return `isotonic` made strictly increasing by at least `EQUAL`.

    Every ray from the origin crosses a piecewise-linear speed function exactly once if and only
    if the times of its knots strictly increase: this alone makes partitions unique.
    """
    return _separated(isotonic(values, np.ones(len(values)) if weights is None else weights))


def _separated(times: Floats) -> Floats:
    for j in range(1, len(times)):
        times[j] = max(times[j], times[j - 1] * (1 + EQUAL))
    return times


def pool_except_dips(knots: Sequence[Knot]) -> Floats:
    """Return times that rise with size except where the evidence contradicts it.

    Caches, alignment and library plans make some times really fall with size (Khaleghzadeh, Reddy
    & Lastovetsky, TPDS 2018). Where a pooled time lies outside the confidence interval of a knot,
    the fall is real: the series is cut at the steepest fall of that pool, and each part is pooled
    by itself.
    """
    seconds = np.array([knot.seconds for knot in knots])
    counts = np.array([float(knot.count) for knot in knots])
    low = np.array([knot.low for knot in knots])
    high = np.array([knot.high for knot in knots])
    fitted = seconds.copy()
    ranges = [(0, len(knots))]
    while ranges:
        first, end = ranges.pop()
        part = slice(first, end)
        pooled = rising(seconds[part], counts[part])
        moved = np.abs(pooled - seconds[part]) > 1e-6 * seconds[part]
        contradicted = moved & ((pooled < low[part]) | (pooled > high[part]))
        if contradicted.any():
            cut = first + _steepest_fall(seconds[part], pooled, int(np.argmax(contradicted)))
            ranges += [(first, cut), (cut, end)]
        else:
            fitted[part] = pooled
    return fitted


def _steepest_fall(seconds: Floats, pooled: Floats, index: int) -> int:
    """Return the knot in the pool of knot `index` with the largest fall from its predecessor."""
    pool = np.flatnonzero(np.abs(pooled / pooled[index] - 1) < 1e-6)
    first, last = int(pool[0]), int(pool[-1])
    falls = seconds[first + 1 : last + 1] / seconds[first:last]
    return first + 1 + int(np.argmin(falls))


def fitted_line(x: Floats, t: Floats, weights: Floats) -> tuple[float, float]:
    """Return the gap and slope of least relative error |line - t| / max(line, t).

    Each error is at most 1, so an outlier in either direction doesn't move the line, and small
    sizes, which determine the gap, count as much as large ones. Candidates are the lines through
    two points, through one point and the origin, and horizontal through one point: the corners of
    the linear program of least absolute errors. O(n^3) for n sizes, vectorised.
    """
    if len(x) > MAX_SIZES:  # evenly chosen: every pair is tried
        chosen = np.linspace(0, len(x) - 1, MAX_SIZES).round().astype(int)
        x, t, weights = x[chosen], t[chosen], weights[chosen]
    i, j = np.triu_indices(len(x), 1)
    slope = (t[j] - t[i]) / (x[j] - x[i])
    gap = t[i] - slope * x[i]
    allowed = (slope >= 0) & (gap >= 0)
    level = np.zeros_like(t)
    gaps = np.concatenate((gap[allowed], level, t))
    slopes = np.concatenate((slope[allowed], t / x, level))
    lines = gaps[:, None] + slopes[:, None] * x
    error = (np.abs(lines - t) / np.maximum(lines, t)) @ weights
    best = int(np.argmin(error))
    return float(gaps[best]), float(slopes[best])


def shape_fit(units: Floats, seconds: Floats) -> Floats:
    """Return times for which speeds have the shape of Clarke 5.1 and 5.2, as an operator.

    Speed rises and is concave up to a peak, then falls. (The paper prints "convex"; its formula,
    slopes that don't increase, means concave. It doesn't specify how to move a point.) Left of the
    leftmost highest speed the least concave majorant of the speeds; right of it their running
    minimum; then speeds at which a larger load would take less time are lowered. Units strictly
    increase, and so do the times returned: as observed where the shape allows it. O(n).
    """
    speeds = units / seconds
    peak = int(np.argmax(speeds))
    rise = _majorant(units[: peak + 1], speeds[: peak + 1])
    shaped = np.concatenate((rise[:-1], np.minimum.accumulate(speeds[peak:])))
    return _separated(np.where(shaped == speeds, seconds, units / shaped))


def _majorant(x: Floats, y: Floats) -> Floats:
    """Return the least concave function above the points, at `x`: their upper hull."""
    hull: list[int] = []
    for j in range(len(x)):
        while len(hull) > 1:
            a, b = hull[-2:]
            if (y[b] - y[a]) * (x[j] - x[a]) >= (y[j] - y[a]) * (x[b] - x[a]):
                break
            hull.pop()  # it lies below the line from a to j
        hull.append(j)
    # Knots of the hull keep their exact values.
    values: Floats = np.interp(x, x[hull], y[hull])
    values[hull] = y[hull]
    return values
