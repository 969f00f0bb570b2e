"""The kernels of a diffusion by whole-array operations, on any array module, block by block.

The check compares results with the exact solution of the difference equation. Each border has a
transform in which the second difference is a factor: Fourier (periodic), sine of type 1
(dirichlet) and cosine of type 2 (neumann). Mode k of n points is multiplied in each step by
1 - r (sum of 4 sin^2(angle / 2) over the axes), with the angle 2 pi k / n, pi (k + 1) / (n + 1)
and pi k / n.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from hetsched.errors import DataError
from hetsched.workload import Arrays, KernelContext, Rows, StageCall, StageKernel
from hetsched.workload.streams import fill_units
from hetsched_workloads.heat import HeatParams

Step = Callable[[Any, Any], float]
"""step(u with a halo of one row, new values) -> the largest change; 0 without a tolerance."""
CORE_BLOCK_BYTES, GPU_BLOCK_BYTES = 256 << 10, 32 << 20
"""On a core half of what blocks of 4096 columns may have before they get slower, as three areas
are in use. On a GPU large enough for full speed; it may stay in the second-level cache."""
TRANSFORMS = {"periodic": ("fft", {}), "neumann": ("dct", {}), "dirichlet": ("dst", {"type": 1})}
"""Border -> its transform in `scipy.fft`, and keywords."""
ROUNDINGS = 8.0
"""Roundings of the largest value, besides one for each step: rounding errors don't grow."""


def make(p: HeatParams, load: int, context: KernelContext) -> Mapping[str, StageKernel]:
    return kernels(p, context.xp, array_step(p, context.xp, _rows_of(p, context.xp)))


def kernels(p: HeatParams, xp: Any, step: Step) -> Mapping[str, StageKernel]:
    count = _rows_of(p, xp)

    def load(call: StageCall) -> None:
        for first in range(0, call.rows.count, count):
            block = call.inputs["initial"][first : first + count]
            call.outputs["u"][first : first + count] = block
            is_finite = xp.isfinite(block)  # what was copied is still in the cache
            if not bool(is_finite.all()):
                line = is_finite.reshape(len(block), -1).all(axis=1)
                row = call.rows.first + first + int(line.argmin())
                raise DataError(f"initial: row {row} has a NaN or an infinite value")

    def advance(call: StageCall) -> None:
        change = step(call.inputs["u"], call.outputs["u"])
        call.partials["steps"][...] = call.values.before["steps"] + 1
        if p.tolerance > 0:
            call.partials["change"][...] = change

    return {"load": load, "step": advance, "result": result}


def result(call: StageCall) -> None:
    call.outputs["final"][...] = call.inputs["u"][1:-1]
    if call.rows.is_first:
        call.outputs["steps"].fill(int(call.values.now["steps"]))


def array_step(p: HeatParams, xp: Any, count: int) -> Step:
    """Return a step of `count` rows at a time.

    Sums are formed in the order of axes, in pairs, as in the compiled variant: results have the
    same bits, and a constant field stays constant.
    """
    dtype = xp.dtype(p.dtype)
    area = xp.empty((count, *p.shape[1:]), dtype)
    weight, points = dtype.type(p.ratio), dtype.type(2 * len(p.shape))
    ghost, borders = dtype.type(p.border_value), p.borders

    def step(u: Any, new: Any) -> float:
        change = 0.0
        for first in range(0, len(new), count):
            out = new[first : first + count]
            own = u[first + 1 : first + 1 + len(out)]
            work = area[: len(out)]
            xp.add(u[first : first + len(out)], u[first + 2 : first + 2 + len(out)], out=out)
            for axis in range(1, len(p.shape)):
                along, sums = xp.moveaxis(own, axis, -1), xp.moveaxis(work, axis, -1)
                _add_neighbours(xp, along, sums, borders[axis], ghost)
                out += work
            xp.multiply(own, points, out=work)
            out -= work
            out *= weight
            out += own
            if p.tolerance > 0:
                xp.subtract(out, own, out=work)
                change = max(change, float(xp.abs(work, out=work).max()))
        return change

    return step


def _rows_of(p: HeatParams, xp: Any) -> int:
    size = CORE_BLOCK_BYTES if xp is np else GPU_BLOCK_BYTES
    row_bytes = math.prod(p.shape[1:]) * np.dtype(p.dtype).itemsize
    return max(1, min(p.shape[0], size // row_bytes))


def _add_neighbours(xp: Any, u: Any, out: Any, border: str, ghost: Any) -> None:
    """Write the sum of both neighbours along the last axis."""
    xp.add(u[..., :-2], u[..., 2:], out=out[..., 1:-1])
    low, high = u[..., 0], u[..., -1]  # neumann: beyond an edge, the values at the edge
    if border == "periodic":
        low, high = high, low
    elif border == "dirichlet":
        low = high = ghost
    if u.shape[-1] == 1:
        out[..., 0] = low + high
    else:
        xp.add(u[..., 1], low, out=out[..., 0])
        xp.add(u[..., -2], high, out=out[..., -1])


# ---- test data, and the check of every row


def reference(p: HeatParams, initial: np.ndarray, steps: int) -> np.ndarray:
    """Return the values after `steps` steps, in double precision. O(n log n) for n points."""
    import scipy.fft

    modes = initial.astype(np.float64) - p.border_value
    for axis, border in enumerate(p.borders):
        name, keywords = TRANSFORMS[border]
        modes = getattr(scipy.fft, name)(modes, axis=axis, **keywords)
    factor = np.ones(modes.shape)
    for axis, (border, size) in enumerate(zip(p.borders, p.shape, strict=True)):
        part = _ratio_of_modes(p, border, size)
        factor -= part.reshape([-1 if i == axis else 1 for i in range(factor.ndim)])
    modes *= factor**steps
    for axis, border in reversed(tuple(enumerate(p.borders))):
        name, keywords = TRANSFORMS[border]
        modes = getattr(scipy.fft, f"i{name}")(modes, axis=axis, **keywords)
    result: np.ndarray = modes.real + p.border_value
    return result


def _ratio_of_modes(p: HeatParams, border: str, size: int) -> np.ndarray:
    """Return what each mode along an axis loses in a step, (size,)."""
    k = np.arange(size)
    angle = {
        "periodic": 2 * np.pi * k / size,
        "dirichlet": np.pi * (k + 1) / (size + 1),
        "neumann": np.pi * k / size,
    }[border]
    # The kernels multiply by r as their dtype represents it.
    return np.asarray(4 * float(np.dtype(p.dtype).type(p.ratio)) * np.sin(angle / 2) ** 2)


def generate(p: HeatParams, seed: int, array: str, first: int, out: np.ndarray) -> None:
    fill_units(seed, array, first, out)


def errors(p: HeatParams, inputs: Arrays, outputs: Arrays, rows: Rows) -> np.ndarray:
    """Return the largest error of each row, in roundings that the steps explain."""
    initial = inputs["initial"]
    steps = int(outputs["steps"][0])
    if not 1 <= steps <= p.steps:
        return np.full(rows.count, np.inf)
    part = slice(rows.first, rows.stop)
    difference = np.abs(outputs["final"][part] - reference(p, initial, steps)[part])
    size = max(float(np.abs(initial).max()), abs(p.border_value))
    allowed = float(np.finfo(p.dtype).eps) * (steps + ROUNDINGS) * size
    worst = difference.reshape(rows.count, -1).max(axis=1)
    if allowed == 0:
        return np.where(worst == 0, 0.0, np.inf)
    return np.asarray(worst / allowed)
