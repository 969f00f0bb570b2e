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
    Saturating,
    peak=st.floats(1.0, 1e4),
    half=st.floats(0.1, 1e3),
    fade=st.floats(10.0, 1e6),
)
PAGING = st.builds(
    Paging,
    SATURATING,
    capacity=st.floats(1.0, 1e4),
    factor=st.floats(1.0, 100.0),
    width=st.floats(0.01, 1.0),
    linear=st.sampled_from(["time", "speed"]),
)


@given(st.one_of(SATURATING, PAGING), SIZES, SIZES)
def test_more_units_take_longer(
    machine: Saturating | Paging, size_a: float, size_b: float
) -> None:
    smaller, larger = sorted((size_a, size_b))

    assert machine.time(smaller) <= machine.time(larger)


@given(st.one_of(SATURATING, PAGING), st.lists(SIZES, min_size=1, max_size=5))
def test_arrays_and_numbers_agree(machine: Saturating | Paging, sizes: list[float]) -> None:
    times, speeds = machine.time(np.array(sizes)), machine.speed(np.array(sizes))

    np.testing.assert_allclose(times, [machine.time(x) for x in sizes], rtol=1e-12)
    np.testing.assert_allclose(speeds, np.array(sizes) / times, rtol=1e-12)


@pytest.mark.parametrize(("linear", "halfway"), [("time", 1 / 3), ("speed", 0.6)])
def test_paging_sets_in_over_its_width(linear: Linear, halfway: float) -> None:
    machine = Paging(Constant(10.0), 100.0, 5.0, 0.2, linear)

    assert machine.speed(100.0) == pytest.approx(10.0)
    assert machine.speed(110.0) == pytest.approx(10.0 * halfway)
    assert machine.speed(120.0) == pytest.approx(2.0)
    assert machine.speed(500.0) == pytest.approx(2.0)
    assert not machine.pages(100)
    assert machine.pages(101)


def test_nothing_takes_no_time() -> None:
    machine = Saturating(10.0, 5.0, 1e6)

    assert machine.time(0) == 0.0
    assert machine.speed(0) == 0.0
    assert Paging(machine, 10.0, 2.0, 0.1).time(0) == 0.0


def test_speed_is_half_the_peak_where_the_fixed_cost_is_as_long_as_the_work() -> None:
    assert Saturating(10.0, 50.0, 1e12).speed(50.0) == pytest.approx(5.0)


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_peak_cost_or_fading_that_cant_be_is_refused(place: int, value: float) -> None:
    arguments = [1.0, 1.0, 1.0]
    arguments[place] = value

    with pytest.raises(UsageError, match="must be positive and finite"):
        Saturating(*arguments)


@pytest.mark.parametrize(
    ("capacity", "factor", "width", "linear", "message"),
    [
        (0.0, 2.0, 0.1, "time", "capacity: 0.0"),
        (float("nan"), 2.0, 0.1, "time", "capacity: nan"),
        (10.0, 0.5, 0.1, "time", "factor: 0.5"),
        (10.0, 1e9, 0.1, "time", "factor: 1000000000.0"),
        (10.0, 2.0, 0.0, "time", "width: 0.0"),
        (10.0, 2.0, float("inf"), "time", "width: inf"),
        (10.0, 2.0, 0.1, "size", "linear: 'size'"),
    ],
)
def test_paging_that_cant_be_is_refused(
    capacity: float, factor: float, width: float, linear: Linear, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        Paging(Constant(1.0), capacity, factor, width, linear)
