"""Completes the parameters of k-means from its arrays, and checks both. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hetsched.errors import DataError, UsageError
from hetsched.workload import FLOAT32, FLOAT64, DtypeChoice
from hetsched_workloads.sizes import take_axes

DTYPES = DtypeChoice(FLOAT32, FLOAT64)
STARTS = ("k-means++", "given")
AXES = {"points": ("count", "dimensions"), "start": ("clusters", "dimensions")}
NEEDED = ("count", "dimensions", "clusters")
Shapes = Mapping[str, tuple[tuple[int, ...], str]]


def check(p: Any) -> None:
    """Raise UsageError or DataError if parameters make no sense."""
    for name in (*NEEDED, "max_iterations"):
        if getattr(p, name) < 1:
            raise UsageError(f"{name}: {getattr(p, name)}, must be at least 1")
    if not 0 <= p.tolerance < 1:
        raise UsageError(f"tolerance: {p.tolerance:g}, must be at least 0 and below 1")
    if p.clusters > p.count:
        raise DataError(f"clusters: {p.clusters}, but there are only {p.count} points")
    if p.start not in STARTS:
        raise UsageError(f"start: {p.start!r}, choose from: {', '.join(STARTS)}")
    if p.start_seed < 0:
        raise UsageError(f"start_seed: {p.start_seed}, must be at least 0")
    DTYPES.parse("kmeans", p.dtype)


def infer(explicit: Mapping[str, Any], arrays: Shapes) -> dict[str, Any]:
    """Return `explicit` with sizes, dtype and start filled in from the input arrays.

    Raises
    ------
    UsageError
        Malformed, or a size that neither the user nor an array gives.
    DataError
        The arrays contradict each other or the explicit parameters.
    """
    full = {key: value for key, value in explicit.items() if value is not None}
    if "dtype" in full:
        full["dtype"] = DTYPES.parse("kmeans", full["dtype"]).name
    sources = {name: "the job" for name in NEEDED if name in full}
    for array, (shape, dtype) in arrays.items():
        if array in AXES:
            take_axes(full, sources, array, AXES[array], shape, dtype)
            if DTYPES.fitting(dtype) is None:
                raise DataError(
                    f"{array} holds {dtype}; kmeans takes bool, integers and float16 to float64"
                )
    for name in NEEDED:
        if name not in full:
            raise UsageError(f"kmeans needs {name}, or an input array that has it")
    if "points" in arrays:
        fitting = DTYPES.fitting(arrays["points"][1])
        full.setdefault("dtype", fitting.name if fitting else DTYPES.single.name)
    if "start" in arrays:
        full.setdefault("start", "given")
    return full
