from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.linalg import block_diag
from scipy.sparse import csr_array
from solver_cases import dominant, solve

from hetsched.errors import DataError


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
