"""The shape that the paper requires of a speed function (Clarke 5.1, 5.2), as an operator.

Speed rises and is concave up to a peak, then falls. (The paper prints "convex"; its formula,
slopes that don't increase, means concave.) It doesn't specify how to move a point that breaks the
shape.
"""

from __future__ import annotations

import numpy as np

from hetsched.models.curves.isotonic import MIN_RELATIVE_RISE
from hetsched.models.curves.segments import Floats


def shape_fit(units: Floats, seconds: Floats) -> Floats:
    """Return times for which the knots of the speed function have the paper's shape.

    Left of the leftmost highest speed the least concave majorant of the speeds; right of it their
    running minimum; then speeds at which a larger load would take less time are lowered.

    Parameters
    ----------
    units, seconds : (n,) float64, n >= 1
        Positive; units strictly increasing.

    Returns
    -------
    (n,) float64, seconds
        Strictly increasing; as observed where the shape allows it. O(n).
    """
    speeds = units / seconds
    peak = int(np.argmax(speeds))
    rise = _majorant(units[: peak + 1], speeds[: peak + 1])
    shaped = np.concatenate((rise[:-1], np.minimum.accumulate(speeds[peak:])))
    fitted: Floats = np.where(shaped == speeds, seconds, units / shaped)
    for j in range(1, len(fitted)):
        fitted[j] = max(fitted[j], fitted[j - 1] * (1 + MIN_RELATIVE_RISE))
    return fitted


def _majorant(x: Floats, y: Floats) -> Floats:
    """Return the least concave function above the points, at `x`: their upper hull."""
    hull: list[int] = []
    for j in range(len(x)):
        while len(hull) > 1 and _lies_below(x, y, hull[-2], hull[-1], j):
            hull.pop()
        hull.append(j)
    # Knots of the hull keep their exact values.
    values: Floats = np.interp(x, x[hull], y[hull])
    values[hull] = y[hull]
    return values


def _lies_below(x: Floats, y: Floats, i: int, j: int, k: int) -> bool:
    """Return whether point j lies below the line from i to k."""
    return bool((y[j] - y[i]) * (x[k] - x[i]) < (y[k] - y[i]) * (x[j] - x[i]))
