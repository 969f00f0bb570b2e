"""Curves below curves: the largest convex one under a table, and straight ones under that."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hetsched.plans.phase_costs import Floats

ROUNDING = 1e-9
"""Relative bend of a table that counts as straight."""


class Line(NamedTuple):
    """`gap` + `slope` x for x units, both not negative; seconds and seconds/unit."""

    gap: float
    slope: float


def hull(table: Floats) -> Floats:
    """The largest convex curve that is nowhere above `table` from 1 unit on. O(n).

    Parameters
    ----------
    table : (n + 1,) float64, seconds
        Element `size`; element 0 is not looked at.

    Returns
    -------
    (n + 1,) float64, seconds
        Element 0 continues the first piece, so that equal chunks can be interpolated.
    """
    values = table[1:]
    bends = np.diff(values, 2)
    if len(values) < 3 or bends.min() >= -ROUNDING * float(np.abs(values).max()):
        # Within rounding of a convex one; lowered by it, so that it stays below.
        below = values if len(values) < 3 or bends.min() >= 0 else values * (1 - ROUNDING)
    else:
        corners = _corners(values)
        below = np.interp(np.arange(len(values)), corners, values[corners])
    first = 2 * below[0] - below[1] if len(below) > 1 else below[0]
    return np.concatenate(([first], below))


def _corners(values: Floats) -> list[int]:
    """Indices of the lower convex hull (Andrew's monotone chain)."""
    chain: list[int] = []
    heights = values.tolist()
    for new, height in enumerate(heights):
        while len(chain) > 1:
            a, b = chain[-2], chain[-1]
            if (heights[b] - heights[a]) * (new - a) < (height - heights[a]) * (b - a):
                break
            chain.pop()
        chain.append(new)
    return chain


def lines(convex: Floats, size: int) -> Line:
    """A line nowhere above `convex` that touches it near `size`, or as near as it may.

    Where the tangent would have a negative gap or slope, the line goes through the origin, or is
    level.
    """
    if len(convex) == 2:
        return Line(float(convex[1]), 0.0)
    right = min(size + 1, len(convex) - 1)
    slope = float(convex[right] - convex[right - 1])
    start = float(convex[right] - slope * right)
    values = convex[1:]
    if slope < 0:
        return Line(max(float(values.min()), 0.0), 0.0)
    if start < 0:
        return Line(0.0, float((values / np.arange(1, len(convex))).min()))
    # Rounding must not lift the far end of the line above the curve.
    over = float((start + slope * np.arange(1, len(convex)) - values).max())
    return Line(max(start - max(over, 0.0), 0.0), slope)
