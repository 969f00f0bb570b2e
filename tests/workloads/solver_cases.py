"""Systems A x = b, splits of their rows, and solvers run in this process."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hetsched_workloads.jacobi import Jacobi
from hetsched_workloads.pcg import Pcg

from hetsched.iterations import serial
from hetsched.iterations.serial import SerialResult, Split

JACOBI, PCG = Jacobi(), Pcg()
HAS_NUMBA = importlib.util.find_spec("numba") is not None
needs_numba = pytest.mark.skipif(not HAS_NUMBA, reason="numba isn't installed")
CHOLESKY = pytest.param("cholesky", marks=needs_numba)
SOLVERS = ["jacobi", "none", "diagonal", CHOLESKY]
"""Jacobi's method, and the preconditioners of conjugate gradients."""
Matrix = scipy.sparse.csr_array


def splits(load: int, granule: int) -> dict[str, Split]:
    """Shares of three devices in multiples of a granule, fixed or others in each iteration."""

    def at(*fractions: float) -> tuple[int, ...]:
        bounds = [min(load, round(f * load / granule) * granule) for f in fractions]
        return tuple(np.diff([0, *bounds, load]).tolist())

    return {
        "whole": lambda iteration: (load, 0, 0),
        "uneven": lambda iteration: at(0.2, 0.9),
        "gap": lambda iteration: at(0.4, 0.4),
        "moving": lambda iteration: at((iteration % 7) / 10, 0.6 + (iteration % 5) / 10),
    }


def dominant(n: int, seed: int, dtype: str = "float64") -> tuple[Matrix, np.ndarray]:
    """A sparse, symmetric and strictly diagonally dominant A, and b."""
    rng = np.random.default_rng(seed)
    half = scipy.sparse.random_array(
        (n, n), density=0.1, rng=rng, data_sampler=rng.standard_normal
    )
    both = scipy.sparse.csr_array(half + half.T)
    both.setdiag(1.3 * abs(both).sum(axis=1) + 0.1)
    both.sort_indices()
    return both.astype(dtype), rng.standard_normal(n).astype(dtype)


def positive(n: int, seed: int, density: float = 0.1) -> Matrix:
    """A sparse, symmetric and positive definite matrix that need not be diagonally dominant."""
    rng = np.random.default_rng(seed)
    factor = scipy.sparse.random_array((n, n), density=density / 2, rng=rng)
    a = scipy.sparse.csr_array(factor @ factor.T + 0.1 * scipy.sparse.eye_array(n))
    a.sort_indices()
    return a


def parts(a: Matrix, dtype: str = "float64", index_dtype: str = "int32") -> dict[str, np.ndarray]:
    """The inputs of `pcg` that are A."""
    return {
        "A.data": a.data.astype(dtype),
        "A.indices": a.indices.astype(index_dtype),
        "A.indptr": a.indptr.astype(index_dtype),
    }


def solve(
    solver: str,
    a: Matrix | dict[str, np.ndarray],
    b: np.ndarray,
    split: Any = None,
    variant: str | None = None,
    **options: Any,
) -> SerialResult:
    """Solve A x = b by one of SOLVERS; the result's `params` and `inputs` are those of the job."""
    workload: Any = JACOBI if solver == "jacobi" else PCG
    if solver == "jacobi":
        inputs = {"A": a.toarray(), "b": b}  # type: ignore[union-attr]
    else:
        options["preconditioner"] = solver
        inputs = {**(a if isinstance(a, dict) else parts(a, b.dtype.name)), "b": b}
    if "x0" in options:
        inputs["x0"] = options.pop("x0")
    shapes = {name: (array.shape, array.dtype.name) for name, array in inputs.items()}
    p = workload.infer(options, shapes)
    return serial.run(workload, p, inputs, split or (len(b),), variant=variant)


def granule_of(solver: str, a: Matrix, dtype: str = "float64", block: int = 0) -> int:
    if solver == "jacobi":
        return JACOBI.granule(JACOBI.Params(a.shape[0], dtype))
    p = PCG.Params(a.shape[0], a.nnz, dtype=dtype, preconditioner=solver, block=block)  # type: ignore[arg-type]
    return PCG.granule(p)


def errors_of(solver: str, a: Matrix, b: np.ndarray, x: np.ndarray, **options: Any) -> np.ndarray:
    """The error of each row by the workload's own check."""
    n = len(b)
    rows = serial.Rows(0, n, n)
    if solver == "jacobi":
        p = JACOBI.Params(n, b.dtype.name, **options)
        return JACOBI.errors(p, {"A": a.toarray(), "b": b}, {"x": x}, rows, 0)
    p = PCG.Params(n, a.nnz, dtype=b.dtype.name, **options)
    return PCG.errors(p, {**parts(a, b.dtype.name), "b": b}, {"x": x}, rows, 0)


def poisson(grid: str, dtype: str = "float64") -> tuple[Matrix, np.ndarray]:
    """The generated problem: matrix and right side."""
    p = PCG.infer({"grid": grid, "dtype": dtype}, {})
    arrays = {}
    for spec in PCG.arrays(p):
        arrays[spec.name] = np.empty(spec.shape(p.n), spec.dtype)
        if spec.is_input:
            PCG.generate(p, 1, spec.name, 0, arrays[spec.name])
    rows = (arrays["A.data"], arrays["A.indices"], arrays["A.indptr"])
    return scipy.sparse.csr_array(rows, shape=(p.n, p.n)), arrays["b"]
