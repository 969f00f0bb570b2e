from __future__ import annotations

from typing import Any

import numpy as np
import pytest
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
