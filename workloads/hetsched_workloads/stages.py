"""What the kernels of solvers share: one argument, finding bad elements, and dot products."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from hetsched.workload import Arrays, Rows, StageKernel, Values

MIN_SINGLE = 1e-30
"""A larger sum in float32 isn't changed by terms that underflow."""


class Call(NamedTuple):
    """The arguments of a `StageKernel`."""

    rows: Rows
    inputs: Arrays
    outputs: Arrays
    values: Values
    partials: Arrays


def stages(**kernels: Callable[[Call], None]) -> Mapping[str, StageKernel]:
    """Return the kernels by stage; their partial results are zero at first."""

    def stage(kernel: Callable[[Call], None]) -> StageKernel:
        def run(
            rows: Rows, inputs: Arrays, outputs: Arrays, values: Values, partials: Arrays
        ) -> None:
            for partial in partials.values():
                partial[...] = 0
            with np.errstate(all="ignore"):  # overflows and NaN are found in the results
                kernel(Call(rows, inputs, outputs, values, partials))

        return run

    return {name: stage(kernel) for name, kernel in kernels.items()}


def first_true(xp: Any, conditions: Any) -> int | None:
    """Return the index of the first true one; None: there is none."""
    found = xp.flatnonzero(conditions)
    return int(found[0]) if len(found) else None


def add_dots(xp: Any, partial: Any, granule: int, first: int, a: Any, b: Any) -> None:
    """Write a.b of each granule of rows; the first row, `first`, begins one.

    So rounding doesn't depend on the split: a device fills the sums of its own granules, adding
    the devices' arrays is exact, and every device adds up the same sums in the same order.
    `systems.sums` declares them.

    Parameters
    ----------
    xp : module
        NumPy or CuPy: that of the vectors.
    partial : (granules,) float64
        The partial result, on the host.
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
