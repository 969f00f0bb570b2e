"""Conjugate gradients: against SciPy and LAPACK, for any split."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hetsched_workloads.pcg import PcgParams, csr
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.linalg import LinearOperator, cg
from solver_cases import HAS_NUMBA, PCG, needs_numba, parts, pcg, poisson, positive, splits

from hetsched.errors import DataError, UsageError
from hetsched.workload import Rows

PRECONDITIONERS = ("none", "diagonal", "cholesky") if HAS_NUMBA else ("none", "diagonal")


@given(
    n=st.integers(1, 60),
    seed=st.integers(0, 2**32),
    preconditioner=st.sampled_from(PRECONDITIONERS),
    block=st.integers(0, 30),
)
def test_it_solves_what_lapack_solves(n: int, seed: int, preconditioner: str, block: int) -> None:
    a = positive(n, seed)
    b = np.random.default_rng(seed).standard_normal(n)

    result = pcg(a, b, tolerance=1e-12, preconditioner=preconditioner, block=block)

    assert result.converged
    expected = np.linalg.solve(a.toarray(), b)
    np.testing.assert_allclose(result.outputs["x"], expected, atol=1e-8 * np.abs(expected).max())


@given(
    n=st.integers(1, 90),
    seed=st.integers(0, 2**32),
    preconditioner=st.sampled_from(PRECONDITIONERS),
    dtype=st.sampled_from(("float32", "float64")),
    cuts=st.tuples(st.floats(0, 1), st.floats(0, 1)),
)
def test_every_row_is_right_for_any_split(
    n: int, seed: int, preconditioner: Any, dtype: str, cuts: tuple[float, float]
) -> None:
    a = positive(n, seed)
    b = np.random.default_rng(seed).standard_normal(n).astype(dtype)
    p = PcgParams(n, a.nnz, dtype=dtype, preconditioner=preconditioner)
    granule = PCG.granule(p)
    first, second = sorted(min(n, round(cut * n / granule) * granule) for cut in cuts)

    split = (first, second - first, n - second)
    result = pcg(a, b, split, preconditioner=preconditioner)

    whole = pcg(a, b, preconditioner=preconditioner)
    assert result.converged
    assert result.residuals == whole.residuals
    errors = PCG.errors(p, {**parts(a, dtype), "b": b}, result.outputs, Rows(0, n, n), 0)
    assert errors.max() <= 1


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("preconditioner", PRECONDITIONERS)
def test_no_bit_depends_on_the_split(preconditioner: str, dtype: str) -> None:
    a, b = poisson("9x10x11", dtype)
    p = PcgParams(990, a.nnz, dtype=dtype, preconditioner=preconditioner)  # type: ignore[arg-type]
    results = {
        name: pcg(a, b, split, preconditioner=preconditioner)
        for name, split in splits(990, PCG.granule(p)).items()
    }

    whole = results["whole"]
    assert whole.converged
    for result in results.values():
        assert result.residuals == whole.residuals
        np.testing.assert_array_equal(result.outputs["x"], whole.outputs["x"])


def operator(a: scipy.sparse.csr_array, preconditioner: str, block: int) -> Any:
    """The preconditioner for SciPy."""
    if preconditioner == "none":
        return None
    if preconditioner == "diagonal":
        return scipy.sparse.diags_array(1 / a.diagonal())
    from hetsched_workloads.pcg.cholesky import RowFactors

    factors = RowFactors(a.indptr, a.indices, a.data, 0, block)

    def solve(r: np.ndarray) -> np.ndarray:
        z = np.empty_like(r)
        factors.solve(0, len(r), r, z)
        return z

    return LinearOperator(a.shape, solve, dtype=np.float64)


def scipy_iterations(a: Any, b: np.ndarray, m: Any) -> tuple[np.ndarray, int]:
    counted: list[int] = []
    x, info = cg(a, b, rtol=1e-8, M=m, callback=lambda x: counted.append(0))
    assert info == 0
    return x, len(counted)


@pytest.mark.parametrize("case", ["poisson", "random"])
@pytest.mark.parametrize("preconditioner", PRECONDITIONERS)
def test_iterations_are_those_of_scipy(preconditioner: str, case: str) -> None:
    a, b = poisson("12x11x10") if case == "poisson" else (positive(800, 5, 0.02), np.ones(800))
    x, count = scipy_iterations(a, b, operator(a, preconditioner, 40))

    result = pcg(
        a, b, (320, len(b) - 320), preconditioner=preconditioner, block=40, tolerance=1e-8
    )

    assert abs(result.iterations - count) <= 1
    assert result.residuals[-1] <= 1e-8 < result.residuals[-2]
    np.testing.assert_allclose(result.outputs["x"], x, atol=1e-6 * np.abs(x).max())


@given(
    n=st.integers(1, 60),
    seed=st.integers(0, 2**32),
    preconditioner=st.sampled_from(PRECONDITIONERS),
    cut=st.floats(0, 1),
)
def test_iterations_are_those_of_scipy_for_any_split(
    n: int, seed: int, preconditioner: str, cut: float
) -> None:
    a = positive(n, seed)
    b = np.random.default_rng(seed).standard_normal(n)
    options = {"preconditioner": preconditioner, "block": 20, "tolerance": 1e-8}
    first = min(n, round(cut * n / 20) * 20)
    _, count = scipy_iterations(a, b, operator(a, preconditioner, 20))

    assert abs(pcg(a, b, (first, n - first), **options).iterations - count) <= 1


@pytest.mark.skipif(HAS_NUMBA, reason="numba is installed")
def test_incomplete_factors_need_numba() -> None:
    with pytest.raises(UsageError, match="needs numba: pip install"):
        PCG.infer({"grid": "2x2", "preconditioner": "cholesky"}, {})


@needs_numba
def test_better_preconditioners_need_fewer_iterations() -> None:
    a, b = poisson("16x16x16")
    scale = scipy.sparse.diags_array(np.geomspace(1, 30, a.shape[0]))
    a = scipy.sparse.csr_array(scale @ a @ scale)

    counts = [pcg(a, b, preconditioner=name).iterations for name in PRECONDITIONERS]

    assert counts[0] > 1.5 * counts[1] > 1.5 * 1.3 * counts[2]


def test_a_poisson_problem_has_the_solution_of_its_eigenvector() -> None:
    a, _ = poisson("20x30")
    waves = [np.sin(np.pi * np.arange(1, n + 1) / (n + 1)) for n in (20, 30)]
    mode = np.outer(*waves).ravel()
    eigenvalue = sum(4 * np.sin(np.pi / (2 * (n + 1))) ** 2 for n in (20, 30))

    result = pcg(a, mode, preconditioner="none", tolerance=1e-12)

    assert result.iterations == 1
    np.testing.assert_allclose(result.outputs["x"], mode / eigenvalue, rtol=1e-10)


def test_it_starts_from_x0() -> None:
    a, b = poisson("8x8x8")
    near = scipy.sparse.linalg.spsolve(a.tocsc(), b) * (1 + 1e-6)

    assert pcg(a, b, x0=near).iterations == 1
    assert pcg(a, b).iterations > 10


@pytest.mark.parametrize("preconditioner", PRECONDITIONERS)
def test_a_right_side_of_zeros_has_the_solution_zero(preconditioner: str) -> None:
    a, b = poisson("5x5")

    result = pcg(a, 0 * b, preconditioner=preconditioner)

    assert result.iterations == 1
    assert not result.outputs["x"].any()


@pytest.mark.parametrize("preconditioner", PRECONDITIONERS)
@pytest.mark.parametrize("exponent", [-560, 560])
def test_the_size_of_the_matrix_changes_no_iteration(exponent: int, preconditioner: str) -> None:
    a, b = poisson("7x8x9")
    options = {"preconditioner": preconditioner, "block": 40}
    expected = pcg(a, b, **options)

    result = pcg(a * 2.0**exponent, b, (200, 304), **options)

    assert result.residuals == expected.residuals
    np.testing.assert_array_equal(result.outputs["x"] * 2.0**exponent, expected.outputs["x"])


@pytest.mark.parametrize("split", [(200, 304), (504,)])
def test_tiny_elements_of_b_matter_only_if_all_are_tiny(split: tuple[int, ...]) -> None:
    a, b = poisson("7x8x9")
    b[200:] *= 1e-200

    assert pcg(a, b, split, tolerance=1e-10).converged
    with pytest.raises(DataError, match="b is too small"):
        pcg(a, b * 1e-200, split)


@pytest.mark.parametrize("scale", [1e-30, 1e22])
def test_squares_that_float32_cannot_represent_do_not_matter(scale: float) -> None:
    a, b = poisson("7x8x9", "float32")

    result = pcg(a, b * np.float32(scale), (200, 304))

    np.testing.assert_allclose(result.outputs["x"] / scale, pcg(a, b).outputs["x"], rtol=1e-4)


def test_too_few_iterations_do_not_converge() -> None:
    result = pcg(*poisson("9x9x9"), max_iterations=3)

    assert (result.converged, result.iterations) == (False, 3)


@pytest.mark.parametrize("preconditioner", PRECONDITIONERS)
def test_the_last_x_is_the_best(preconditioner: str) -> None:
    """Its error in the norm of A falls in each iteration (Hestenes and Stiefel, 1952)."""
    a, b = positive(200, 4, 0.05), np.random.default_rng(4).standard_normal(200)
    solution = np.linalg.solve(a.toarray(), b)
    norms = []
    for count in range(1, 25):
        result = pcg(a, b, preconditioner=preconditioner, tolerance=1e-12, max_iterations=count)
        error = result.outputs["x"] - solution
        norms.append(float(error @ (a @ error)))

    assert norms == sorted(norms, reverse=True)
    assert norms[-1] < norms[0]


def test_iterations_are_bounded() -> None:
    limits = [PCG.max_iterations(PcgParams(n, 1, max_iterations=m)) for n, m in
              ((7, 0), (10**6, 0), (7, 99))]  # fmt: skip

    assert limits == [70, 10_000, 99]


@pytest.mark.parametrize("preconditioner", PRECONDITIONERS)
def test_scipy_without_its_private_loop_gives_the_same(
    preconditioner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = poisson("7x8x9")
    expected = pcg(a, b, preconditioner=preconditioner)
    monkeypatch.setattr(csr, "csr_matvec", None)

    result = pcg(a, b, preconditioner=preconditioner)

    np.testing.assert_allclose(result.outputs["x"], expected.outputs["x"], atol=1e-14)


@needs_numba
def test_wide_indices_give_the_same() -> None:
    a, b = poisson("7x8x9")
    wide = {"A.data": a.data, "A.indices": a.indices.astype(int), "A.indptr": a.indptr.astype(int)}

    result = pcg(wide, b, preconditioner="cholesky")

    expected = pcg(a, b, preconditioner="cholesky")
    np.testing.assert_array_equal(result.outputs["x"], expected.outputs["x"])


@needs_numba
def test_a_device_may_compute_cut_blocks() -> None:
    a, b = poisson("9x10x11")
    options = {"preconditioner": "cholesky", "block": 100, "tolerance": 1e-10}
    whole = pcg(a, b, **options)

    result = pcg(a, b, (333, 50, 607), **options)

    assert abs(result.iterations - whole.iterations) <= 3
    np.testing.assert_allclose(result.outputs["x"], whole.outputs["x"], atol=1e-9)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_wrong_row_is_found_and_right_ones_are_not(dtype: str) -> None:
    a, b = poisson("10x10x10", dtype)
    p = PcgParams(1000, a.nnz, dtype=dtype)
    x = pcg(a, b).outputs["x"]
    inputs = {"A.data": a.data, "A.indices": a.indices, "A.indptr": a.indptr, "b": b}
    right = PCG.errors(p, inputs, {"x": x}, Rows(0, 1000, 1000), 0)
    x[555] += 0.01 * np.abs(x).max()

    wrong = PCG.errors(p, inputs, {"x": x}, Rows(550, 600, 1000), 0)

    assert right.max() < 0.9
    assert wrong.shape == (50,)
    assert wrong[5] > 2


@pytest.mark.parametrize("grid", ["7", "6x5", "4x3x5", "1x1x1", "1x9x1"])
def test_generated_matrices_are_laplacians(grid: str) -> None:
    a, b = poisson(grid)
    axes = [int(size) for size in grid.split("x")]
    expected = scipy.sparse.csr_array((1, 1))
    for size in axes:
        line = scipy.sparse.diags_array(
            [-np.ones(size - 1), 2 * np.ones(size), -np.ones(size - 1)], offsets=[-1, 0, 1]
        )
        expected = scipy.sparse.kronsum(line, expected)

    np.testing.assert_array_equal(a.toarray(), expected.toarray())
    assert a.has_sorted_indices
    assert np.abs(b).max() <= 0.5


def test_parameters_come_from_the_matrix_or_the_grid() -> None:
    shapes: Any = {
        "A.data": ((33,), "float64"),
        "A.indices": ((33,), "int64"),
        "A.indptr": ((10,), "int32"),
        "b": ((9,), "float32"),
    }

    assert PCG.infer({}, shapes) == PcgParams(9, 33, "", "float64", "int64")
    assert PCG.infer({"grid": "3x4x5"}, {}) == PcgParams(60, 326, "3x4x5", "float64", "int32")
    assert PCG.infer({"n": "1000", "dtype": "f32"}, {}).grid == "10x10x10"
    assert PCG.infer({"grid": "2000x2000x2000"}, {}).index_dtype == "int64"


@pytest.mark.parametrize(
    ("explicit", "arrays", "error", "words"),
    [
        ({}, {}, UsageError, "a grid, as --grid 100x100x100"),
        ({"n": 999}, {}, UsageError, "999 is no cube"),
        ({"n": 9, "grid": "2x2"}, {}, UsageError, "4 points, n is 9"),
        ({"grid": "2x2x2x2"}, {}, UsageError, "XxYxZ"),
        ({"grid": "0x2"}, {}, UsageError, "0"),
        ({"grid": "2", "preconditioner": "lu"}, {}, UsageError, "preconditioner"),
        ({"grid": "2", "block": -1}, {}, UsageError, "block: -1"),
        ({"grid": "2", "tolerance": 1}, {}, UsageError, "tolerance: 1"),
        ({}, {"A.data": ((3,), "complex64")}, DataError, "complex64"),
        ({}, {"b": ((3,), "float64")}, DataError, "n is 3; A says 4"),
        ({"grid": "2x2"}, {"b": ((4,), "float64")}, UsageError, "not both"),
    ],
)
def test_what_makes_no_sense_is_refused(
    explicit: dict[str, Any], arrays: Any, error: type[Exception], words: str
) -> None:
    matrix = {"A.data": ((9,), "f8"), "A.indices": ((9,), "int32"), "A.indptr": ((5,), "int32")}

    with pytest.raises(error, match=words):
        PCG.infer(explicit, {**matrix, **arrays} if arrays else {})


def test_an_index_dtype_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(UsageError, match="int32 or int64"):
        PCG.load(PcgParams(4, 10, index_dtype="int8"))


@needs_numba
def test_memory_counts_incomplete_factors() -> None:
    plain, cholesky = (
        PcgParams(1000, 7000, preconditioner=name)  # type: ignore[arg-type]
        for name in ("diagonal", "cholesky")
    )

    assert PCG.demand(plain, "cpu").need([10]) == (
        7000 * 12 + 1001 * 4 + 16 * 1000 + 10 * 8 * (2 + 4 + 1)
    )
    assert (
        PCG.demand(cholesky, "cpu").need([10]) - PCG.demand(plain, "cpu").need([10]) > 10 * 7 * 12
    )
