"""What the kernels of solvers share: finding bad elements, and dot products."""

from __future__ import annotations

from typing import Any

import numpy as np

MIN_SINGLE = 1e-30
"""A larger sum in float32 isn't changed by terms that underflow."""


def first_true(xp: Any, conditions: Any) -> int | None:
    """Return the index of the first true one; None: there is none."""
    found = xp.flatnonzero(conditions)
    return int(found[0]) if len(found) else None


def add_dots(xp: Any, partial: Any, granule: int, first: int, a: Any, b: Any) -> None:
    """Write a.b of each granule of rows to `partial`, on the host; the row `first` begins one.

    So rounding doesn't depend on the split: a device fills the sums of its own granules, adding
    the devices' arrays is exact, and every device adds up the same sums in the same order.
    `systems.sums` declares them.
    """
    start, whole = first // granule, len(a) // granule
    if whole:
        shape, rows = (whole, granule), slice(whole * granule)
        dots = _dots(xp, a[rows].reshape(shape), b[rows].reshape(shape))
        partial[start : start + whole] = dots
    if whole * granule < len(a):
        rest = slice(whole * granule, None)
        partial[start + whole] = _dots(xp, a[rest], b[rest])


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
