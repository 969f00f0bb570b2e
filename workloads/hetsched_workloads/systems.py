"""What the solvers of linear systems A x = b share: parameters and stopping. Without NumPy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from hetsched.errors import DataError
from hetsched.workload import FLOAT32, FLOAT64, DtypeChoice, Reduction

DTYPES = DtypeChoice(FLOAT32, FLOAT64)
MAX_GROWTH = 1e6
"""A relative residual above which growth counts as divergence. Arbitrary."""
MIN_SIZE = 1e-140
"""Of the largest element of b: the squares of a residual 1e-14 as large don't underflow."""


def change_of(values: Mapping[str, Any]) -> float:
    """Return the length of the last step, "steps", over |x|, "xx"; the length itself if b is 0.

    Raises
    ------
    DataError
        Squares of x overflow or underflow.
    """
    step, size = sum_of(values, "steps"), sum_of(values, "xx")
    if not math.isfinite(size):
        raise DataError("x is too large: the sum of its squares overflows; scale the system")
    if values["largest"] and size < MIN_SIZE**2:
        raise DataError("x is too small: its squares underflow; scale the system")
    return math.sqrt(step / size) if size else math.sqrt(step)


def is_diverging(now: float, before: float) -> bool:
    """Return whether the relative residual has grown beyond any use."""
    return now > MAX_GROWTH and now > before


def sums(name: str, load: int, granule: int) -> Reduction:
    """Return a reduction with one sum per granule of rows; see `granule_sums`."""
    return Reduction(name, (-(-load // granule),), "float64", "sum")


def sum_of(values: Mapping[str, Any], name: str) -> float:
    """Return the value of a reduction made by `sums`."""
    return float(values[name].sum())


def size_of_b(n: int, granule: int) -> list[Reduction]:
    """Return the sums of b's squares, "bb", and its "largest" element, of all devices together."""
    return [sums("bb", n, granule), Reduction("largest", combine="max")]


def residual_of(values: Mapping[str, Any], of_b: Mapping[str, Any]) -> float:
    """Return |r| / |b|, with the r of `values` and the b of `of_b`; |r| itself where b is 0.

    Raises
    ------
    DataError
        Squares overflow, underflow, or aren't numbers.
    """
    r_squares, b_squares, largest = sum_of(values, "rr"), sum_of(of_b, "bb"), of_b["largest"]
    if not math.isfinite(b_squares):
        raise DataError("b is too large: the sum of its squares overflows; scale the system")
    if 0 < largest < MIN_SIZE:
        raise DataError("b is too small: its squares underflow; scale the system")
    if math.isnan(r_squares):
        raise DataError("the residual is not a number: A or x overflow; scale the system")
    return math.sqrt(r_squares / b_squares) if b_squares else math.sqrt(r_squares)
