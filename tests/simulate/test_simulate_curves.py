"""Machines that are only curves: what they promise to partitioners, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.errors import UsageError
from hetsched.models import Constant
from hetsched.simulate.curves import Linear, Paging, Saturating

SIZES = st.floats(1.0, 1e5)
SATURATING = st.builds(
    Saturating, peak=st.floats(1.0, 1e4), half=st.floats(0.1, 1e3), fade=st.floats(10.0, 1e6)
)
PAGING = st.builds(
    Paging,
    SATURATING,
    capacity=st.floats(1.0, 1e4),
    factor=st.floats(1.0, 100.0),
    width=st.floats(0.01, 1.0),
    linear=st.sampled_from(["time", "speed"]),
)


@given(st.one_of(SATURATING, PAGING), st.lists(SIZES, min_size=1, max_size=5))
def test_more_units_take_longer_and_arrays_agree_with_numbers(
    machine: Saturating | Paging, sizes: list[float]
) -> None:
    sizes.sort()
    times, speeds = machine.time(np.array(sizes)), machine.speed(np.array(sizes))

    assert machine.time(0) == 0.0
    assert (np.diff(times) >= 0).all()
    np.testing.assert_allclose(times, [machine.time(x) for x in sizes], rtol=1e-12)
    np.testing.assert_allclose(speeds, np.array(sizes) / times, rtol=1e-12)


@pytest.mark.parametrize(("linear", "halfway"), [("time", 1 / 3), ("speed", 0.6)])
def test_paging_sets_in_over_its_width(linear: Linear, halfway: float) -> None:
    machine = Paging(Constant(10.0), 100.0, 5.0, 0.2, linear)

    speeds = [machine.speed(units) for units in (100.0, 110.0, 120.0, 500.0)]
    assert speeds == pytest.approx([10.0, 10.0 * halfway, 2.0, 2.0])
    assert (machine.pages(100), machine.pages(101)) == (False, True)


@pytest.mark.parametrize(
    ("capacity", "factor", "width", "message"),
    [
        (0.0, 2.0, 0.1, "capacity: 0.0"),
        (10.0, 0.5, 0.1, "factor: 0.5"),
        (10.0, 2.0, float("inf"), "width: inf"),
    ],
)
def test_paging_that_cant_be_is_refused(
    capacity: float, factor: float, width: float, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        Paging(Constant(1.0), capacity, factor, width)
