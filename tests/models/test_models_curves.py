import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.models import Affine, Akima, PiecewiseLinear
from hetsched.models.splines import MIN_SPEED_RATIO, padded
from hetsched.partition import geometric, optimal


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


costs = st.floats(1e-6, 1.0)


def test_an_operation_costs_the_gap_and_its_units() -> None:
    curve = Affine(gap=3.0, slope=0.5)

    assert curve.time(4) == 5.0
    assert curve.time(np.array([0, 1, 4])).tolist() == [0.0, 3.5, 5.0]
    assert curve.speed(4) == 0.8
    assert curve.speed(np.array([0, 4])).tolist() == [0.0, 0.8]


@given(costs, costs, st.sets(st.integers(1, 1000), min_size=2, max_size=40))
def test_an_exact_line_is_recovered(gap: float, slope: float, sizes: set[int]) -> None:
    curve = Affine(observations=[(x, gap + slope * x) for x in sizes])

    for x in sizes:
        assert curve.time(x) == pytest.approx(gap + slope * x, rel=1e-9)


@given(costs, costs, st.sampled_from([1, 2, 4, 8, 16]), st.sampled_from([0.1, 20.0]))
def test_an_outlier_does_not_move_the_line(
    gap: float, slope: float, size: int, factor: float
) -> None:
    sizes = [1, 2, 4, 8, 16]
    times = [(gap + slope * x) * (factor if x == size else 1) for x in sizes]

    curve = Affine(observations=zip(sizes, times, strict=True))

    assert curve.gap == pytest.approx(gap, rel=1e-6, abs=1e-9)
    assert curve.slope == pytest.approx(slope, rel=1e-6, abs=1e-9)


def test_a_single_size_gives_constant_speed() -> None:
    curve = Affine(observations=[(10, 2.0)])

    assert (curve.gap, curve.slope) == (0.0, 0.2)


@pytest.mark.parametrize(
    ("sizes", "knots"),
    [
        ([25], [0, 12.5, 25, 62.5, 100]),
        ([25, 40], [0, 25, 40, 70, 100]),
        ([25, 40, 60], [0, 25, 40, 60, 100]),
        ([25, 40, 60, 80], [0, 25, 40, 60, 80, 100]),
        ([25, 40, 60, 80, 100], [0, 25, 40, 60, 80, 100]),
        ([25, 120], [0, 25, 120]),
        ([120], [0, 60, 120]),
    ],
)
def test_the_knots_are_padded_to_the_load(sizes: list[float], knots: list[float]) -> None:
    speeds = np.arange(1.0, len(sizes) + 1)

    x, y = padded(np.array(sizes, dtype=float), speeds, 100.0)

    assert x.tolist() == knots
    assert y.tolist() == np.interp(knots, sizes, speeds).tolist()


def test_an_undershooting_spline_is_kept_above_a_fraction_of_the_lowest_speed() -> None:
    speed_at = {10: 100, 20: 1, 40: 1.2, 50: 150}
    curve = Akima([(x, x / speed) for x, speed in speed_at.items()], load=100)
    x = np.linspace(0, 100, 1001)

    speeds = curve.speed(x)

    assert speeds.min() == pytest.approx(MIN_SPEED_RATIO)
    low = speeds[1:] <= MIN_SPEED_RATIO * (1 + 1e-12)
    assert curve.derivative(x[1:][low]) == pytest.approx(1 / MIN_SPEED_RATIO)


SIZES = np.array([10.0, 20, 30, 40, 50])


def speeds_of(curve: PiecewiseLinear) -> list[float]:
    units, seconds = curve.points.T
    return list(units / seconds)


def test_it_is_an_option_of_the_piecewise_linear_curve() -> None:
    speeds = [2, 3, 2.8, 5, 4]
    observed = [(x, x / speed) for x, speed in zip(SIZES, speeds, strict=True)]

    assert speeds_of(PiecewiseLinear(observed, shape="paper")) == pytest.approx([2, 3, 4, 5, 4])
    assert speeds_of(PiecewiseLinear(observed))[3] < 4.5


SAWTOOTH = [(10, 1.0), (20, 3.0), (30, 2.0), (40, 4.0), (50, 3.9)]


def repeated(times: int, noise: float = 0.0) -> PiecewiseLinear:
    rng = np.random.default_rng(1)
    curve = PiecewiseLinear(shape="dips")
    for units, seconds in SAWTOOTH:
        for _ in range(times):
            curve.observe(units, seconds * np.exp(noise * rng.standard_normal()))
    return curve


def test_dips_measured_once_are_pooled_as_noise() -> None:
    expected = PiecewiseLinear(SAWTOOTH).points
    assert np.array_equal(repeated(1).points, expected)
    assert expected[:, 1] == pytest.approx([1, 2.5, 2.5, 3.95, 3.95], rel=1e-8)


@pytest.mark.parametrize("times", [2, 5, 20])
def test_dips_that_repeat_exactly_are_kept(times: int) -> None:
    assert repeated(times).points[:, 1].tolist() == [1.0, 3.0, 2.0, 4.0, 3.9]


def test_dips_larger_than_the_noise_are_kept() -> None:
    seconds = repeated(20, noise=0.05).points[:, 1]
    assert seconds[1] > 1.3 * seconds[2]
    assert seconds[4] == pytest.approx(seconds[3], rel=1e-8)


def test_optimal_exploits_a_dip_and_geometric_still_works() -> None:
    curves = [repeated(3), repeated(3)]
    assert optimal(curves, 60).makespan == 2.0
    assert sum(geometric(curves, 60).shares) == 60
