"""Completes the parameters of `pcg` from its matrix, its vectors or a grid. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from hetsched.errors import DataError, UsageError
from hetsched_workloads import extents
from hetsched_workloads.extents import Shapes

PARTS = ("A.data", "A.indices", "A.indptr")
FORMS = (("X",), ("X", "Y"), ("X", "Y", "Z"))
MAX_INT32 = 2**31 - 1


def grid_axes(grid: str) -> tuple[int, ...]:
    """Return the points of a grid along its one to three axes. Raises UsageError."""
    return extents.parse(grid, FORMS)


def poisson_nonzeros(axes: tuple[int, ...]) -> int:
    """Return the nonzeros of the Laplacian on a grid: each point and its neighbours."""
    points = math.prod(axes)
    return points + sum(2 * (points - points // size) for size in axes)


def matrix_sizes(explicit: Mapping[str, Any], arrays: Shapes) -> dict[str, Any]:
    """Return `explicit` with the rows of the matrix among the inputs, and what its indices are.

    Raises
    ------
    UsageError, DataError
        There is a grid too, or n is another number.
    """
    if explicit.get("grid"):
        raise UsageError("give either the matrix A or a grid, not both")
    rows = arrays["A.indptr"][0][0] - 1
    if str(explicit.get("n") or rows) != str(rows):
        raise DataError(f"A has {rows} rows, so n is {rows}; the job says {explicit['n']}")
    is_narrow = arrays["A.indices"][1] == arrays["A.indptr"][1] == "int32"
    index_dtype = "int32" if is_narrow else "int64"
    return {**explicit, "n": rows, "nonzeros": None, "index_dtype": index_dtype}


def grid_sizes(explicit: Mapping[str, Any], arrays: Shapes) -> dict[str, Any]:
    """Return `explicit` with the sizes of a generated Poisson problem. Raises UsageError."""
    full = {key: value for key, value in explicit.items() if value is not None}
    if not full.get("grid"):
        raise UsageError("pcg needs the inputs A and b, or a grid, as --grid 100x100x100")
    axes = grid_axes(str(full["grid"]))
    points = math.prod(axes)
    if str(full.setdefault("n", points)) != str(points):
        raise UsageError(f"grid {full['grid']} has {points} points, n is {full['n']}")
    full["nonzeros"] = poisson_nonzeros(axes)
    full["index_dtype"] = "int32" if full["nonzeros"] <= MAX_INT32 else "int64"
    return full
