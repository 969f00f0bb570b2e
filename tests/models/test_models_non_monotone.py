import numpy as np
import pytest

from hetsched.models import PiecewiseLinear
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


def test_optimal_exploits_a_dip_and_geometric_still_works() -> None:
    curves = [repeated(3), repeated(3)]
    assert optimal(curves, 60).makespan == 2.0
    assert sum(geometric(curves, 60).shares) == 60
