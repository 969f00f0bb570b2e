"""Lower approximations of curves: the largest convex curve below points, and lines below it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hetsched.plans.phase_costs import Floats

MAX_PASSES = 32
"""Passes over all points in search of a hull; beyond, one point after the other. Arbitrary."""


class Line(NamedTuple):
    """`gap` + `slope` x for x units, both non-negative; seconds and seconds/unit."""

    gap: float
    slope: float


@dataclass(frozen=True)
class ConvexCurve:
    """A convex curve, linear between corners.

    Attributes
    ----------
    sizes : (n,) float64, units
        Of the corners, from 1 on.
    seconds : (n,) float64
    """

    sizes: Floats
    seconds: Floats

    def at(self, sizes: Floats) -> Floats:
        """Return seconds for (k,) sizes from 1 to that of the last corner."""
        return np.interp(sizes, self.sizes, self.seconds)

    @property
    def largest(self) -> float:
        """The last corner's size, units."""
        return float(self.sizes[-1])


def convex_minorant(sizes: Floats, seconds: Floats) -> ConvexCurve:
    """Return the largest convex curve that is nowhere above the points. O(n) mostly.

    Parameters
    ----------
    sizes : (n,) float64, units
        Rising.
    seconds : (n,) float64
    """
    corners = _hull_corners(sizes, seconds)
    return ConvexCurve(sizes[corners], seconds[corners])


def _hull_corners(sizes: Floats, seconds: Floats) -> np.ndarray:
    """Return the indices of the corners of the lower convex hull, the ends included.

    A point that isn't below the line between its present neighbours is no corner, so all such
    points are dropped at once. That is repeated, and rarely takes more than a few passes.
    """
    corners = np.arange(len(sizes))
    for _ in range(MAX_PASSES):
        slopes = np.diff(seconds[corners]) / np.diff(sizes[corners])
        is_corner = np.concatenate(([True], slopes[1:] > slopes[:-1], [True]))
        if len(corners) < 3 or is_corner.all():
            return corners
        corners = corners[is_corner]
    return corners[_monotone_chain(sizes[corners].tolist(), seconds[corners].tolist())]


def _monotone_chain(sizes: list[float], heights: list[float]) -> list[int]:
    """Return the indices of the corners of the lower convex hull (Andrew's monotone chain)."""
    chain: list[int] = []
    for new, (size, height) in enumerate(zip(sizes, heights, strict=True)):
        while len(chain) > 1:
            a, b = chain[-2], chain[-1]
            rise, run = heights[b] - heights[a], sizes[b] - sizes[a]
            if rise * (size - sizes[a]) < (height - heights[a]) * run:
                break
            chain.pop()
        chain.append(new)
    return chain


def rooted_minorant(convex: ConvexCurve) -> ConvexCurve:
    """Return the largest convex curve below `convex` whose value per unit never grows."""
    paces = convex.seconds / convex.sizes
    best = int(np.argmin(paces))
    sizes, seconds = convex.sizes[: best + 1], convex.seconds[: best + 1]
    if best + 1 == len(paces):
        return convex
    return ConvexCurve(
        np.append(sizes, convex.largest), np.append(seconds, paces[best] * convex.largest)
    )


def tangent_below(convex: ConvexCurve, size: int) -> Line:
    """Return a line nowhere above `convex` that touches it at `size`, or as near as possible.

    Where the tangent has a negative gap, the line goes through the origin; where it has a negative
    slope, the line is level.
    """
    sizes, seconds = convex.sizes, convex.seconds
    if len(sizes) == 1:
        return Line(float(seconds[0]), 0.0)
    right = min(max(int(np.searchsorted(sizes, size, "right")), 1), len(sizes) - 1)
    slope = float((seconds[right] - seconds[right - 1]) / (sizes[right] - sizes[right - 1]))
    gap = float(seconds[right] - slope * sizes[right])
    if slope < 0:
        return Line(max(float(seconds.min()), 0.0), 0.0)
    if gap < 0:
        return Line(0.0, float((seconds / sizes).min()))
    # Rounding must not lift the far end of the line above the curve.
    excess = float((gap + slope * sizes - seconds).max())
    return Line(max(gap - max(excess, 0.0), 0.0), slope)
