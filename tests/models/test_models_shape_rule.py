import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.models import PiecewiseLinear
from hetsched.models.fits import shape_fit

knots = st.dictionaries(st.integers(1, 1000), st.floats(0.1, 100), min_size=1, max_size=12).map(
    lambda knots: np.array(sorted(knots.items()), dtype=float).T
)
SIZES = np.array([10.0, 20, 30, 40, 50])


def speeds_of(curve: PiecewiseLinear) -> list[float]:
    units, seconds = curve.points.T
    return list(units / seconds)


@given(knots)
def test_times_strictly_increase_and_conforming_knots_stay(knots: np.ndarray) -> None:
    units, speeds = knots

    fitted = shape_fit(units, units / speeds)

    assert np.all(np.diff(fitted) > 0)
    assert shape_fit(units, fitted) == pytest.approx(fitted, rel=1e-6)


def test_it_is_an_option_of_the_piecewise_linear_curve() -> None:
    speeds = [2, 3, 2.8, 5, 4]
    observed = [(x, x / speed) for x, speed in zip(SIZES, speeds, strict=True)]

    assert speeds_of(PiecewiseLinear(observed, shape="paper")) == pytest.approx([2, 3, 4, 5, 4])
    assert speeds_of(PiecewiseLinear(observed))[3] < 4.5
