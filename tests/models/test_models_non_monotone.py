"""Dips: kept where repeats confirm them, pooled where they may be noise."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.models import Knot, PiecewiseLinear
from hetsched.models.fits import pool_except_dips
from hetsched.partition import geometric, optimal

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


def test_a_long_fall_is_kept_even_if_each_step_is_within_the_noise() -> None:
    knots = [Knot(10.0 + i, 3.0 - 0.2 * i, 9, 2.75 - 0.2 * i, 3.25 - 0.2 * i) for i in range(8)]
    fitted = pool_except_dips(knots)
    assert fitted[0] > 1.3 * fitted[-1]
    assert all(knot.low <= now <= knot.high for knot, now in zip(knots, fitted, strict=True))


@given(
    st.lists(st.tuples(st.floats(0.1, 10), st.floats(0, 1), st.floats(0, 1)), min_size=1),
)
def test_no_time_leaves_its_interval_unless_it_rises(
    evidence: list[tuple[float, float, float]],
) -> None:
    knots = [
        Knot(float(i + 1), t, 9, t * (1 - low), t * (1 + high))
        for i, (t, low, high) in enumerate(evidence)
    ]
    for knot, now in zip(knots, pool_except_dips(knots), strict=True):
        assert knot.low * (1 - 1e-5) <= now <= knot.high * (1 + 1e-5)


@given(st.floats(0.01, 10))
def test_the_inverse_is_the_largest_load_in_time(seconds: float) -> None:
    curve = repeated(3)
    units = curve.inverse(seconds)
    sizes = np.linspace(1, 150, 3000)
    in_time = sizes[curve.time(sizes) <= seconds]
    assert units >= (in_time[-1] if len(in_time) else 0.0) - 1e-9
    assert curve.time(units) <= seconds * (1 + 1e-9)


def test_optimal_exploits_a_dip_and_geometric_still_works() -> None:
    curves = [repeated(3), repeated(3)]
    assert optimal(curves, 60).makespan == 2.0
    assert sum(geometric(curves, 60).shares) == 60
