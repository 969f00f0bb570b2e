from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hetsched_workloads.matrix_update import MatrixParams, MatrixUpdate
from hypothesis import given
from hypothesis import strategies as st
from wrong_results import WRONGS

from hetsched.workload import KernelContext

MATRIX = MatrixUpdate()
Matrices = dict[str, np.ndarray]
Make = Callable[[MatrixParams, int], Matrices]


def normal(p: MatrixParams, seed: int = 1) -> Matrices:
    made = {
        "C": np.empty((p.rows, p.cols), p.dtype),
        "A": np.empty((p.rows, p.inner), p.dtype),
        "B": np.empty((p.inner, p.cols), p.dtype),
    }
    for name, array in made.items():
        MATRIX.generate(p, seed, name, 0, array)
    return made


def photograph_like(p: MatrixParams, seed: int = 1) -> Matrices:
    """Positive values, as pixels are: the sums never cancel."""
    rng = np.random.default_rng(seed)
    return {
        name: rng.integers(0, 256, array.shape).astype(p.dtype)
        for name, array in normal(p).items()
    }


def computed(p: MatrixParams, inputs: Matrices) -> np.ndarray:
    (variant,) = MATRIX.variants("cpu")
    c = np.full_like(inputs["C"], np.nan)
    variant.make(p, p.rows, KernelContext("cpu", 1, "", np))(inputs, {"C": c})
    return c


def residual(p: MatrixParams, inputs: Matrices, c: np.ndarray, seed: int = 3) -> np.ndarray:
    return MATRIX.residual(p, inputs, {"C": c}, seed)


SIZES = [(1, 1, 1), (5, 1, 7), (1, 9, 1), (64, 33, 17), (600, 64, 31), (40, 300, 1)]


def assert_caught(
    wrong: str, p: MatrixParams, inputs: Matrices, trials: int, first: int = 0
) -> None:
    """In the columns from `first` on."""
    right = computed(p, inputs)
    assert residual(p, inputs, right).max() < 0.5
    for trial in range(trials):
        c = right.copy()
        WRONGS[wrong](c[:, first:], np.random.default_rng(trial))
        assert residual(p, inputs, c, trial).max() > 2, trial


@pytest.mark.parametrize("wrong", WRONGS)
@pytest.mark.parametrize("make", [normal, photograph_like])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("trials", [5, pytest.param(50, marks=pytest.mark.stress)])
def test_a_wrong_result_is_caught(trials: int, dtype: str, make: Make, wrong: str) -> None:
    p = MatrixParams(16, 512, 256, dtype)
    assert_caught(wrong, p, make(p, 1), trials)


@pytest.mark.parametrize("array", ["C", "A"])
def test_a_row_that_is_not_finite_must_not_come_out_finite(array: str) -> None:
    p = MatrixParams(3, 8, 4)
    inputs = normal(p)
    inputs[array][1, 2] = np.nan
    c = computed(p, inputs)
    assert residual(p, inputs, c)[1] == 0
    c[1] = 0
    assert list(residual(p, inputs, c) <= 1) == [True, False, True]


def test_a_resident_matrix_that_is_not_finite_spoils_every_row() -> None:
    p = MatrixParams(3, 8, 4)
    inputs = normal(p)
    inputs["B"][2, 3] = np.inf
    with np.errstate(invalid="ignore"):
        c = computed(p, inputs)
    assert (residual(p, inputs, c) == 0).all()
    assert (residual(p, inputs, np.zeros_like(c)) == np.inf).all()


@pytest.mark.parametrize("matrices", [{"B": 1e5}, {"B": 1e5, "C": 1e5}, {"C": 1e7}])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("wrong", ["zero", "sign"])
def test_a_large_column_does_not_hide_what_is_wrong_elsewhere(
    dtype: str, matrices: dict[str, float], wrong: str
) -> None:
    p = MatrixParams(16, 512, 256, dtype)
    inputs = normal(p)
    for name, factor in matrices.items():
        inputs[name][:, 7] *= factor
    assert_caught(wrong, p, inputs, 10, first=8)


@given(
    powers=st.lists(st.integers(-12, 12), min_size=1, max_size=20),
    rows=st.integers(1, 9),
    inner=st.integers(1, 40),
)
def test_no_false_alarm_however_columns_and_rows_are_scaled(
    powers: list[int], rows: int, inner: int
) -> None:
    p = MatrixParams(rows, len(powers), inner)
    inputs = normal(p, rows)
    inputs["B"] *= np.float32(10) ** np.array(powers, np.float32)
    inputs["A"] *= np.float32(10) ** np.arange(-4, rows - 4, dtype=np.float32)[:, None]
    assert residual(p, inputs, computed(p, inputs), inner).max() < 0.5


def test_a_value_in_a_column_of_zeros_is_caught() -> None:
    p = MatrixParams(4, 8, 4)
    inputs = normal(p)
    inputs["B"][:, 3] = 0
    inputs["C"][:, 3] = 0
    c = computed(p, inputs)
    c[2, 3] = 1e-3
    assert list(residual(p, inputs, c) > 1) == [False, False, True, False]


def cancelling(p: MatrixParams, seed: int) -> Matrices:
    """C is -A B but for rounding, or but for one part in 10**6."""
    inputs = normal(p, seed)
    product = inputs["A"].astype("float64") @ inputs["B"].astype("float64")
    inputs["C"][...] = -product * (1 + 1e-6 * (seed % 2))
    return inputs


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("rows", "cols", "inner"), SIZES)
def test_what_cancels_is_not_measured_by_what_is_left(
    rows: int, cols: int, inner: int, dtype: str
) -> None:
    p = MatrixParams(rows, cols, inner, dtype)
    for seed in range(4):
        inputs = cancelling(p, seed)
        c = computed(p, inputs)
        ref, scale = MATRIX.reference(p, inputs, 0)["C"], MATRIX.scale(p, inputs, 0)["C"]
        assert scale.shape == ref.shape
        assert np.max(np.abs(c[0] - ref) / scale) <= 0.5 * MATRIX.tolerance(p)
        assert residual(p, inputs, c, seed).max() < 0.5
