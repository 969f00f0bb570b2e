"""The problems of the benchmark of solvers: what hetsched and its peers compute."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.solver_systems import cloud, dense, field, poisson

TOLERANCE = 1e-5
"""Of residuals, relative to the right side."""


@dataclass(frozen=True)
class Problem:
    """One workload with its inputs, and its peers.

    Attributes
    ----------
    case : dict
        What the peers get; "dtype" too.
    params : dict
        What the workload gets.
    bytes_per_iteration : float
        What an iteration reads and writes at least, if nothing stays in a cache.
    max_error : float
        Of the peers' own check.
    """

    workload: str
    case: dict[str, Any]
    params: dict[str, Any]
    peers: tuple[str, ...]
    inputs: Callable[[], Mapping[str, np.ndarray]]
    bytes_per_iteration: float
    max_error: float = 1.1 * TOLERANCE

    @property
    def name(self) -> str:
        """Return the workload and its sizes."""
        return f"{self.workload} {', '.join(f'{k} {v}' for k, v in self.case.items())}"


def jacobi(n: int) -> Problem:
    def inputs() -> Mapping[str, np.ndarray]:
        return dict(zip(("A", "b"), dense(n, "float64"), strict=True))

    case = {"n": n, "dtype": "float64", "tolerance": TOLERANCE}
    params = {"tolerance": TOLERANCE}
    return Problem("jacobi", case, params, ("numpy_jacobi_peer",), inputs, 8.0 * n * n)


def pcg(side: int) -> Problem:
    def inputs() -> Mapping[str, np.ndarray]:
        a, b = poisson(side, "float64")
        return {"A.data": a.data, "A.indices": a.indices, "A.indptr": a.indptr, "b": b}

    n = side**3
    # The matrix, p and q; r, q and the diagonal; these, x and p, and new values of r, x and p,
    # whose lines are read before.
    traffic = (7 * 12 + 4) * n + 8 * n * (1 + 2 + 3 + 5 + 6)
    case = {"side": side, "dtype": "float64", "tolerance": TOLERANCE}
    peers = ("numba_cg_peer", "scipy_cg_peer")
    return Problem("pcg", case, {"tolerance": TOLERANCE}, peers, inputs, traffic)


def kmeans(count: int, dtype: str, iterations: int) -> Problem:
    """Return 64 clusters of points with 16 coordinates, from given centroids."""

    def inputs() -> Mapping[str, np.ndarray]:
        points = cloud(count, 16, dtype)
        return {"points": points, "start": points[:64].astype(np.float64)}

    item = np.dtype(dtype).itemsize
    case = {"count": count, "dtype": dtype, "iterations": iterations}
    params = {"tolerance": 0.0, "max_iterations": iterations}
    traffic = count * (16.0 * item + 12)  # points; labels of this and the last iteration
    return Problem("kmeans", case, params, ("sklearn_kmeans_peer",), inputs, traffic, 1e-3)


def heat(shape: tuple[int, ...], steps: int) -> Problem:
    def inputs() -> Mapping[str, np.ndarray]:
        return {"initial": field(shape, "float64")}

    case = {"shape": shape, "dtype": "float64", "steps": steps}
    traffic = 16.0 * np.prod(shape)  # old values and new ones
    peers = ("numba_heat_peer",)
    return Problem("heat", case, {"steps": steps}, peers, inputs, float(traffic), 1e-12)
