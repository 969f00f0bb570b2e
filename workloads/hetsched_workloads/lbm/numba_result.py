"""Density and velocity of a flow by a loop that numba compiles: populations are read once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from hetsched.workload import Arrays, Rows, StageKernel, Values
from hetsched_workloads.lbm.declaration import LbmParams
from hetsched_workloads.lbm.inference import force

_compiled: Callable[..., Any] = numba.njit(nogil=True, error_model="numpy")


def compiled_result(p: LbmParams) -> StageKernel:
    """Return the kernel of the stage `result`; compiles on two cells first."""
    dtype = np.dtype(p.dtype)
    half_force, no_mask = dtype.type(force(p) / 2), np.zeros((0, 0), np.uint8)
    _moments(
        np.zeros((3, 9, 2), dtype),
        no_mask,
        half_force,
        np.zeros((1, 2), dtype),
        np.zeros((1, 2, 2), dtype),
    )

    def result(
        rows: Rows, inputs: Arrays, outputs: Arrays, values: Values, partials: Arrays
    ) -> None:
        mask = inputs["mask"][rows.first : rows.stop] if p.has_mask else no_mask
        _moments(inputs["f"], mask, half_force, outputs["density"], outputs["velocity"])
        if rows.is_first:
            outputs["steps"][...] = int(values.now["steps"])

    return result


@_compiled
def _moments(f: Any, mask: Any, half_force: Any, density: Any, velocity: Any) -> None:
    """Write the moments of the rows of `f` but the first and last; solid cells are at rest."""
    one = density.dtype.type(1)
    for y in range(len(density)):
        cells, moments, speeds = f[y + 1], density[y], velocity[y]
        for x in range(len(moments)):
            f0, f1, f2, f3, f4 = cells[0, x], cells[1, x], cells[2, x], cells[3, x], cells[4, x]
            f5, f6, f7, f8 = cells[5, x], cells[6, x], cells[7, x], cells[8, x]
            rho = one + (f0 + (((f1 + f3) + (f2 + f4)) + ((f5 + f7) + (f6 + f8))))
            along = (f1 - f3) + ((f5 - f7) + (f8 - f6))
            across = (f2 - f4) + ((f5 - f7) - (f8 - f6))
            moments[x] = rho
            speeds[x, 0] = (along - half_force * rho) / rho  # collisions have added all of it
            speeds[x, 1] = across / rho
        if len(mask):
            for x in range(len(moments)):
                if mask[y, x]:
                    moments[x], speeds[x, 0], speeds[x, 1] = one, 0, 0
