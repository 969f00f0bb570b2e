"""Dot products whose rounding doesn't depend on the split: one sum per granule of rows.

A device fills the sums of its own granules and zeros elsewhere, so adding the devices' arrays is
exact, and every device adds up the same sums in the same order. `systems.sums` declares them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

MIN_SINGLE = 1e-30
"""A larger sum in float32 isn't changed by terms that underflow."""


class GranuleSums:
    """The sums of a device's rows.

    Parameters
    ----------
    xp : module
        NumPy or CuPy: that of the vectors.
    partial : (granules,) float64
        The partial result to fill, on the host; its elements of other rows become 0.
    granule : int, rows
    """

    def __init__(self, xp: Any, partial: Any, granule: int) -> None:
        self._xp = xp
        self._partial = partial
        self._granule = granule
        partial[...] = 0

    def add_dot(self, first: int, a: Any, b: Any) -> None:
        """Write the sums of a.b, vectors whose first row, `first`, begins a granule."""
        size, xp = self._granule, self._xp
        start = first // size
        whole = len(a) // size
        if whole:
            shape = (whole, size)
            rows = slice(0, whole * size)
            dots = _dots(xp, a[rows].reshape(shape), b[rows].reshape(shape))
            self._partial[start : start + whole] = dots
        if whole * size < len(a):
            rest = slice(whole * size, None)
            self._partial[start + whole] = _dots(xp, a[rest], b[rest])


def _dots(xp: Any, a: Any, b: Any) -> Any:
    """Return a.b along the last axis, in double precision where float32 can't represent it."""
    if xp is not np:
        return xp.asnumpy(xp.multiply(a, b, dtype="float64").sum(axis=-1))
    dots = np.asarray(np.vecdot(a, b), np.float64)
    if a.dtype == np.float32:
        size = np.abs(dots)
        outside = ~((size > MIN_SINGLE) & (size < np.inf))
        if outside.any():
            dots[outside] = np.multiply(a[outside], b[outside], dtype="float64").sum(axis=-1)
    return dots
