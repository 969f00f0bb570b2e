"""Monotone: SciPy's monotone cubic, rising times, a continuous derivative, the inverse."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.interpolate import PchipInterpolator

from hetsched.errors import UsageError
from hetsched.models import Monotone, SpeedFunction

observations = st.lists(
    st.tuples(st.integers(1, 1000), st.floats(1e-3, 100)), min_size=1, max_size=12
)


@given(observations)
def test_between_the_outermost_sizes_it_is_scipys_monotone_cubic(
    observed: list[tuple[int, float]],
) -> None:
    curve = Monotone(observed)
    units, seconds = curve.points.T
    knots = np.concatenate(([0], units, 2 * units[-1:], 3 * units[-1:]))
    x = np.linspace(units[0], units[-1], 200)

    spline = PchipInterpolator(
        knots, np.concatenate(([0], seconds, 2 * seconds[-1:], 3 * seconds[-1:]))
    )

    assert curve.time(x) == pytest.approx(spline(x), rel=1e-9)


@given(observations)
def test_times_never_fall(observed: list[tuple[int, float]]) -> None:
    times = Monotone(observed).time(np.linspace(0, 3000, 2000))

    assert np.all(np.diff(times) >= -1e-12 * times[1:])


@pytest.mark.parametrize("x", [10, 40, 100, 200])
def test_the_derivative_is_continuous(x: float) -> None:
    curve = Monotone([(10, 2.0), (40, 5.0), (100, 50.0)])

    assert curve.derivative(x * (1 - 1e-9)) == pytest.approx(curve.derivative(x), rel=1e-6)


def test_speed_is_constant_below_one_size_and_far_beyond_the_last() -> None:
    curve, single = Monotone([(10, 2.0), (40, 5.0)]), Monotone([(10, 2.0)])

    assert curve.speed(np.array([80, 1000])) == pytest.approx([8, 8])
    assert single.speed(np.array([0, 3, 10, 17, 50])) == pytest.approx([5] * 5)


def test_a_size_takes_exactly_what_was_observed() -> None:
    curve = Monotone([(10, 2.0), (40, 5.0), (100, 50.0)])

    assert [curve.time(x) for x in (0, 10, 40, 100)] == [0.0, 2.0, 5.0, 50.0]


def test_times_that_fall_with_size_are_pooled() -> None:
    curve = Monotone(zip((10, 20, 30, 40, 50), (1, 3, 2, 4, 3.9), strict=True))

    assert curve.points[:, 1] == pytest.approx([1, 2.5, 2.5, 3.95, 3.95], rel=1e-8)


def test_evaluation_without_observations_is_refused() -> None:
    assert isinstance(Monotone(), SpeedFunction)
    assert Monotone().points.shape == (0, 2)
    with pytest.raises(UsageError, match="Monotone: no observation"):
        Monotone().time(1.0)


def test_it_is_linear_far_outside() -> None:
    curve = Monotone([(1, 1.0), (2, 3.0), (4, 5.0)])

    assert curve.time(1e308) == pytest.approx(1.25e308)
    assert curve.speed(1e308) == pytest.approx(0.8)
