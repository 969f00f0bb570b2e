import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.models import PiecewiseLinear


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


@given(st.lists(st.tuples(st.integers(1, 9), st.floats(0.1, 9)), max_size=20), st.randoms())
def test_the_order_across_sizes_does_not_matter(observed: list[tuple[int, float]], random) -> None:  # type: ignore[no-untyped-def]
    sizes = sorted({units for units, _ in observed}, key=lambda _: random.random())
    shuffled = [pair for size in sizes for pair in observed if pair[0] == size]

    assert np.array_equal(PiecewiseLinear(observed).points, PiecewiseLinear(shuffled).points)
