"""Diffusion by loops that numba compiles: each value is read and written once per step.

Large grids are written past the caches; see `numba_streaming`.

Measured on one core, 2048 x 4096 points in float64: 8 ms, a copy 6, NumPy in cached blocks 15,
NumPy on whole arrays 57. Compiled in `make`, for one to two seconds, in each process once per
dtype and dimension.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numba
import numpy as np

from hetsched.workload import KernelContext, StageKernel
from hetsched_workloads.heat.array_step import array_load
from hetsched_workloads.heat.declaration import HeatParams
from hetsched_workloads.heat.inference import ratio
from hetsched_workloads.heat.numba_streaming import stream_2d, stream_3d, stream_load
from hetsched_workloads.heat.numpy_cpu import BLOCK_BYTES
from hetsched_workloads.heat.stages import Load, Step, stages
from hetsched_workloads.numba_stores import is_aligned, is_beyond_caches

_settings: Any = numba.config
_compiled: Callable[..., Any] = numba.njit(nogil=True, error_model="numpy")
_compiled_any_order: Callable[..., Any] = numba.njit(
    nogil=True, error_model="numpy", fastmath={"nnan", "nsz", "reassoc"}
)
_CODES = {"periodic": 0, "dirichlet": 1, "neumann": 2}


def make(p: HeatParams, load: int, context: KernelContext) -> Mapping[str, StageKernel]:
    """Return the kernels by stage; compiles on small arrays first."""
    dtype = np.dtype(p.dtype)
    weight, ghost = dtype.type(ratio(p)), dtype.type(p.border_value)
    codes = tuple(_CODES[border] for border in p.borders[1:])
    has_change = p.tolerance > 0
    wall = np.full(p.shape[-1], ghost)

    def step(u: np.ndarray, new: np.ndarray) -> float:
        if new.ndim == 2:
            return float(_step_2d(u, new, weight, codes[0], ghost, has_change))
        return float(_step_3d(u, new, weight, codes[0], codes[1], wall, has_change))

    small = np.zeros((3, *(1 for _ in p.shape[1:])), dtype)
    step(small, small[:1].copy())
    load_rows = array_load(p, np, BLOCK_BYTES)
    if is_beyond_caches(2 * dtype.itemsize * math.prod(p.shape)) and not _settings.DISABLE_JIT:
        return stages(p, np, _streaming_step(p, step), _streaming_load(p, load_rows))
    return stages(p, np, step, load_rows)


def _streaming_load(p: HeatParams, load_rows: Load) -> Load:
    """Return what writes initial values past the caches if it can, else as `load_rows`."""
    limit = np.finfo(p.dtype).max
    stream_load(np.zeros(0, p.dtype), np.zeros(0, p.dtype), limit)  # compiles

    def streamed(initial: np.ndarray, u: np.ndarray) -> bool:
        if not is_aligned(u):
            return load_rows(initial, u)
        return bool(stream_load(initial.reshape(-1), u.reshape(-1), limit))

    return streamed


def _streaming_step(p: HeatParams, step: Step) -> Step:
    """Return a step that writes past the caches if it can, else as `step`."""
    if p.tolerance > 0 or (len(p.shape) == 3 and p.borders[1] == "dirichlet"):
        return step  # changes are found in the cache; lines of a wall aren't in the grid
    dtype = np.dtype(p.dtype)
    weight, ghost = dtype.type(ratio(p)), dtype.type(p.border_value)
    *rows, columns = (_CODES[border] for border in p.borders[1:])
    stream = stream_3d if rows else stream_2d
    small = np.zeros((3, *(1 for _ in p.shape[1:])), dtype)
    stream(small, small[:0], weight, columns, *rows, ghost)  # compiles

    def streamed(u: np.ndarray, new: np.ndarray) -> float:
        if not is_aligned(new):
            return step(u, new)
        stream(u, new, weight, columns, *rows, ghost)
        return 0.0

    return streamed


@_compiled_any_order
def _largest_difference(a: Any, b: Any) -> Any:
    largest = a[0] - a[0]
    for i in range(len(a)):
        largest = max(largest, abs(a[i] - b[i]))
    return largest


@_compiled
def _ends(first: Any, last: Any, border: int, ghost: Any) -> Any:
    """Return the values before and after a line with these ends."""
    if border == 0:
        return last, first
    if border == 1:
        return ghost, ghost
    return first, last


@_compiled
def _line_2d(
    out: Any, own: Any, above: Any, below: Any, weight: Any, border: int, ghost: Any
) -> None:
    points = own.dtype.type(4)
    last = len(own) - 1
    for j in range(1, last):
        pairs = (above[j] + below[j]) + (own[j - 1] + own[j + 1])
        out[j] = own[j] + weight * (pairs - points * own[j])
    low, high = _ends(own[0], own[last], border, ghost)
    for j in (0, last):
        before, after = (own[j - 1] if j > 0 else low), (own[j + 1] if j < last else high)
        pairs = (above[j] + below[j]) + (before + after)
        out[j] = own[j] + weight * (pairs - points * own[j])


@_compiled
def _step_2d(u: Any, new: Any, weight: Any, border: int, ghost: Any, has_change: bool) -> Any:
    change = weight - weight
    for i in range(len(new)):
        _line_2d(new[i], u[i + 1], u[i], u[i + 2], weight, border, ghost)
        if has_change:
            change = max(change, _largest_difference(new[i], u[i + 1]))
    return change


@_compiled
def _plane_3d(u: Any, new: Any, i: int, weight: Any, rows: int, columns: int, wall: Any) -> None:
    """Advance plane `i` of `new`.

    One function for all lines: numba counts references to the slices that another one gets, by
    atomic operations, which are a tenth of the time for lines of 256 points.
    """
    points = u.dtype.type(6)
    bottom, last = u.shape[1] - 1, u.shape[2] - 1
    left, right = (bottom, 0) if rows == 0 else (0, bottom)
    for j in range(bottom + 1):
        out, own, above, below = new[i, j], u[i + 1, j], u[i, j], u[i + 2, j]
        near = u[i + 1, j - 1 if j > 0 else left]
        far = u[i + 1, j + 1 if j < bottom else right]
        if rows == 1 and j == 0:
            near = wall
        if rows == 1 and j == bottom:
            far = wall
        for k in range(1, last):
            pairs = ((above[k] + below[k]) + (near[k] + far[k])) + (own[k - 1] + own[k + 1])
            out[k] = own[k] + weight * (pairs - points * own[k])
        low, high = _ends(own[0], own[last], columns, wall[0])
        for k in (0, last):
            before, after = (own[k - 1] if k > 0 else low), (own[k + 1] if k < last else high)
            pairs = ((above[k] + below[k]) + (near[k] + far[k])) + (before + after)
            out[k] = own[k] + weight * (pairs - points * own[k])


@_compiled
def _step_3d(
    u: Any, new: Any, weight: Any, rows: int, columns: int, wall: Any, has_change: bool
) -> Any:
    change = weight - weight
    for i in range(len(new)):
        _plane_3d(u, new, i, weight, rows, columns, wall)
        if has_change:
            for j in range(new.shape[1]):
                change = max(change, _largest_difference(new[i, j], u[i + 1, j]))
    return change
