import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.interpolate import Akima1DInterpolator

from hetsched.models import Akima
from hetsched.models.splines import MIN_SPEED_RATIO, padded

observations = st.dictionaries(
    st.integers(1, 1000), st.floats(1e-3, 100), min_size=1, max_size=12
).map(lambda observations: sorted(observations.items()))


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


@given(observations)
def test_between_the_pads_it_is_scipys_spline(observed: list[tuple[int, float]]) -> None:
    curve, load = Akima(observed, load=2000), 2000.0
    units, seconds = np.array(observed, dtype=float).T
    knots, speeds = padded(units, units / seconds, load)
    x = np.linspace(0, load, 301)

    spline = Akima1DInterpolator(knots, speeds)(x)

    expected = np.maximum(spline, MIN_SPEED_RATIO * speeds.min())
    assert curve.speed(x) == pytest.approx(expected, rel=1e-6, abs=1e-9 * speeds.max())


def test_an_undershooting_spline_is_kept_above_a_fraction_of_the_lowest_speed() -> None:
    speed_at = {10: 100, 20: 1, 40: 1.2, 50: 150}
    curve = Akima([(x, x / speed) for x, speed in speed_at.items()], load=100)
    x = np.linspace(0, 100, 1001)

    speeds = curve.speed(x)

    assert speeds.min() == pytest.approx(MIN_SPEED_RATIO)
    low = speeds[1:] <= MIN_SPEED_RATIO * (1 + 1e-12)
    assert curve.derivative(x[1:][low]) == pytest.approx(1 / MIN_SPEED_RATIO)
