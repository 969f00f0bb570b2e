from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.linalg import block_diag
from scipy.sparse import csr_array
from solver_cases import SOLVERS, dominant, errors_of, granule_of, solve, splits

from hetsched.errors import DataError


@pytest.fixture(params=SOLVERS)
def solver(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("n", [1, 2, 7, 60, 90])
def test_it_solves_what_lapack_solves(solver: str, n: int) -> None:
    for seed in range(3):
        a, b = dominant(n, seed)

        result = solve(solver, a, b, tolerance=1e-12)

        assert result.converged
        expected = np.linalg.solve(a.toarray(), b)
        np.testing.assert_allclose(result.outputs["x"], expected, atol=1e-9 * abs(expected).max())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [70, 990])
def test_no_bit_depends_on_the_split(solver: str, n: int, dtype: str) -> None:
    a, b = dominant(n, 1, dtype)
    granule = granule_of(solver, a, dtype)

    results = {name: solve(solver, a, b, split) for name, split in splits(n, granule).items()}

    whole = results["whole"]
    assert whole.converged
    assert errors_of(solver, a, b, whole.outputs["x"]).max() < 0.9
    for result in results.values():
        assert result.residuals == whole.residuals
        np.testing.assert_array_equal(result.outputs["x"], whole.outputs["x"])


def test_it_starts_from_x0(solver: str) -> None:
    a, b = dominant(80, 7)
    near = np.linalg.solve(a.toarray(), b) * (1 + 1e-7)

    assert solve(solver, a, b, x0=near, tolerance=1e-6).iterations == 1
    assert solve(solver, a, b, tolerance=1e-6).iterations > 3


def test_a_right_side_of_zeros_has_the_solution_zero(solver: str) -> None:
    a, b = dominant(10, 1)

    result = solve(solver, a, 0 * b)

    assert result.iterations == 1
    assert not result.outputs["x"].any()


def test_too_few_iterations_do_not_converge(solver: str) -> None:
    result = solve(solver, *dominant(90, 2), max_iterations=2, tolerance=1e-12)

    assert (result.converged, result.iterations) == (False, 2)


@pytest.mark.parametrize("split", [(90,), (64, 26)])
def test_tiny_elements_of_b_matter_only_if_all_are_tiny(
    solver: str, split: tuple[int, ...]
) -> None:
    a, b = dominant(90, 2)
    b[64:] *= 1e-200

    assert solve(solver, a, b, split, tolerance=1e-11).converged
    with pytest.raises(DataError, match="b is too small"):
        solve(solver, a, b * 1e-200, split)


@pytest.mark.parametrize("scale", [1e-30, 1e22])
def test_squares_that_float32_cannot_represent_do_not_matter(solver: str, scale: float) -> None:
    a, b = dominant(90, 2, "float32")
    expected = solve(solver, a, b)

    result = solve(solver, a, b * np.float32(scale), (64, 26))

    assert result.iterations == expected.iterations
    np.testing.assert_allclose(result.outputs["x"] / scale, expected.outputs["x"], atol=1e-5)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("b", -np.inf, r"b\[70\] is -inf; b must be finite"),
        ("x0", np.nan, r"x0 isn't finite|x0\[70\] is nan"),
        ("b", 1e200, "b is too large"),
    ],
)
def test_vectors_that_make_no_sense_are_named(
    solver: str, name: str, value: float, words: str
) -> None:
    a, b = dominant(90, 2)
    vectors = {"b": b, "x0": np.zeros(90)}
    vectors[name][70] = value

    with pytest.raises(DataError, match=words):
        solve(solver, a, vectors["b"], (64, 26), x0=vectors["x0"])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("solver", "options"), [("jacobi", {}), ("jacobi", {"criterion": "change"}), ("diagonal", {})]
)
def test_a_wrong_row_is_found(solver: str, options: dict[str, Any], dtype: str) -> None:
    a, b = dominant(300, 4, dtype)
    x = solve(solver, a, b, **options).outputs["x"]
    x[77] += 0.01 * abs(x).max()

    assert errors_of(solver, a, b, x, **options)[77] > 2


@pytest.mark.parametrize("omega", [1.0, 0.6])
def test_iterations_are_those_of_the_textbook(omega: float) -> None:
    a, b = dominant(90, 3)
    x, count = np.zeros_like(b), 0
    while np.linalg.norm(b - a @ x) > 1e-8 * np.linalg.norm(b):
        x, count = x + omega * (b - a @ x) / a.diagonal(), count + 1

    result = solve("jacobi", a, b, omega=omega, tolerance=1e-8)

    assert result.iterations == count
    assert result.residuals[-1] <= 1e-8 < result.residuals[-2]
    np.testing.assert_allclose(result.outputs["x"], x, atol=1e-14)


def test_a_matrix_that_is_not_dominant_diverges_with_a_hint() -> None:
    a = csr_array(np.ones((20, 20)) + np.eye(20))

    with pytest.raises(DataError, match=r"diverges, residual .* smaller omega than 1, or pcg"):
        solve("jacobi", a, np.ones(20))
    assert solve("jacobi", a, np.ones(20), omega=0.15).converged


@pytest.mark.parametrize("split", [(6,), (2, 4)])
def test_the_result_is_the_x_with_the_least_residual(split: tuple[int, ...]) -> None:
    shrinking, growing = (np.array([[1, c], [c, 1]]) for c in (0.5, 1.3))
    a, b = block_diag(shrinking, shrinking, growing), np.arange(1.0, 7.0)
    x0 = np.linalg.solve(a, b) + np.array([1, 0, 0, 0, 1e-3, 0])
    residuals = []
    for iterations in range(1, 12):
        options = {"x0": x0, "tolerance": 1e-12, "max_iterations": iterations}
        x = solve("jacobi", csr_array(a), b, split, **options).outputs["x"]
        residuals.append(float(np.linalg.norm(b - a @ x)))

    least = residuals.index(min(residuals))
    assert 3 < least < 9
    assert residuals[: least + 1] == sorted(residuals[: least + 1], reverse=True)
    assert set(residuals[least:]) == {residuals[least]}


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        ((17, 17), 0.0, r"A\[17, 17\] is 0"),
        ((17, 3), np.nan, r"A\[17, 3\] is nan; A must be finite"),
        ((2, 2), np.inf, r"A\[2, 2\] is inf"),
    ],
)
def test_elements_that_make_no_sense_are_named(place: Any, value: float, words: str) -> None:
    a, b = dominant(30, 2)
    dense = a.toarray()
    dense[place] = value

    with pytest.raises(DataError, match=words):
        solve("jacobi", csr_array(dense), b, (11, 19))


@pytest.mark.parametrize("scale", [1.0, 1e-30, 1e22])
def test_a_small_last_step_is_convergence_at_any_scale(scale: float) -> None:
    a, b = dominant(90, 2, "float32")

    result = solve("jacobi", a, b * np.float32(scale), criterion="change", tolerance=1e-6)

    x = np.linalg.solve(a.toarray(), b)
    np.testing.assert_allclose(result.outputs["x"] / scale, x, atol=1e-4 * abs(x).max())


@pytest.mark.parametrize(("scale", "words"), [(1e-160, "too large"), (1e160, "too small")])
def test_a_change_that_cannot_be_measured_is_no_convergence(scale: float, words: str) -> None:
    a, b = dominant(30, 2)

    with pytest.raises(DataError, match=f"x is {words}"):
        solve("jacobi", a * scale, b, criterion="change")
