"""Conjugate gradients with the diagonal as preconditioner, in loops that numba runs on all cores.

As a user would write them: a parallel loop over rows for the product, and one for each update.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from benchmarks.solver_systems import poisson


@numba.njit(parallel=True, fastmath=True)  # type: ignore[untyped-decorator, unused-ignore]
def _multiply(pointers: Any, columns: Any, values: Any, p: Any, q: Any) -> Any:
    product = 0.0
    for i in numba.prange(len(q)):
        total = 0.0
        for k in range(pointers[i], pointers[i + 1]):
            total += values[k] * p[columns[k]]
        q[i] = total
        product += total * p[i]
    return product


@numba.njit(parallel=True, fastmath=True)  # type: ignore[untyped-decorator, unused-ignore]
def _advance(alpha: Any, p: Any, q: Any, weights: Any, x: Any, r: Any) -> Any:
    squares = 0.0
    weighted = 0.0
    for i in numba.prange(len(x)):
        x[i] += alpha * p[i]
        value = r[i] - alpha * q[i]
        r[i] = value
        squares += value * value
        weighted += value * value * weights[i]
    return squares, weighted


@numba.njit(parallel=True, fastmath=True)  # type: ignore[untyped-decorator, unused-ignore]
def _direct(beta: Any, r: Any, weights: Any, p: Any) -> None:
    for i in numba.prange(len(p)):
        p[i] = weights[i] * r[i] + beta * p[i]


def make(case: dict[str, Any]) -> tuple[Callable[[], None], Callable[[], float]]:
    numba.set_num_threads(case["threads"])
    a, b = poisson(case["side"], case["dtype"])
    weights = 1 / a.diagonal()
    x, q = np.zeros_like(b), np.zeros_like(b)
    limit = (case["tolerance"] * np.linalg.norm(b)) ** 2

    def run() -> None:
        x[:] = 0
        r = b.copy()
        p = weights * r
        squares, weighted = r @ r, r @ p
        while squares > limit:
            alpha = weighted / _multiply(a.indptr, a.indices, a.data, p, q)
            before = weighted
            squares, weighted = _advance(alpha, p, q, weights, x, r)
            _direct(weighted / before, r, weights, p)

    def check() -> float:
        return float(np.linalg.norm(b - a @ x) / np.linalg.norm(b))

    return run, check
