"""Systems A x = b, splits of their rows, and solvers run in this process."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hetsched_workloads.jacobi import Jacobi, JacobiParams
from hetsched_workloads.pcg import Pcg, PcgParams

from hetsched.iterations import serial
from hetsched.iterations.serial import SerialResult, Split

JACOBI, PCG = Jacobi(), Pcg()
HAS_NUMBA = importlib.util.find_spec("numba") is not None
needs_numba = pytest.mark.skipif(not HAS_NUMBA, reason="incomplete factors need numba")
CHOLESKY = pytest.param("cholesky", marks=needs_numba)


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


def dominant(n: int, seed: int, dtype: str = "float64") -> tuple[np.ndarray, np.ndarray]:
    """A strictly diagonally dominant A with entries of both signs, and b."""
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((n, n))
    np.fill_diagonal(a, 0)
    signs = rng.choice([-1.0, 1.0], n)
    np.fill_diagonal(a, signs * (1.1 * np.abs(a).sum(axis=1) + 0.1))
    return a.astype(dtype), rng.standard_normal(n).astype(dtype)


def positive(n: int, seed: int, density: float = 0.1) -> scipy.sparse.csr_array:
    """A sparse, symmetric and positive definite matrix that need not be diagonally dominant."""
    rng = np.random.default_rng(seed)
    factor = scipy.sparse.random_array((n, n), density=density / 2, rng=rng)
    a = scipy.sparse.csr_array(factor @ factor.T + 0.1 * scipy.sparse.eye_array(n))
    a.sort_indices()
    return a


def parts(a: scipy.sparse.csr_array, dtype: str = "float64") -> dict[str, np.ndarray]:
    """The inputs of `pcg` that are A."""
    return {
        "A.data": a.data.astype(dtype),
        "A.indices": a.indices.astype(np.int32),
        "A.indptr": a.indptr.astype(np.int32),
    }


def jacobi(a: np.ndarray, b: np.ndarray, split: Any = None, **options: Any) -> SerialResult:
    inputs = {"A": a, "b": b}
    if "x0" in options:
        inputs["x0"] = options.pop("x0")
    shapes = {name: (array.shape, array.dtype.name) for name, array in inputs.items()}
    p: JacobiParams = JACOBI.infer(options, shapes)
    return serial.run(JACOBI, p, inputs, split or (p.n,))


def pcg(
    a: scipy.sparse.csr_array | dict[str, np.ndarray],
    b: np.ndarray,
    split: Any = None,
    variant: str | None = None,
    **options: Any,
) -> SerialResult:
    matrix = a if isinstance(a, dict) else parts(a, b.dtype.name)
    inputs = {**matrix, "b": b}
    if "x0" in options:
        inputs["x0"] = options.pop("x0")
    shapes = {name: (array.shape, array.dtype.name) for name, array in inputs.items()}
    p: PcgParams = PCG.infer(options, shapes)
    return serial.run(PCG, p, inputs, split or (p.n,), variant=variant)


def poisson(grid: str, dtype: str = "float64") -> tuple[scipy.sparse.csr_array, np.ndarray]:
    """The generated problem: matrix and right side."""
    p = PCG.infer({"grid": grid, "dtype": dtype}, {})
    arrays = {}
    for spec in PCG.arrays(p):
        shape = spec.unit_shape if spec.role == "resident" else (p.n,)
        arrays[spec.name] = np.empty(shape, spec.dtype)
        if spec.is_input:
            PCG.generate(p, 1, spec.name, 0, arrays[spec.name])
    rows = (arrays["A.data"], arrays["A.indices"], arrays["A.indptr"])
    return scipy.sparse.csr_array(rows, shape=(p.n, p.n)), arrays["b"]
