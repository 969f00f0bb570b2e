from __future__ import annotations

import numpy as np
import pytest
from fft_cases import exact, natural, normal, params, photograph, residual
from hypothesis import given
from hypothesis import strategies as st
from wrong_results import WRONGS

DIRECTIONS = ("forward", "inverse", "roundtrip")


def planes(kind: str, dtype: str = "complex64") -> np.ndarray:
    made = {
        "normal": lambda: normal(params("3x64x64", dtype)),
        "natural": lambda: np.stack([natural(64, seed) for seed in range(3)]),
        "photograph": lambda: photograph()[np.newaxis],
    }[kind]()
    return np.ascontiguousarray(made.astype(dtype))


def case(x: np.ndarray, direction: str = "forward") -> tuple[object, np.ndarray]:
    p = params("x".join(map(str, x.shape)), x.dtype.name, direction)
    return p, exact(p, x)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("kind", ["natural", "photograph"])
def test_a_right_result_is_far_from_an_alarm(kind: str, dtype: str, direction: str) -> None:
    x = planes(kind, dtype)
    p, y = case(x, direction)
    assert max(residual(p, x, y, seed).max() for seed in range(2)) < 0.5


@pytest.mark.parametrize("wrong", WRONGS)
@pytest.mark.parametrize(
    ("kind", "dtype", "direction"),
    [("natural", "complex64", "forward"), ("normal", "complex128", "inverse"),
     ("natural", "complex128", "roundtrip")],
)  # fmt: skip
@pytest.mark.parametrize("trials", [5, pytest.param(50, marks=pytest.mark.stress)])
def test_a_wrong_result_is_caught(
    trials: int, kind: str, dtype: str, direction: str, wrong: str
) -> None:
    x = planes(kind, dtype)
    p, right = case(x, direction)
    for trial in range(trials):
        y = right.copy()
        WRONGS[wrong](y, np.random.default_rng(trial))
        assert residual(p, x, y, trial).max() > 2, trial


def test_the_column_that_holds_the_mean_hides_nothing() -> None:
    x = planes("photograph")
    p, y = case(x)
    size = np.abs(y[0, :, 0])
    y[0, np.argmin(np.where(size >= np.median(np.abs(y)), size, np.inf)), 0] = 0
    assert residual(p, x, y).max() > 2


@pytest.mark.parametrize("bad", [np.nan, np.inf, complex(0, -np.inf)])
def test_a_unit_that_is_not_finite_must_not_come_out_finite(bad: complex) -> None:
    x = normal(params("3x16x16"))
    x[1, 2, 3] = bad
    with np.errstate(all="ignore"):
        p, y = case(x)
    assert residual(p, x, y)[1] == 0
    y[1] = 0
    assert list(residual(p, x, y) <= 1) == [True, False, True]


@pytest.mark.parametrize(
    ("dtype", "size"),
    [("complex128", 1e200), ("complex128", 1e-300), ("complex64", 1e30), ("complex64", 1e-38),
     ("complex64", 0)],
)  # fmt: skip
def test_huge_and_tiny_values_are_no_alarm(dtype: str, size: float) -> None:
    x = (normal(params("2x16x16", dtype)).astype(np.complex128) * size).astype(dtype)
    p, y = case(x)
    assert residual(p, x, y).max() < 0.5


def test_of_a_plane_of_zeros_anything_else_is_wrong() -> None:
    x = np.zeros((1, 64, 64), np.complex64)
    p, y = case(x)
    y[0, 3, 4] = 1e-20
    assert residual(p, x, y)[0] > 1


@given(rows=st.integers(1, 40), cols=st.integers(1, 40), seed=st.integers(0, 2**40))
def test_no_false_alarm_at_any_shape(rows: int, cols: int, seed: int) -> None:
    x = normal(params(f"2x{rows}x{cols}"), seed)
    p, y = case(x, DIRECTIONS[seed % 3])
    assert residual(p, x, y, seed).max() < 0.5


def test_generated_planes_are_standard_normal_and_all_different() -> None:
    x = normal(params("4x128x128"))
    assert abs(x.mean()) < 0.02
    assert np.mean(np.abs(x) ** 2) == pytest.approx(1, abs=0.02)
    assert len({plane.tobytes() for plane in x}) == 4
    assert not np.array_equal(x, normal(params("4x128x128"), seed=2))
