"""Lower approximations of curves: the largest convex curve below a table, and lines below it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hetsched.plans.phase_costs import Floats

ROUNDING = 1e-9
"""Relative curvature below which a table counts as straight."""


class Line(NamedTuple):
    """`gap` + `slope` x for x units, both non-negative; seconds and seconds/unit."""

    gap: float
    slope: float


def convex_minorant(table: Floats) -> Floats:
    """Return the largest convex curve that is nowhere above `table` from 1 unit on. O(n).

    Parameters
    ----------
    table : (n + 1,) float64, seconds
        Element `size`; element 0 is ignored.

    Returns
    -------
    (n + 1,) float64, seconds
        Element 0 continues the first piece, so that equal chunks can be interpolated.
    """
    values = table[1:]
    bends = np.diff(values, 2)
    if len(values) < 3 or bends.min() >= -ROUNDING * float(np.abs(values).max()):
        # Convex up to rounding, and lowered by as much to stay below the table.
        minorant = values if len(values) < 3 or bends.min() >= 0 else values * (1 - ROUNDING)
    else:
        corners = _hull_corners(values)
        minorant = np.interp(np.arange(len(values)), corners, values[corners])
    return _extended_to_zero(minorant)


def rooted_minorant(convex: Floats) -> Floats:
    """Return the largest convex curve below `convex` whose value per unit never grows."""
    sizes = np.arange(1, len(convex))
    minorant: Floats = np.minimum.accumulate(convex[1:] / sizes) * sizes
    extended = _extended_to_zero(minorant)
    extended[0] = max(extended[0], 0.0)
    return extended


def _extended_to_zero(values: Floats) -> Floats:
    first = 2 * values[0] - values[1] if len(values) > 1 else values[0]
    return np.concatenate(([first], values))


def _hull_corners(values: Floats) -> list[int]:
    """Return the indices of the lower convex hull (Andrew's monotone chain)."""
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


def tangent_below(convex: Floats, size: int) -> Line:
    """Return a line nowhere above `convex` that touches it at `size`, or as near as possible.

    Where the tangent has a negative gap, the line goes through the origin; where it has a negative
    slope, the line is level.
    """
    if len(convex) == 2:
        return Line(float(convex[1]), 0.0)
    end = min(size + 1, len(convex) - 1)
    slope = float(convex[end] - convex[end - 1])
    gap = float(convex[end] - slope * end)
    values = convex[1:]
    if slope < 0:
        return Line(max(float(values.min()), 0.0), 0.0)
    if gap < 0:
        return Line(0.0, float((values / np.arange(1, len(convex))).min()))
    # Rounding must not lift the far end of the line above the curve.
    excess = float((gap + slope * np.arange(1, len(convex)) - values).max())
    return Line(max(gap - max(excess, 0.0), 0.0), slope)
