"""Completes the parameters of a diffusion from its array, and checks both. Pure."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any

from hetsched.errors import DataError, UsageError
from hetsched.units import closest_name, parse_extent, quoted
from hetsched.workload import FLOAT32, FLOAT64, DtypeChoice

DTYPES = DtypeChoice(FLOAT32, FLOAT64)
BORDERS = ("periodic", "dirichlet", "neumann")
NAMES = {2: ("ROWS", "COLS"), 3: ("PLANES", "ROWS", "COLS")}
MAX_GRID_LENGTH = 60
"""Characters of a grid: more than any size in memory needs, fewer than int() refuses."""
MAX_FLOAT32 = 2.0**127 * (2 - 2.0**-23)
DEFAULT_FRACTION = 0.9
"""Of the largest stable time step: how long a step is if none is given. Arbitrary."""


@functools.lru_cache(maxsize=256)
def grid_shape(grid: str) -> tuple[int, ...]:
    """Parse "4096x4096" or "256x256x256". Raises UsageError."""
    axes = grid[:MAX_GRID_LENGTH].count("x") + 1
    if len(grid) > MAX_GRID_LENGTH or axes not in NAMES:
        raise UsageError(
            f"grid {quoted(grid)}: needs ROWSxCOLS or PLANESxROWSxCOLS; example: 256x512"
        )
    return parse_extent(grid, NAMES[axes])


@functools.lru_cache(maxsize=256)
def borders(text: str, axes: int) -> tuple[str, ...]:
    """Return the border of each axis: one for all, or one each, as "periodic,neumann".

    Raises
    ------
    UsageError
    """
    words = tuple(text.split(","))
    for word in words:
        if word not in BORDERS:
            closest = closest_name(word.lower(), BORDERS)
            hint = f"did you mean {closest}?" if closest else f"choose from: {', '.join(BORDERS)}"
            raise UsageError(f"heat has no border {quoted(word)}; {hint}")
    if len(words) == 1:
        return words * axes
    if len(words) != axes:
        raise UsageError(f"border: {len(words)} borders for {axes} axes; give 1 or {axes}")
    return words


def ratio(p: Any) -> float:
    """Return diffusivity x time step / spacing^2, which multiplies the differences."""
    largest = 0.5 / len(grid_shape(p.grid))
    if p.time_step == 0:
        return DEFAULT_FRACTION * largest
    return float(p.diffusivity * p.time_step / p.spacing**2)


def check(p: Any) -> None:
    """Raise UsageError if parameters make no sense."""
    axes = len(grid_shape(p.grid))
    borders(p.border, axes)
    dtype = DTYPES.parse("heat", p.dtype)
    if p.steps < 1:
        raise UsageError(f"steps: {p.steps}, must be at least 1")
    for name in ("diffusivity", "spacing"):
        if not (getattr(p, name) > 0 and math.isfinite(getattr(p, name))):
            raise UsageError(f"{name}: {getattr(p, name):g}, must be above 0 and finite")
    for name in ("time_step", "tolerance"):
        if not (getattr(p, name) >= 0 and math.isfinite(getattr(p, name))):
            raise UsageError(f"{name}: {getattr(p, name):g}, must be at least 0 and finite")
    if not math.isfinite(p.border_value):
        raise UsageError(f"border_value: {p.border_value:g}, must be finite")
    if dtype is FLOAT32 and abs(p.border_value) > MAX_FLOAT32:
        raise UsageError(f"border_value: {p.border_value:g} is too large for float32")
    largest = 0.5 / axes * p.spacing**2 / p.diffusivity
    if p.time_step > largest * (1 + 1e-12):
        raise UsageError(
            f"time_step: {p.time_step:g} is unstable; the largest for this spacing and"
            f" diffusivity is {largest:.6g}"
        )


def infer(
    explicit: Mapping[str, Any], array: tuple[tuple[int, ...], str] | None
) -> dict[str, Any]:
    """Return `explicit` with grid and dtype filled in from the initial values.

    Raises
    ------
    UsageError
        Malformed, or neither a grid nor initial values.
    DataError
        The array isn't a grid of numbers, or contradicts `grid`.
    """
    full = {key: value for key, value in explicit.items() if value is not None}
    if "dtype" in full:
        full["dtype"] = DTYPES.parse("heat", full["dtype"]).name
    if array is None:
        if "grid" not in full:
            raise UsageError("heat needs a grid, ROWSxCOLS or PLANESxROWSxCOLS, or initial values")
        return full
    shape, dtype = array
    description = f"initial holds {dtype} of shape {tuple(shape)}"
    fitting = DTYPES.fitting(dtype)
    if fitting is None:
        raise DataError(f"{description}; heat takes bool, integers and float16 to float64")
    if len(shape) not in NAMES:
        raise DataError(f"{description}; heat needs two or three axes")
    if min(shape) < 1:
        raise DataError(f"{description}: it is empty; nothing to compute")
    if "grid" in full and grid_shape(str(full["grid"])) != tuple(shape):
        raise DataError(f"{description}, but grid is {full['grid']}")
    full["grid"] = "x".join(map(str, shape))
    full.setdefault("dtype", fitting.name)
    return full
