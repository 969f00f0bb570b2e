"""Solvers as a user would write them for one process, on all cores.

Each function prepares a problem, and returns a function that solves it and returns the result.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

Array = Any
Loop = dict[str, bool]
PARALLEL: Loop = {"parallel": True, "fastmath": True, "cache": True}


def numpy_update(c: Array, a: Array, b: Array) -> Callable[[], Array]:
    """`C += A @ B`, by all threads of BLAS, into another array."""
    out, product = np.empty_like(c), np.empty_like(c)

    def run() -> Array:
        np.matmul(a, b, out=product)
        return np.add(c, product, out=out)

    return run


def numpy_jacobi(a: Array, b: Array, tolerance: float) -> Callable[[], Array]:
    """As in a textbook; the matrix product uses all threads of BLAS."""
    diagonal = a.diagonal().copy()

    def run() -> Array:
        x, r = np.zeros_like(b), b.copy()
        while np.linalg.norm(r) > tolerance * np.linalg.norm(b):
            x += r / diagonal
            r = b - a @ x
        return x

    return run


def numba_cg(a: Any, b: Array, tolerance: float) -> Callable[[], Array]:
    """Conjugate gradients with the diagonal as preconditioner."""
    import numba

    @numba.njit(**PARALLEL)
    def multiply(pointers: Array, columns: Array, values: Array, p: Array, q: Array) -> float:
        product = 0.0
        for i in numba.prange(len(q)):
            total = 0.0
            for k in range(pointers[i], pointers[i + 1]):
                total += values[k] * p[columns[k]]
            q[i] = total
            product += total * p[i]
        return product

    @numba.njit(**PARALLEL)
    def advance(
        alpha: float, p: Array, q: Array, weights: Array, x: Array, r: Array
    ) -> tuple[float, float]:
        squares = 0.0
        weighted = 0.0
        for i in numba.prange(len(x)):
            x[i] += alpha * p[i]
            value = r[i] - alpha * q[i]
            r[i] = value
            squares += value * value
            weighted += value * value * weights[i]
        return squares, weighted

    @numba.njit(**PARALLEL)
    def direct(beta: float, r: Array, weights: Array, p: Array) -> None:
        for i in numba.prange(len(p)):
            p[i] = weights[i] * r[i] + beta * p[i]

    weights = 1 / a.diagonal()
    x, q = np.zeros_like(b), np.zeros_like(b)
    limit = (tolerance * np.linalg.norm(b)) ** 2

    def run() -> Array:
        x[:] = 0
        r = b.copy()
        p = weights * r
        squares, weighted = r @ r, r @ p
        while squares > limit:
            alpha = weighted / multiply(a.indptr, a.indices, a.data, p, q)
            before = weighted
            squares, weighted = advance(alpha, p, q, weights, x, r)
            direct(weighted / before, r, weights, p)
        return x

    return run


def numba_heat(initial: Array, weight: float, steps: int) -> Callable[[], Array]:
    """Diffusion with periodic borders."""
    import numba

    @numba.njit(**PARALLEL)
    def step_2d(u: Array, new: Array, weight: float) -> None:
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

    @numba.njit(**PARALLEL)
    def step_3d(u: Array, new: Array, weight: float) -> None:
        n, m, depth = u.shape
        for i in numba.prange(n):
            after = i + 1 if i < n - 1 else 0
            for j in range(m):
                own, out, last = u[i, j], new[i, j], depth - 1
                near, far = u[i, j - 1], u[i, j + 1 if j < m - 1 else 0]
                above, below = u[i - 1, j], u[after, j]
                for k in range(1, last):
                    around = above[k] + below[k] + near[k] + far[k] + own[k - 1] + own[k + 1]
                    out[k] = own[k] + weight * (around - 6 * own[k])
                for k in (0, last):
                    beside = own[k - 1] + own[(k + 1) % depth]
                    around = above[k] + below[k] + near[k] + far[k] + beside
                    out[k] = own[k] + weight * (around - 6 * own[k])

    step = step_2d if initial.ndim == 2 else step_3d
    grids = [initial.copy(), np.empty_like(initial)]

    def run() -> Array:
        u, new = grids
        u[...] = initial
        for _ in range(steps):
            step(u, new, weight)
            u, new = new, u
        return u

    return run


def sklearn_kmeans(points: Array, start: Array, iterations: int) -> Callable[[], Any]:
    """Return labels, centroids and the sum of squared distances."""
    import sklearn.cluster
    import sklearn.exceptions

    warnings.simplefilter("ignore", sklearn.exceptions.ConvergenceWarning)
    model = sklearn.cluster.KMeans(
        len(start), init=start, n_init=1, max_iter=iterations, tol=0, copy_x=False
    )

    def run() -> Any:
        model.fit(points)
        assert model.n_iter_ == iterations
        return model.labels_, model.cluster_centers_, model.inertia_

    return run
