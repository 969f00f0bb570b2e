"""Diffusion with periodic borders, in loops that numba runs on all cores.

As a user would write it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import scipy.fft

from benchmarks.solver_systems import field


@numba.njit(parallel=True, fastmath=True)  # type: ignore[untyped-decorator, unused-ignore]
def _step_2d(u: Any, new: Any, weight: Any) -> None:
    n, m = u.shape
    for i in numba.prange(n):
        above, below = u[i - 1], u[i + 1 if i < n - 1 else 0]
        own, out = u[i], new[i]
        for j in range(1, m - 1):
            around = above[j] + below[j] + own[j - 1] + own[j + 1]
            out[j] = own[j] + weight * (around - 4 * own[j])
        for j in (0, m - 1):
            around = above[j] + below[j] + own[j - 1] + own[(j + 1) % m]
            out[j] = own[j] + weight * (around - 4 * own[j])


@numba.njit(parallel=True, fastmath=True)  # type: ignore[untyped-decorator, unused-ignore]
def _step_3d(u: Any, new: Any, weight: Any) -> None:
    n, m, l = u.shape  # noqa: E741
    for i in numba.prange(n):
        after = i + 1 if i < n - 1 else 0
        for j in range(m):
            own, out, last = u[i, j], new[i, j], l - 1
            near, far = u[i, j - 1], u[i, j + 1 if j < m - 1 else 0]
            above, below = u[i - 1, j], u[after, j]
            for k in range(1, last):
                around = above[k] + below[k] + near[k] + far[k] + own[k - 1] + own[k + 1]
                out[k] = own[k] + weight * (around - 6 * own[k])
            for k in (0, last):
                around = above[k] + below[k] + near[k] + far[k] + own[k - 1] + own[(k + 1) % l]
                out[k] = own[k] + weight * (around - 6 * own[k])


def make(case: dict[str, Any]) -> tuple[Callable[[], None], Callable[[], float]]:
    numba.set_num_threads(case["threads"])
    initial = field(tuple(case["shape"]), case["dtype"])
    u, new = initial.copy(), np.empty_like(initial)
    weight = 0.45 / initial.ndim
    step = _step_2d if initial.ndim == 2 else _step_3d

    def run() -> None:
        nonlocal u, new
        u[...] = initial
        for _ in range(case["steps"]):
            step(u, new, weight)
            u, new = new, u

    def check() -> float:
        factor = np.ones(initial.shape)
        for axis, size in enumerate(initial.shape):
            shape = [-1 if i == axis else 1 for i in range(initial.ndim)]
            angle = 2 * np.pi * np.arange(size) / size
            factor -= (weight * (2 - 2 * np.cos(angle))).reshape(shape)
        expected = scipy.fft.ifftn(scipy.fft.fftn(initial) * factor ** case["steps"]).real
        return float(np.abs(u - expected).max())

    return run, check
