from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from scipy.sparse.linalg import LinearOperator, cg
from solver_cases import (
    CHOLESKY,
    needs_numba,
    parts,
    poisson,
    positive,
    solve,
    splits,
)

from hetsched.errors import DataError

PRECONDITIONERS = ["none", "diagonal", CHOLESKY]
A, B = poisson("4x5x6")


@pytest.fixture
def compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled loops for small systems too."""
    monkeypatch.setattr("hetsched_workloads.pcg.compiled.MIN_NONZEROS", 0)


def operator(a: scipy.sparse.csr_array, preconditioner: str, block: int) -> Any:
    """The preconditioner for SciPy."""
    if preconditioner == "none":
        return None
    if preconditioner == "diagonal":
        return scipy.sparse.diags_array(1 / a.diagonal())
    cholesky = importlib.import_module("hetsched_workloads.pcg.cholesky")
    factors = cholesky.RowFactors(a.indptr, a.indices, a.data, 0, block)

    def apply(r: np.ndarray) -> np.ndarray:
        z = np.empty_like(r)
        factors.solve(r, z)
        return z

    return LinearOperator(a.shape, apply, dtype=np.float64)


@pytest.mark.parametrize("case", ["poisson", "random"])
@pytest.mark.parametrize("preconditioner", PRECONDITIONERS)
def test_iterations_are_those_of_scipy(preconditioner: str, case: str) -> None:
    a, b = poisson("12x11x10") if case == "poisson" else (positive(800, 5, 0.02), np.ones(800))
    counted: list[int] = []
    m = operator(a, preconditioner, 40)
    x, _ = cg(a, b, rtol=1e-8, M=m, callback=lambda x: counted.append(0))

    result = solve(preconditioner, a, b, (320, len(b) - 320), block=40, tolerance=1e-8)

    assert abs(result.iterations - len(counted)) <= 1
    assert result.residuals[-1] <= 1e-8 < result.residuals[-2]
    np.testing.assert_allclose(result.outputs["x"], x, atol=1e-6 * np.abs(x).max())


@needs_numba
@pytest.mark.usefixtures("compiles")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("preconditioner", PRECONDITIONERS)
def test_compiled_loops_compute_what_scipy_computes_for_any_split(
    preconditioner: str, dtype: str
) -> None:
    a, b = poisson("9x10x11", dtype)
    matrix, options = parts(a, dtype, "int64"), {"block": 70}
    expected = solve(preconditioner, a, b, variant="scipy", **options)

    results = [
        solve(preconditioner, matrix, b, split, "numba", **options)
        for split in splits(990, 70).values()
    ]

    assert abs(results[0].iterations - expected.iterations) <= 1
    tolerance = 1e-8 if dtype == "float64" else 1e-4
    np.testing.assert_allclose(results[0].residuals[:9], expected.residuals[:9], rtol=tolerance)
    x, size = expected.outputs["x"], np.abs(expected.outputs["x"]).max()
    np.testing.assert_allclose(results[0].outputs["x"], x, atol=1e-5 * size)
    assert all(result.residuals == results[0].residuals for result in results)
    for result in results:
        np.testing.assert_array_equal(result.outputs["x"], results[0].outputs["x"])


def test_a_scipy_without_its_private_loop_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = solve("diagonal", A, B)
    monkeypatch.setattr("hetsched_workloads.pcg.kernels.csr_matvec", None)

    result = solve("diagonal", A, B, (50, 70))

    np.testing.assert_allclose(result.outputs["x"], expected.outputs["x"], atol=1e-13)


@pytest.mark.parametrize("preconditioner", PRECONDITIONERS)
@pytest.mark.parametrize("exponent", [-560, 560])
def test_the_size_of_the_matrix_changes_no_iteration(exponent: int, preconditioner: str) -> None:
    a, b = poisson("7x8x9")
    expected = solve(preconditioner, a, b, block=40)

    result = solve(preconditioner, a * 2.0**exponent, b, (200, 304), block=40)

    assert result.residuals == expected.residuals
    np.testing.assert_array_equal(result.outputs["x"] * 2.0**exponent, expected.outputs["x"])


@needs_numba
def test_a_device_may_compute_cut_blocks() -> None:
    a, b = poisson("9x10x11")
    whole = solve("cholesky", a, b, block=100, tolerance=1e-10)

    result = solve("cholesky", a, b, (333, 50, 607), block=100, tolerance=1e-10)

    assert abs(result.iterations - whole.iterations) <= 3
    np.testing.assert_allclose(result.outputs["x"], whole.outputs["x"], atol=1e-9)


@pytest.mark.parametrize("grid", ["7", "6x5", "4x3x5", "1x1x1", "1x9x1"])
def test_generated_matrices_are_laplacians(grid: str) -> None:
    a, b = poisson(grid)
    expected = scipy.sparse.csr_array((1, 1))
    for size in map(int, grid.split("x")):
        line = scipy.sparse.diags_array(
            [-np.ones(size - 1), 2 * np.ones(size), -np.ones(size - 1)], offsets=[-1, 0, 1]
        )
        expected = scipy.sparse.kronsum(line, expected)

    np.testing.assert_array_equal(a.toarray(), expected.toarray())
    assert a.has_sorted_indices
    assert np.abs(b).max() <= 0.5


START = int(A.indptr[70])
"""Of row 70, whose first elements are in columns 40 and 64."""
SPOILED = [
    ("indptr", 52, 10**9, "A.indptr falls after row 52"),
    ("indptr", -1, A.nnz + 1, f"A.indptr reaches .* to {A.nnz + 1}|A.indptr ends with"),
    ("indptr", 0, 2, "A.indptr reaches from 2"),
    ("indptr", 0, -5, "A.indptr reaches from -5"),
    ("indices", START, 120, "row 70 of A has column 120, out of 0 to 119"),
    ("indices", START, -1, "row 70 of A has column -1"),
    ("indices", START, 69, "row 70 of A is unsorted"),
    ("indices", START, 64, "row 70 of A repeats column 64"),
    ("data", START, np.nan, r"A\[70, 40\] is nan; A must be finite"),
    ("data", START, np.inf, r"A\[70, 40\] is inf"),
    (
        "data",
        int(np.flatnonzero(A.indices[START:] == 70)[0]) + START,
        0,
        r"A\[70, 70\] is 0: a posi",
    ),
    ("data", START, 7.0, "A is not symmetric"),
]


@pytest.mark.parametrize("split", [(120,), (50, 70)])
@pytest.mark.parametrize(("part", "place", "value", "words"), SPOILED)
def test_the_matrix_is_checked(
    part: str, place: int, value: float, words: str, split: tuple[int, ...]
) -> None:
    matrix = parts(A)
    matrix[f"A.{part}"][place] = value

    with pytest.raises(DataError, match=words) as caught:
        solve("diagonal", matrix, B, split)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("preconditioner", PRECONDITIONERS)
def test_an_indefinite_matrix_is_recognised(preconditioner: str) -> None:
    indefinite = scipy.sparse.csr_array(A - 3 * scipy.sparse.eye_array(120))

    with pytest.raises(DataError, match=r"A is not positive definite: p.Ap is -?\d"):
        solve(preconditioner, indefinite, B)


@pytest.mark.parametrize(
    ("scale", "size", "words"),
    [(1e-300, 1e10, "x.* is too large for float64"), (1e-300, 1e-30, "p.Ap is 0 .* underflow")],
)
def test_numbers_beyond_those_of_the_dtype_are_no_result(
    scale: float, size: float, words: str
) -> None:
    with pytest.raises(DataError, match=words):
        solve("none", scipy.sparse.csr_array(A * scale), B * size)


def test_a_singular_matrix_with_no_solution_is_recognised() -> None:
    line = scipy.sparse.diags_array(
        [-np.ones(49), np.r_[1, 2 * np.ones(48), 1], -np.ones(49)], offsets=[-1, 0, 1]
    )

    with pytest.raises(DataError, match=r"not positive definite|A is singular, or nearly"):
        solve("diagonal", scipy.sparse.csr_array(line), np.ones(50))


def test_rounding_does_not_make_a_matrix_asymmetric() -> None:
    a = A.copy()
    a.data *= 1 + 1e-15 * np.random.default_rng(3).standard_normal(a.nnz)

    assert solve("diagonal", a, B).converged
