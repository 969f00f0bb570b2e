"""Completes the parameters of a matrix update from its arrays, and checks both. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hetsched.errors import DataError, UsageError
from hetsched.workload import FLOAT32, FLOAT64, Dtype, DtypeChoice
from hetsched_workloads.sizes import take_axes

DTYPES = DtypeChoice(FLOAT32, FLOAT64)
AXES = {"C": ("rows", "cols"), "A": ("rows", "inner"), "B": ("inner", "cols")}
Shapes = Mapping[str, tuple[tuple[int, ...], str]]


def check_sizes(sizes: Mapping[str, int]) -> None:
    """Raise UsageError if a size is below 1."""
    for name, size in sizes.items():
        if size < 1:
            raise UsageError(f"{name}: {size}, must be at least 1")


def infer(explicit: Mapping[str, Any], arrays: Shapes) -> dict[str, Any]:
    """Return `explicit` with sizes and dtype filled in from the input arrays.

    Raises
    ------
    UsageError
        Malformed, or a size that neither the user nor an array gives.
    DataError
        The arrays contradict each other or the explicit parameters.
    """
    full = {key: value for key, value in explicit.items() if value is not None}
    if "dtype" in full:
        full["dtype"] = DTYPES.parse("matrix_update", full["dtype"]).name
    sources: dict[str, str] = {
        name: "the job" for name in ("rows", "cols", "inner") if name in full
    }
    for array, (shape, dtype) in arrays.items():
        if array in AXES:
            take_axes(full, sources, array, AXES[array], shape, dtype)
    for name in ("rows", "cols", "inner"):
        if name not in full:
            raise UsageError(f"matrix_update needs {name}, or an input array that has it")
    fitting = [_fitting(array, dtype) for array, (_, dtype) in arrays.items() if array in AXES]
    is_double = any(dtype.is_double for dtype in fitting)
    full.setdefault("dtype", (DTYPES.double if is_double else DTYPES.single).name)
    return full


def _fitting(array: str, dtype: str) -> Dtype:
    fitting = DTYPES.fitting(dtype)
    if fitting is None:
        raise DataError(
            f"{array} holds {dtype}; matrix_update takes bool, integers and float16 to float64"
        )
    return fitting
