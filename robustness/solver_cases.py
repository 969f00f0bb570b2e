"""Small jobs of all solvers, and what each gives in one process: the expected results."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from hetsched_workloads.heat import Heat
from hetsched_workloads.jacobi import Jacobi
from hetsched_workloads.kmeans import KMeans
from hetsched_workloads.pcg import Pcg

from hetsched.iterations import serial
from hetsched.iterations.serial import SerialResult
from hetsched.sparse_rows import sparse_arrays
from hetsched.workload import Iterative
from robustness import real_data

DTYPES = ("float32", "float64")
EXACT = {"float32": 0.0, "float64": 0.0}
"""Sums that don't depend on the split, or no sums at all."""
REORDERED = {"float32": 1e-5, "float64": 1e-12}
SMALL_RESIDUAL = {"float32": 1e-5, "float64": 1e-10}


@dataclass(frozen=True)
class SolverCase:
    """A job of at least 20 iterations: enough for devices to come and go.

    Attributes
    ----------
    params, inputs : callable
        dtype -> parameters; inputs, as users give them.
    tolerances : mapping
        dtype -> the largest error of a result, relative to its largest element.
    """

    workload: Iterative
    params: Callable[[str], dict[str, Any]]
    inputs: Callable[[str], dict[str, Any]]
    tolerances: Mapping[str, float]


def _dense(dtype: str) -> dict[str, Any]:
    n = 160
    rng = np.random.default_rng(11)
    a = rng.standard_normal((n, n))
    np.fill_diagonal(a, 0)
    np.fill_diagonal(a, 1.3 * np.abs(a).sum(axis=1) * rng.choice([-1.0, 1.0], n))
    return {"A": a.astype(dtype), "b": rng.standard_normal(n).astype(dtype)}


def _sparse(dtype: str) -> dict[str, Any]:
    n = 600
    rng = np.random.default_rng(12)
    factor = scipy.sparse.random_array((n, n), density=0.01, rng=rng)
    a = scipy.sparse.csr_array(factor @ factor.T + 0.05 * scipy.sparse.eye_array(n))
    return {"A": a.astype(dtype), "b": rng.standard_normal(n).astype(dtype)}


def _points(dtype: str) -> dict[str, Any]:
    return {"points": np.random.default_rng(13).random((400, 2)).astype(dtype)}


def _field(dtype: str) -> dict[str, Any]:
    return {"initial": np.random.default_rng(14).standard_normal((48, 6)).astype(dtype)}


def _walkers(dtype: str) -> dict[str, Any]:
    image = real_data.photograph("coins")
    a, b = real_data.walker_system(image, real_data.seeds(image), dtype)
    return {"A": a, "b": b}


def _digits(dtype: str) -> dict[str, Any]:
    return {"points": real_data.digits(dtype)}


def _colours(dtype: str) -> dict[str, Any]:
    return {"points": real_data.colours(dtype)[::4]}


def _preconditioned(name: str) -> Callable[[str], dict[str, Any]]:
    return lambda dtype: {"preconditioner": name, "tolerance": SMALL_RESIDUAL[dtype]}


BEST = "cholesky" if importlib.util.find_spec("numba") else "diagonal"
CHOLESKY_CASES: Mapping[str, SolverCase] = (
    {"pcg-cholesky": SolverCase(Pcg(), _preconditioned("cholesky"), _sparse, EXACT)}
    if BEST == "cholesky"
    else {}
)
CASES: Mapping[str, SolverCase] = {
    "jacobi": SolverCase(
        Jacobi(),
        lambda dtype: {"omega": 0.4, "tolerance": SMALL_RESIDUAL[dtype]},
        _dense,
        EXACT,
    ),
    "pcg-diagonal": SolverCase(Pcg(), _preconditioned("diagonal"), _sparse, EXACT),
    **CHOLESKY_CASES,
    "kmeans": SolverCase(
        KMeans(),
        lambda dtype: {"clusters": 9, "tolerance": 0, "start_seed": 3},
        _points,
        REORDERED,
    ),
    "heat": SolverCase(
        Heat(), lambda dtype: {"steps": 40, "border": "neumann,periodic"}, _field, EXACT
    ),
}

REAL_CASES: Mapping[str, SolverCase] = {
    "walkers": SolverCase(Pcg(), _preconditioned(BEST), _walkers, EXACT),
    "digits": SolverCase(
        KMeans(),
        lambda dtype: {"clusters": 10, "tolerance": 0, "start_seed": 3},
        _digits,
        REORDERED,
    ),
    "colours": SolverCase(
        KMeans(),
        lambda dtype: {"clusters": 16, "tolerance": 0, "start_seed": 3},
        _colours,
        REORDERED,
    ),
}
"""Real data, if what they come with is installed."""
ALL_CASES = {**CASES, **(REAL_CASES if real_data.IS_INSTALLED else {})}


@functools.cache
def expected(name: str, dtype: str) -> SerialResult:
    """Return what one device computes, in this process, without an engine."""
    case = ALL_CASES[name]
    arrays: dict[str, np.ndarray] = {}
    for key, value in case.inputs(dtype).items():
        arrays |= sparse_arrays(key, value) if hasattr(value, "tocsr") else {key: value}
    shapes = {key: (value.shape, value.dtype.name) for key, value in arrays.items()}
    params = case.workload.infer(case.params(dtype), shapes)
    for spec in case.workload.arrays(params):
        if spec.name in arrays:
            arrays[spec.name] = arrays[spec.name].astype(spec.dtype)
    load = case.workload.load(params)
    return serial.run(case.workload, params, arrays, (load,), variant=_plain(case.workload))


def _plain(workload: Iterative) -> str:
    """Return the variant that compiles nothing."""
    names = [variant.name for variant in workload.variants("cpu")]
    return next(name for name in names if name != "numba")


def differences(name: str, dtype: str, result: Any) -> list[str]:
    """Return how a job's result differs from the expected one beyond rounding."""
    right, tolerance = expected(name, dtype), ALL_CASES[name].tolerances[dtype]
    texts = []
    if abs(result.iterations - right.iterations) > 1:
        texts.append(f"{result.iterations} iterations, not {right.iterations}")
    for output, values in right.outputs.items():
        got = np.asarray(result[output])
        error = float(np.abs(got.astype(np.float64) - values).max())
        limit = tolerance * float(np.abs(values).max())
        if output != "labels" and not error <= limit:
            texts.append(f"{output} differs by {error:.3g}, at most {limit:.3g}")
        if output == "labels" and (wrong := int(np.count_nonzero(got != values))):
            texts.append(f"{wrong} labels differ")
    return texts
