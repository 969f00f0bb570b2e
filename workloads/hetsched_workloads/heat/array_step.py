"""The diffusion by whole-array operations, on any array module, block by block."""

from __future__ import annotations

import math
from typing import Any

from hetsched_workloads.heat.declaration import HeatParams
from hetsched_workloads.heat.inference import ratio
from hetsched_workloads.heat.stages import Load, Step


def array_step(p: HeatParams, xp: Any, block_bytes: int) -> Step:
    """Return the step; its work area has about `block_bytes`.

    Sums are formed in the order of axes, in pairs, as in the compiled variant: results have the
    same bits, and a constant field stays constant.
    """
    dtype = xp.dtype(p.dtype)
    count = _rows_of(p, block_bytes)
    area = xp.empty((count, *p.shape[1:]), dtype)
    weight, points = dtype.type(ratio(p)), dtype.type(2 * len(p.shape))
    ghost = dtype.type(p.border_value)

    def step(u: Any, new: Any) -> float:
        change = 0.0
        for first in range(0, len(new), count):
            out = new[first : first + count]
            own = u[first + 1 : first + 1 + len(out)]
            work = area[: len(out)]
            xp.add(u[first : first + len(out)], u[first + 2 : first + 2 + len(out)], out=out)
            for axis in range(1, len(p.shape)):
                _add_neighbours(
                    xp,
                    xp.moveaxis(own, axis, -1),
                    xp.moveaxis(work, axis, -1),
                    p.borders[axis],
                    ghost,
                )
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


def array_load(p: HeatParams, xp: Any, block_bytes: int) -> Load:
    """Return what copies and checks initial values: what was copied is still in the cache."""
    count = _rows_of(p, block_bytes)

    def load(initial: Any, u: Any) -> bool:
        for first in range(0, len(u), count):
            block = initial[first : first + count]
            u[first : first + count] = block
            if not bool(xp.isfinite(block).all()):
                return False
        return True

    return load


def _rows_of(p: HeatParams, block_bytes: int) -> int:
    row_bytes = math.prod(p.shape[1:]) * int(p.dtype.removeprefix("float")) // 8
    return max(1, min(p.shape[0], block_bytes // row_bytes))


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
