import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.models import Affine

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
