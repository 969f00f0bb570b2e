"""Inputs for the benchmarks of solvers: the same numbers in every process."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse

DOMINANCE = 1.25


def dense(n: int, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Return a diagonally dominant matrix of positive numbers, and a positive vector."""
    rng = np.random.default_rng(1)
    a = rng.random((n, n), dtype=dtype)
    np.fill_diagonal(a, DOMINANCE * a.sum(axis=1))
    return a, rng.random(n, dtype=dtype)


def poisson(side: int, dtype: str) -> tuple[Any, np.ndarray]:
    """Return the Laplacian with 7 points on a cube, in CSR, and a random vector."""
    line = scipy.sparse.diags_array(
        [-np.ones(side - 1), 2 * np.ones(side), -np.ones(side - 1)], offsets=[-1, 0, 1]
    )
    plane = scipy.sparse.kronsum(line, line)
    a = scipy.sparse.csr_array(scipy.sparse.kronsum(plane, line).astype(dtype))
    a.sort_indices()
    a.indices, a.indptr = a.indices.astype(np.int32), a.indptr.astype(np.int32)
    return a, np.random.default_rng(1).standard_normal(side**3).astype(dtype)


def cloud(count: int, dimensions: int, dtype: str) -> np.ndarray:
    """Return normal points: k-means needs many iterations where there are no clusters."""
    return np.random.default_rng(1).standard_normal((count, dimensions), dtype=dtype)


def field(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Return random values on a grid."""
    return np.random.default_rng(1).random(shape, dtype=dtype)
