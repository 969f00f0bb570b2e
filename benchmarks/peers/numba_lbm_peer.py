"""A lid-driven cavity by the lattice Boltzmann method, in a loop that numba runs on all cores.

As a user would write it: streaming, bounce-back and collision fused, one cell at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from hetsched_workloads.lbm import LbmParams
from hetsched_workloads.lbm.verification import reference

SPEED, REYNOLDS = 0.1, 100.0


@numba.njit(parallel=True, fastmath=True)  # type: ignore[untyped-decorator, unused-ignore]
def _step(f: Any, new: Any, omega: Any, speed: Any) -> None:
    rows, cols = f.shape[1:]
    for y in numba.prange(rows):
        bottom, top = y == 0, y == rows - 1
        for x in range(cols):
            left, right = x == 0, x == cols - 1
            f0 = f[0, y, x]
            f1 = f[3, y, x] if left else f[1, y, x - 1]
            f3 = f[1, y, x] if right else f[3, y, x + 1]
            f2 = f[4, y, x] if bottom else f[2, y - 1, x]
            f5 = f[7, y, x] if bottom or left else f[5, y - 1, x - 1]
            f6 = f[8, y, x] if bottom or right else f[6, y - 1, x + 1]
            if top:
                f4, f7, f8 = f[2, y, x], f[5, y, x] - speed / 6, f[6, y, x] + speed / 6
            else:
                f4 = f[4, y + 1, x]
                f7 = f[5, y, x] if right else f[7, y + 1, x + 1]
                f8 = f[6, y, x] if left else f[8, y + 1, x - 1]
            rho = f0 + f1 + f2 + f3 + f4 + f5 + f6 + f7 + f8
            u = (f1 - f3 + f5 - f6 - f7 + f8) / rho
            v = (f2 - f4 + f5 + f6 - f7 - f8) / rho
            base = 1 - 1.5 * (u * u + v * v)
            axial, diagonal = omega * rho / 9, omega * rho / 36
            plus, minus = u + v, v - u
            keep = 1 - omega
            new[0, y, x] = keep * f0 + 4 * axial * base
            new[1, y, x] = keep * f1 + axial * (base + 3 * u + 4.5 * u * u)
            new[3, y, x] = keep * f3 + axial * (base - 3 * u + 4.5 * u * u)
            new[2, y, x] = keep * f2 + axial * (base + 3 * v + 4.5 * v * v)
            new[4, y, x] = keep * f4 + axial * (base - 3 * v + 4.5 * v * v)
            new[5, y, x] = keep * f5 + diagonal * (base + 3 * plus + 4.5 * plus * plus)
            new[7, y, x] = keep * f7 + diagonal * (base - 3 * plus + 4.5 * plus * plus)
            new[6, y, x] = keep * f6 + diagonal * (base + 3 * minus + 4.5 * minus * minus)
            new[8, y, x] = keep * f8 + diagonal * (base - 3 * minus + 4.5 * minus * minus)


def _flow(n: int, steps: int, dtype: str) -> np.ndarray:
    weights = np.array([4 / 9] + [1 / 9] * 4 + [1 / 36] * 4, dtype)
    f = np.broadcast_to(weights[:, None, None], (9, n, n)).copy()
    new = np.empty_like(f)
    omega = 1 / (3 * SPEED * n / REYNOLDS + 0.5)
    for _ in range(steps):
        _step(f, new, omega, SPEED)
        f, new = new, f
    return f


def make(case: dict[str, Any]) -> tuple[Callable[[], None], Callable[[], float]]:
    numba.set_num_threads(case["threads"])

    def run() -> None:
        _flow(case["n"], case["steps"], case["dtype"])

    def check() -> float:
        """Compare a small flow: the reference is slow."""
        density = _flow(24, 60, "float64").sum(axis=0)
        p = LbmParams(24, 24, reynolds=REYNOLDS, speed=SPEED)
        return float(np.abs(density - reference(p, np.zeros((24, 24), bool), 60)[0]).max())

    return run, check
