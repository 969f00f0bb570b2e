"""Completes the parameters of `pcg` from its matrix, its vectors or a grid. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from hetsched.errors import DataError, UsageError
from hetsched.units import parse_extent, quoted
from hetsched_workloads.sizes import take_size
from hetsched_workloads.systems import (
    DTYPES,
    Shapes,
    infer_dtype,
    infer_vectors,
)

PARTS = ("A.data", "A.indices", "A.indptr")
INDEX_DTYPES = ("int32", "int64")
MAX_GRID_TEXT = 100
"""Characters of a grid: more than any size in memory needs, fewer than int() refuses."""
MAX_INT32 = 2**31 - 1


def grid_axes(grid: str) -> tuple[int, ...]:
    """Return the points of a grid along its one to three axes.

    Raises
    ------
    UsageError
    """
    names = ("X", "Y", "Z")[: grid.count("x") + 1]
    if len(grid) > MAX_GRID_TEXT or grid.count("x") > 2:
        raise UsageError(f"grid: {quoted(grid)} is not X, XxY or XxYxZ")
    return parse_extent(grid, names)


def poisson_nonzeros(axes: tuple[int, ...]) -> int:
    """Return the nonzeros of the Laplacian on a grid: each point and its neighbours."""
    points = math.prod(axes)
    return points + sum(2 * (points - points // size) for size in axes)


def infer(explicit: Mapping[str, Any], arrays: Shapes) -> dict[str, Any]:
    """Return `explicit` completed from the shapes of the inputs.

    Raises
    ------
    UsageError
        Neither a matrix nor a grid, or a parameter that makes no sense.
    DataError
        The inputs contradict each other or the parameters.
    """
    full = {key: value for key, value in explicit.items() if value is not None}
    sources = {"n": "the job"} if "n" in full else {}
    if PARTS[0] in arrays:
        _take_matrix(full, arrays, sources)
    infer_vectors(full, "pcg", arrays, sources)
    floats = {name: arrays[name] for name in ("A.data", "b", "x0") if name in arrays}
    infer_dtype(full, "pcg", floats)
    if PARTS[0] not in arrays:
        _take_grid(full)
    return full


def _take_matrix(full: dict[str, Any], arrays: Shapes, sources: dict[str, str]) -> None:
    """Take the sizes of A, whose parts are all there and one-dimensional."""
    if full.get("grid"):
        raise UsageError("give either the matrix A or a grid, not both")
    data, indices, indptr = (arrays[part] for part in PARTS)
    if DTYPES.fitting(data[1]) is None:
        raise DataError(f"A holds {data[1]}; pcg takes integers and floats up to float64")
    rows = indptr[0][0] - 1
    take_size(full, sources, f"A has {rows} rows", "n", rows, "A")
    full["nonzeros"] = data[0][0]
    is_narrow = indices[1] == indptr[1] == "int32"
    full["index_dtype"] = "int32" if is_narrow else "int64"


def _take_grid(full: dict[str, Any]) -> None:
    """Set the size of a generated Poisson problem."""
    if not full.get("grid"):
        full["grid"] = _cube(full)
    axes = grid_axes(str(full["grid"]))
    points = math.prod(axes)
    if str(full.setdefault("n", points)) != str(points):
        raise UsageError(f"grid {full['grid']} has {points} points, n is {full['n']}")
    full["nonzeros"] = poisson_nonzeros(axes)
    full["index_dtype"] = "int32" if full["nonzeros"] <= MAX_INT32 else "int64"


def _cube(full: Mapping[str, Any]) -> str:
    """Return the cubic grid with n points."""
    text = str(full.get("n", ""))
    if not text.isdecimal() or len(text) > MAX_GRID_TEXT:
        raise UsageError("pcg needs the inputs A and b, or a grid, as --grid 100x100x100")
    side = round(int(text) ** (1 / 3))
    if side < 1 or side**3 != int(text):
        raise UsageError(f"n: {text} is no cube; give the inputs A and b, or a grid")
    return f"{side}x{side}x{side}"
