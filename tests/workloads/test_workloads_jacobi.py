"""Jacobi's method: against LAPACK, for any split, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hetsched_workloads.jacobi import JacobiParams
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import block_diag
from solver_cases import JACOBI, dominant, jacobi, splits

from hetsched.errors import DataError, UsageError
from hetsched.iterations import serial
from hetsched.workload import Rows


@given(n=st.integers(1, 80), seed=st.integers(0, 2**32), change=st.booleans())
def test_it_solves_what_lapack_solves(n: int, seed: int, change: bool) -> None:
    a, b = dominant(n, seed)
    criterion = "change" if change else "residual"

    result = jacobi(a, b, tolerance=1e-11, criterion=criterion)

    assert result.converged
    np.testing.assert_allclose(result.outputs["x"], np.linalg.solve(a, b), rtol=0, atol=1e-9)


@given(
    n=st.integers(1, 90),
    seed=st.integers(0, 2**32),
    dtype=st.sampled_from(("float32", "float64")),
    criterion=st.sampled_from(("residual", "change")),
    cut=st.floats(0, 1),
)
def test_every_row_is_right_for_any_split(
    n: int, seed: int, dtype: str, criterion: Any, cut: float
) -> None:
    a, b = dominant(n, seed, dtype)
    p = JacobiParams(n, dtype, criterion=criterion)
    granule = JACOBI.granule(p)
    first = min(n, round(cut * n / granule) * granule)

    result = jacobi(a, b, (n - first, first), criterion=criterion)

    assert result.converged
    errors = JACOBI.errors(p, {"A": a, "b": b}, result.outputs, Rows(0, n, n), 0)
    assert errors.max() <= 1


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [70, 700])
def test_no_bit_depends_on_the_split(n: int, dtype: str) -> None:
    p = JacobiParams(n, dtype)
    results = {
        name: serial.run(JACOBI, p, {}, split)
        for name, split in splits(n, JACOBI.granule(p)).items()
    }

    whole = results["whole"]
    for result in results.values():
        assert result.residuals == whole.residuals
        np.testing.assert_array_equal(result.outputs["x"], whole.outputs["x"])


def textbook(a: np.ndarray, b: np.ndarray, omega: float, tolerance: float) -> tuple[Any, int]:
    x, count = np.zeros_like(b), 0
    while np.linalg.norm(b - a @ x) > tolerance * np.linalg.norm(b):
        x, count = x + omega * (b - a @ x) / a.diagonal(), count + 1
    return x, count


@pytest.mark.parametrize("omega", [1.0, 0.6])
def test_iterations_are_those_of_the_textbook(omega: float) -> None:
    a, b = dominant(90, 3)
    x, count = textbook(a, b, omega, 1e-8)

    result = jacobi(a, b, omega=omega, tolerance=1e-8)

    assert result.iterations == count
    assert result.residuals[-1] <= 1e-8 < result.residuals[-2]
    np.testing.assert_allclose(result.outputs["x"], x, atol=1e-14)


def test_single_precision_reaches_its_tolerance() -> None:
    a, b = dominant(60, 5, "float32")

    result = jacobi(a, b, tolerance=1e-5)

    wide = result.outputs["x"].astype(np.float64)
    assert result.outputs["x"].dtype == np.float32
    assert np.linalg.norm(b - a @ wide) <= 1.1e-5 * np.linalg.norm(b)


def test_it_starts_from_x0() -> None:
    a, b = dominant(40, 7)
    solution = np.linalg.solve(a, b)

    result = jacobi(a, b, x0=solution, tolerance=1e-9)

    assert result.iterations == 1
    assert jacobi(a, b, tolerance=1e-9).iterations > 5


def test_a_right_side_of_zeros_has_the_solution_zero() -> None:
    a, b = dominant(10, 1)

    result = jacobi(a, 0 * b)

    assert result.iterations == 1
    assert not result.outputs["x"].any()


def test_a_matrix_that_is_not_dominant_diverges_with_a_hint() -> None:
    a = np.ones((20, 20)) + np.eye(20)

    with pytest.raises(DataError, match=r"diverges, residual .* smaller omega than 1, or pcg"):
        jacobi(a, np.ones(20))
    assert jacobi(a, np.ones(20), omega=0.15).converged


def test_too_few_iterations_do_not_converge() -> None:
    result = jacobi(*dominant(30, 2), max_iterations=2)

    assert (result.converged, result.iterations) == (False, 2)
    assert JACOBI.must_converge(JacobiParams(30))


@pytest.mark.parametrize("split", [(6,), (2, 4)])
def test_the_result_is_the_x_with_the_least_residual(split: tuple[int, ...]) -> None:
    """A part of the error is halved in each iteration, another one grows by 1.3."""
    shrinking, growing = (np.array([[1, c], [c, 1]]) for c in (0.5, 1.3))
    a, b = block_diag(shrinking, shrinking, growing), np.arange(1.0, 7.0)
    x0 = np.linalg.solve(a, b) + np.array([1, 0, 0, 0, 1e-3, 0])

    def residual(iterations: int) -> float:
        result = jacobi(a, b, split, x0=x0, tolerance=1e-12, max_iterations=iterations)
        assert (result.converged, result.iterations) == (False, iterations)
        return float(np.linalg.norm(b - a @ result.outputs["x"]))

    residuals = [residual(iterations) for iterations in range(1, 12)]

    least = residuals.index(min(residuals))
    assert 3 < least < 9
    assert residuals[: least + 1] == sorted(residuals[: least + 1], reverse=True)
    assert set(residuals[least:]) == {residuals[least]}


def with_value(array: np.ndarray, place: Any, value: float) -> np.ndarray:
    changed = array.copy()
    changed[place] = value
    return changed


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (("A", (17, 17)), 0.0, r"A\[17, 17\] is 0"),
        (("A", (17, 3)), np.nan, r"A\[17, 3\] is nan; A must be finite"),
        (("A", (2, 2)), np.inf, r"A\[2, 2\] is inf"),
        (("b", 5), -np.inf, r"b\[5\] is -inf; b must be finite"),
        (("x0", 5), np.nan, r"x0 isn't finite"),
        (("b", slice(None)), 1e-200, "b is too small"),
        (("b", slice(None)), 1e200, "b is too large"),
    ],
)
def test_values_that_make_no_sense_are_named(place: Any, value: float, words: str) -> None:
    a, b = dominant(30, 2)
    system = {"A": a, "b": b, "x0": np.zeros(30)}
    system[place[0]] = with_value(system[place[0]], place[1], value)

    with pytest.raises(DataError, match=words):
        jacobi(system["A"], system["b"], (11, 19), x0=system["x0"])


@pytest.mark.parametrize("split", [(30,), (15, 15), (29, 1)])
def test_tiny_elements_of_b_matter_only_if_all_are_tiny(split: tuple[int, ...]) -> None:
    a, b = dominant(30, 2)
    b[15:] *= 1e-200

    result = jacobi(a, b, split, tolerance=1e-11)

    assert result.converged
    with pytest.raises(DataError, match="b is too small"):
        jacobi(a, b * 1e-200, split)


@pytest.mark.parametrize("criterion", ["residual", "change"])
@pytest.mark.parametrize("scale", [1e-30, 1e22])
def test_squares_that_float32_cannot_represent_do_not_matter(scale: float, criterion: str) -> None:
    a, b = dominant(90, 2, "float32")
    expected = jacobi(a, b, criterion=criterion)

    result = jacobi(a, b * np.float32(scale), (45, 45), criterion=criterion)

    assert result.iterations == expected.iterations
    np.testing.assert_allclose(result.outputs["x"] / scale, expected.outputs["x"], atol=1e-5)


@pytest.mark.parametrize(("scale", "words"), [(1e-160, "too large"), (1e160, "too small")])
def test_a_change_that_cannot_be_measured_is_no_convergence(scale: float, words: str) -> None:
    a, b = dominant(30, 2)

    with pytest.raises(DataError, match=f"x is {words}"):
        jacobi(a * scale, b, criterion="change")


@pytest.mark.parametrize("criterion", ["residual", "change"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_wrong_row_is_found_and_right_ones_are_not(dtype: str, criterion: Any) -> None:
    p = JacobiParams(128, dtype, criterion=criterion)
    inputs = {"A": np.empty((128, 128), dtype), "b": np.empty(128, dtype)}
    for name, array in inputs.items():
        JACOBI.generate(p, 4, name, 0, array)
    x = serial.run(JACOBI, p, inputs, (128,)).outputs["x"]
    right = JACOBI.errors(p, inputs, {"x": x}, Rows(0, 128, 128), 0)
    x[77] *= 1.01

    wrong = JACOBI.errors(p, inputs, {"x": x}, Rows(60, 90, 128), 0)

    assert right.max() < 0.9
    assert wrong.shape == (30,)
    assert wrong[17] > 2


def test_generated_rows_do_not_depend_on_who_makes_them() -> None:
    p = JacobiParams(20)
    whole, part = np.empty((20, 20)), np.empty((7, 20))
    vector, end = np.empty(20), np.empty(7)
    for array, out, first in (("A", whole, 0), ("A", part, 13), ("b", vector, 0), ("b", end, 13)):
        JACOBI.generate(p, 3, array, first, out)

    np.testing.assert_array_equal(part, whole[13:])
    np.testing.assert_array_equal(end, vector[13:])
    assert (whole.diagonal() > np.abs(whole).sum(axis=1) / 2).all()


def test_parameters_come_from_the_arrays() -> None:
    shapes = {"A": ((9, 9), "float32"), "b": ((9,), "float64"), "x0": ((9,), "int8")}

    p = JACOBI.infer({"omega": "0.5"}, shapes)

    assert p == JacobiParams(9, "float64", 0.5, x0=True)
    assert JACOBI.infer({"n": 4}, {}) == JacobiParams(4, "float64")
    assert JACOBI.infer({}, {"A": ((9, 9), "float32")}).dtype == "float32"


@pytest.mark.parametrize(
    ("explicit", "arrays", "error", "words"),
    [
        ({}, {"A": ((9, 8), "float64")}, DataError, "must be n x n"),
        ({}, {"A": ((9,), "float64")}, DataError, "needs two axes, n x n"),
        ({}, {"A": ((0, 0), "float64")}, DataError, "empty"),
        ({}, {"A": ((9, 9), "complex64")}, DataError, "complex64"),
        ({}, {"A": ((9, 9), "f8"), "b": ((8,), "f8")}, DataError, "n is 8; A says 9"),
        ({"n": 4}, {"A": ((9, 9), "f8")}, DataError, "n is 9; the job says 4"),
        ({}, {"b": ((9, 1), "f8")}, DataError, "needs one axis"),
        ({}, {}, UsageError, "needs n, or an input array that has it"),
        ({"n": 0}, {}, UsageError, "n: 0"),
        ({"n": 4, "omega": 3}, {}, UsageError, "omega: 3"),
        ({"n": 4, "tolerance": 0}, {}, UsageError, "tolerance: 0"),
        ({"n": 4, "max_iterations": -1}, {}, UsageError, "max_iterations: -1"),
        ({"n": 4, "criterion": "norm"}, {}, UsageError, "criterion"),
        ({"n": 4, "dtype": "float16"}, {}, UsageError, "did you mean float"),
    ],
)
def test_what_makes_no_sense_is_refused(
    explicit: dict[str, Any], arrays: Any, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        JACOBI.infer(explicit, arrays)


def test_a_device_needs_memory_for_its_rows_and_the_whole_x() -> None:
    p = JacobiParams(100)

    assert JACOBI.demand(p, "cpu").need([10]) == 8 * (10 * (100 + 1 + 1 + 2 + 2 + 2) + 100)
