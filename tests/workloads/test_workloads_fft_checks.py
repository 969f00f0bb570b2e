"""The residual of the FFT catches what is wrong and nothing else; generated data."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from fft_cases import FFT, exact, natural, normal, params, photographs, residual
from hypothesis import given
from hypothesis import strategies as st

TRIALS = 50


def planes(kind: str, dtype: str) -> tuple[str, np.ndarray]:
    """(batch, data) of a few planes of one kind."""
    made = {
        "normal 64": lambda: normal(params("4x64x64", dtype)),
        "normal 127": lambda: normal(params("3x127x127", dtype)),
        "natural 64": lambda: np.stack([natural(64, seed) for seed in range(4)]),
        "photographs 512": lambda: np.stack(photographs(512, 3)),
    }[kind]()
    x = np.ascontiguousarray(made.astype(dtype))
    return "x".join(map(str, x.shape)), x


def element(y: np.ndarray, rng: np.random.Generator) -> tuple[int, ...]:
    """An element of at least the median magnitude of its plane, and not zero itself."""
    unit = int(rng.integers(len(y)))
    size = np.abs(y[unit])
    places = np.argwhere((size >= np.median(size)) & (size > size.max() * 1e-7))
    return (unit, *(int(i) for i in rng.choice(places)))


def zeroed(y: np.ndarray, rng: np.random.Generator) -> None:
    y[element(y, rng)] = 0


def sign_turned(y: np.ndarray, rng: np.random.Generator) -> None:
    y[element(y, rng)] *= -1


def scaled(y: np.ndarray, rng: np.random.Generator) -> None:
    y[rng.integers(len(y))] *= y.real.dtype.type(1.001)


def axes_swapped(y: np.ndarray, rng: np.random.Generator) -> None:
    unit = rng.integers(len(y))
    y[unit] = y[unit].T.copy()


def left_out(y: np.ndarray, rng: np.random.Generator) -> None:
    y[-1] = 0


def units_swapped(y: np.ndarray, rng: np.random.Generator) -> None:
    a, b = rng.choice(len(y), 2, replace=False)
    y[[a, b]] = y[[b, a]]


def not_a_number(y: np.ndarray, rng: np.random.Generator) -> None:
    y[element(y, rng)] = np.nan


def huge(y: np.ndarray, rng: np.random.Generator) -> None:
    y[element(y, rng)] = np.finfo(y.dtype).max


WRONGS = (
    zeroed, sign_turned, scaled, axes_swapped, left_out, units_swapped, not_a_number, huge,
)  # fmt: skip
KINDS = ("normal 64", "normal 127", "natural 64", "photographs 512")


@pytest.mark.parametrize("direction", ["forward", "inverse", "roundtrip"])
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_right_result_is_far_from_an_alarm(kind: str, dtype: str, direction: str) -> None:
    batch, x = planes(kind, dtype)
    p = params(batch, dtype, direction)
    y = exact(p, x)
    assert max(residual(p, x, y, seed).max() for seed in range(5)) < 0.5


@pytest.mark.parametrize("wrong", WRONGS)
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("direction", ["forward", "inverse", "roundtrip"])
@pytest.mark.parametrize("kind", ["normal 64", "natural 64"])
def test_a_wrong_result_is_caught_in_every_trial(
    kind: str,
    direction: str,
    dtype: str,
    wrong: Callable[[np.ndarray, np.random.Generator], None],
) -> None:
    batch, x = planes(kind, dtype)
    p = params(batch, dtype, direction)
    right = exact(p, x)
    for trial in range(TRIALS if (direction, dtype) == ("forward", "complex64") else 10):
        y = right.copy()
        wrong(y, np.random.default_rng(trial))
        assert residual(p, x, y, trial).max() > 2, trial


@pytest.mark.parametrize("wrong", WRONGS)
def test_one_wrong_element_in_a_photograph_is_caught(
    wrong: Callable[[np.ndarray, np.random.Generator], None],
) -> None:
    batch, x = planes("photographs 512", "complex64")
    p = params(batch)
    right = exact(p, x)
    for trial in range(10):
        y = right.copy()
        wrong(y, np.random.default_rng(trial))
        assert residual(p, x, y, trial).max() > 2, trial


def test_the_column_that_holds_the_mean_hides_nothing() -> None:
    p = params("1x512x512")
    x = np.stack(photographs(512, 1)).astype(np.complex64)
    y = exact(p, x)
    size = np.abs(y[0, :, 0])
    y[0, np.argmin(np.where(size >= np.median(np.abs(y)), size, np.inf)), 0] = 0
    assert residual(p, x, y).max() > 2


def test_only_the_wrong_unit_is_blamed() -> None:
    p = params("4x64x64")
    x = normal(p)
    y = exact(p, x)
    y[2, 5, 6] = 0
    assert list(residual(p, x, y) > 1) == [False, False, True, False]


@pytest.mark.parametrize("bad", [np.nan, np.inf, complex(0, -np.inf)])
def test_a_unit_that_is_not_finite_must_not_come_out_finite(bad: complex) -> None:
    p = params("3x16x16")
    x = normal(p)
    x[1, 2, 3] = bad
    with np.errstate(all="ignore"):
        y = exact(p, x)
    assert residual(p, x, y)[1] == 0
    y[1] = 0
    assert list(residual(p, x, y) <= 1) == [True, False, True]


@pytest.mark.parametrize(
    ("dtype", "size"),
    [("complex128", 1e200), ("complex128", 1e-300), ("complex64", 1e30), ("complex64", 1e-38)],
)
def test_huge_and_tiny_values_are_no_alarm(dtype: str, size: float) -> None:
    p = params("2x16x16", dtype)
    x = (normal(p).astype(np.complex128) * size).astype(dtype)
    assert residual(p, x, exact(p, x)).max() < 0.5


def test_planes_of_zeros_and_of_ones_are_no_alarm() -> None:
    p = params("2x64x64")
    x = np.stack([np.zeros((64, 64)), np.ones((64, 64))]).astype(np.complex64)
    assert residual(p, x, exact(p, x)).max() < 0.5


def test_of_a_plane_of_zeros_anything_else_is_wrong() -> None:
    p = params("1x64x64")
    x = np.zeros((1, 64, 64), np.complex64)
    y = x.copy()
    y[0, 3, 4] = 1e-20
    assert residual(p, x, y)[0] > 1


@given(rows=st.integers(1, 40), cols=st.integers(1, 40), seed=st.integers(0, 2**40))
def test_no_false_alarm_at_any_shape(rows: int, cols: int, seed: int) -> None:
    p = params(f"2x{rows}x{cols}", direction=("forward", "inverse", "roundtrip")[seed % 3])
    x = normal(p, seed)
    assert residual(p, x, exact(p, x), seed).max() < 0.5


def test_generated_planes_do_not_depend_on_who_makes_them() -> None:
    p = params("6x31x17")
    whole = normal(p)
    parts = np.empty_like(whole)
    for first, count in ((4, 2), (0, 1), (1, 3)):
        FFT.generate(p, 1, "x", first, parts[first : first + count])
    assert np.array_equal(whole, parts)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_generated_planes_are_standard_normal_and_all_different(dtype: str) -> None:
    x = normal(params("4x128x128", dtype))
    assert abs(x.mean()) < 0.02
    assert np.mean(np.abs(x) ** 2) == pytest.approx(1, abs=0.02)
    assert len({plane.tobytes() for plane in x}) == 4
    assert not np.array_equal(x, normal(params("4x128x128", dtype), seed=2))


def test_planes_can_be_generated_into_any_layout() -> None:
    p = params("3x8x8")
    out = np.empty((8, 8, 3), np.complex64).transpose(2, 0, 1)
    FFT.generate(p, 1, "x", 0, out)
    assert np.array_equal(out, normal(p))
