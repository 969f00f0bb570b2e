"""PiecewiseLinear: evaluation, its inverse, repeats, and times that must rise."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.errors import UsageError
from hetsched.models import PiecewiseLinear, SpeedFunction

observations = st.lists(
    st.tuples(st.integers(1, 1000), st.floats(1e-6, 100)), min_size=1, max_size=12
)


def example() -> PiecewiseLinear:
    """Speeds 5, 8, 2 at 10, 40, 100 units."""
    return PiecewiseLinear([(10, 2.0), (40, 5.0), (100, 50.0)])


@pytest.mark.parametrize(
    ("x", "speed"), [(1, 5), (10, 5), (25, 6.5), (40, 8), (70, 5), (100, 2), (1000, 2)]
)
def test_speed_is_linear_between_knots_and_constant_outside(x: float, speed: float) -> None:
    curve = example()

    assert curve.speed(x) == pytest.approx(speed, rel=1e-14)
    assert curve.time(x) == pytest.approx(x / speed, rel=1e-14)


def test_zero_units_take_no_time_at_the_first_speed() -> None:
    assert example().time(0) == 0.0
    assert example().speed(0) == 5.0


def test_a_knot_takes_exactly_what_was_observed() -> None:
    assert [example().time(x) for x in (10, 40, 100)] == [2.0, 5.0, 50.0]


@given(observations)
def test_arrays_give_what_numbers_give(observed: list[tuple[int, float]]) -> None:
    curve = PiecewiseLinear(observed)
    x = np.array([0, 1, 7, 250, 999, 5000])

    assert curve.time(x).tolist() == [curve.time(float(value)) for value in x]
    assert curve.speed(x).tolist() == [curve.speed(float(value)) for value in x]
    seconds = curve.time(x)
    assert curve.inverse(seconds).tolist() == [curve.inverse(float(value)) for value in seconds]


@given(observations)
def test_times_strictly_increase(observed: list[tuple[int, float]]) -> None:
    curve = PiecewiseLinear(observed)

    assert np.all(np.diff(curve.points[:, 0]) > 0)
    assert np.all(np.diff(curve.points[:, 1]) > 0)


@given(observations, st.floats(0.01, 3000))
def test_the_inverse_of_time_is_the_units(observed: list[tuple[int, float]], x: float) -> None:
    curve = PiecewiseLinear(observed)

    # A pooled stretch rises by 1e-9 of its time: there 1e-16 of time is 1e-7 of the stretch.
    assert curve.inverse(curve.time(x)) == pytest.approx(x, rel=1e-5)


@given(observations, st.floats(1e-6, 1000))
def test_the_inverse_is_the_most_that_a_time_allows(
    observed: list[tuple[int, float]], seconds: float
) -> None:
    curve = PiecewiseLinear(observed)

    x = curve.inverse(seconds)

    assert curve.time(x * (1 - 1e-6)) <= seconds * (1 + 1e-12)
    assert curve.time(x * (1 + 1e-6)) >= seconds * (1 - 1e-12)


def test_the_inverse_of_zero_is_zero() -> None:
    assert example().inverse(0.0) == 0.0
    assert example().inverse(-1.0) == 0.0
    assert example().inverse(np.array([-1.0, 0.0])).tolist() == [0.0, 0.0]


def test_times_that_fall_with_size_are_pooled() -> None:
    curve = PiecewiseLinear(zip((10, 20, 30, 40, 50), (1, 3, 2, 4, 3.9), strict=True))

    assert curve.points[:, 1] == pytest.approx([1, 2.5, 2.5, 3.95, 3.95], rel=1e-8)


def test_pooling_weighs_sizes_by_their_observations() -> None:
    curve = PiecewiseLinear([(10, 3.0), (10, 3.0), (10, 3.0), (20, 2.0)])

    assert curve.points[:, 1] == pytest.approx([2.75, 2.75], rel=1e-8)


@pytest.mark.parametrize("runs", [1, 2, 3, 5, 9])
@pytest.mark.parametrize("wild", [30.0])
def test_an_outlier_changes_nothing(runs: int, wild: float) -> None:
    curve = PiecewiseLinear([(64, 1.0)] * runs)

    curve.observe(64, wild)

    assert curve.time(64) == 1.0


@pytest.mark.parametrize("change", [3.0, 0.3])
@pytest.mark.parametrize("runs", [1, 2, 3, 5, 9])
def test_a_real_change_is_confirmed_after_three_runs(runs: int, change: float) -> None:
    curve = PiecewiseLinear([(64, 1.0)] * runs)

    for _ in range(3):
        curve.observe(64, change)

    assert curve.time(64) == change


def test_a_new_size_is_a_point_and_a_known_one_a_repeat() -> None:
    curve = PiecewiseLinear([(10, 1.0), (20, 2.0), (10, 1.1)])

    assert len(curve.points) == 2
    assert curve.repeats == 1


@given(st.lists(st.tuples(st.integers(1, 9), st.floats(0.1, 9)), max_size=20), st.randoms())
def test_the_order_across_sizes_does_not_matter(observed: list[tuple[int, float]], random) -> None:  # type: ignore[no-untyped-def]
    sizes = sorted({units for units, _ in observed}, key=lambda _: random.random())
    shuffled = [pair for size in sizes for pair in observed if pair[0] == size]

    assert np.array_equal(PiecewiseLinear(observed).points, PiecewiseLinear(shuffled).points)


@pytest.mark.parametrize("bad", [0, -1.0, math.nan, math.inf])
def test_impossible_observations_are_refused(bad: float) -> None:
    curve = PiecewiseLinear()

    with pytest.raises(UsageError, match="seconds"):
        curve.observe(1, bad)
    with pytest.raises(UsageError, match="units"):
        curve.observe(bad, 1.0)
    assert len(curve.points) == 0


def test_evaluation_without_observations_is_refused() -> None:
    with pytest.raises(UsageError, match="no observation"):
        PiecewiseLinear().time(1)


def test_points_are_a_copy() -> None:
    curve = example()

    curve.points[0, 1] = 99

    assert curve.time(10) == 2.0


def test_it_is_a_speed_function() -> None:
    assert isinstance(PiecewiseLinear(), SpeedFunction)
