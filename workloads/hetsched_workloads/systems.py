"""What the solvers of linear systems A x = b share: parameters and stopping. Without NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from hetsched.errors import DataError
from hetsched.workload import ArraySpec, Reduction, Rows
from hetsched_workloads.declarations import Shapes, Solver

if TYPE_CHECKING:
    import numpy as np

MAX_GROWTH = 1e6
"""A relative residual above which growth counts as divergence. Arbitrary."""
MIN_SIZE = 1e-140
"""Of the largest element of b: the squares of a residual 1e-14 as large don't underflow."""
SLACK, ROUNDING = 2.0, 64.0
"""By how much a row of the result may be off: times what the criterion allows for the whole
system; roundings of a product with a rounded x, and of a residual by recurrence."""


class LinearSystem(Solver):
    """A x = b from a start x0, if it is given: then the parameter x0 is true."""

    optional_inputs = ("x0",)

    def vectors(self, p: Any) -> list[ArraySpec]:
        given = ("b", "x0") if p.x0 else ("b",)
        inputs = [ArraySpec(name, "split", (), p.dtype) for name in given]
        return [*inputs, ArraySpec("x", "out", (), p.dtype)]

    def _inferred(
        self, explicit: Mapping[str, Any], arrays: Shapes, sources: Mapping[str, str]
    ) -> Any:
        full = {**explicit, "x0": True} if "x0" in arrays else explicit
        return super()._inferred(full, arrays, sources)


def row_errors(
    b: np.ndarray,
    x: np.ndarray,
    rows: Rows,
    step: int,
    products: Callable[[slice, np.ndarray], tuple[np.ndarray, np.ndarray]],
    allowed: float,
) -> np.ndarray:
    """Return |b - A x| over what is right, of each of `rows`, in double precision.

    `products`: (`step` rows, x in double precision) -> these rows of A x and of |A| |x|.
    `allowed`: by the criterion.
    """
    import numpy as np

    wide, eps = x.astype(np.float64), float(np.finfo(x.dtype).eps) / 2
    errors = np.empty(rows.count)
    for first in range(rows.first, rows.stop, step):
        block = slice(first, min(first + step, rows.stop))
        product, size = products(block, wide)
        right = b[block].astype(np.float64)
        distance = np.abs(right - product)
        limit = SLACK * allowed + ROUNDING * eps * (np.abs(right) + size)
        own = slice(block.start - rows.first, block.stop - rows.first)
        errors[own] = np.divide(distance, limit, out=distance.copy(), where=limit != 0)
    return errors


def change_of(values: Mapping[str, Any]) -> float:
    """Return the length of the last step, "steps", over |x|, "xx"; the length itself if b is 0.

    Raises DataError if squares of x overflow or underflow.
    """
    step, size = sum_of(values, "steps"), sum_of(values, "xx")
    if not math.isfinite(size):
        raise DataError("x is too large: the sum of its squares overflows; scale the system")
    if values["largest"] and size < MIN_SIZE**2:
        raise DataError("x is too small: its squares underflow; scale the system")
    return math.sqrt(step / size) if size else math.sqrt(step)


def sums(name: str, load: int, granule: int) -> Reduction:
    """Return a reduction with one sum per granule of rows; see `stages.add_dots`."""
    return Reduction(name, (-(-load // granule),), "float64", "sum")


def sum_of(values: Mapping[str, Any], name: str) -> float:
    return float(values[name].sum())


def size_of_b(n: int, granule: int) -> list[Reduction]:
    """Return the sums of b's squares, "bb", and its "largest" element, of all devices together."""
    return [sums("bb", n, granule), Reduction("largest", combine="max")]


def residual_of(values: Mapping[str, Any], of_b: Mapping[str, Any]) -> float:
    """Return |r| / |b|, with the r of `values` and the b of `of_b`; |r| itself where b is 0.

    Raises DataError if squares overflow, underflow, or aren't numbers.
    """
    r_squares, b_squares, largest = sum_of(values, "rr"), sum_of(of_b, "bb"), of_b["largest"]
    if not math.isfinite(b_squares):
        raise DataError("b is too large: the sum of its squares overflows; scale the system")
    if 0 < largest < MIN_SIZE:
        raise DataError("b is too small: its squares underflow; scale the system")
    if math.isnan(r_squares):
        raise DataError("the residual is not a number: A or x overflow; scale the system")
    return math.sqrt(r_squares / b_squares) if b_squares else math.sqrt(r_squares)
