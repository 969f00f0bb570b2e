"""Times of shares larger than a device's memory."""

import numpy as np
import pytest
from iteration_times import timed

from hetsched.models import PiecewiseLinear
from hetsched.partition.iterations import IterationBalance
from hetsched.partition.iterations.adaptive.beyond_capacity import (
    first_excess,
    is_on_line,
    trusted_limits,
    trusted_size,
    with_capacity,
    with_lines,
)

STREAMED = np.array([(500.0, 5.0), (1000.0, 10.0), (1016.0, 11.0)])
"""0.01 s per unit up to 1000 units, then a 1/16 s."""


def test_the_memory_is_exceeded_by_few_units_first() -> None:
    assert first_excess(1000) == 1016
    assert first_excess(3) == 4
    assert trusted_size(1000, 1016) == 1128


def test_up_to_the_capacity_the_pace_is_that_of_smaller_sizes() -> None:
    points = np.array([(500.0, 5.0), (1016.0, 11.0)])

    assert with_capacity(points, 1000).tolist() == STREAMED.tolist()
    for capacity in (None, 400, 500, 1016, 2000):
        assert with_capacity(points, capacity).tolist() == points.tolist()


@pytest.mark.parametrize("units", [1000, 1005, 1016, 1050, 1128])
def test_a_line_through_few_units_gives_the_times_of_more(units: int) -> None:
    points = with_lines(STREAMED, 1000)
    curve = PiecewiseLinear([(1.0, 1.0)]).through(points[:, 0], points[:, 1])

    assert curve.time(units) == pytest.approx(10 + (units - 1000) / 16, rel=1e-2)


def test_units_beyond_the_capacity_are_never_presumed_to_be_faster() -> None:
    flat = np.array([(1000.0, 10.0), (1016.0, 10.0)])

    units, seconds = with_lines(flat, 1000)[-1]

    assert seconds / units >= 10.0 / 1016


def test_without_sizes_on_both_sides_nothing_is_added() -> None:
    for capacity in (None, 2000, 1016, 750):
        assert with_lines(STREAMED, capacity).tolist() == STREAMED.tolist()


def test_a_time_above_the_line_is_another_cliff() -> None:
    further = np.vstack([STREAMED, [1096.0, 16.0]])
    slower = np.vstack([STREAMED, [1096.0, 40.0]])

    assert is_on_line(STREAMED, 1000, 2)
    assert is_on_line(further, 1000, 3)
    assert not is_on_line(slower, 1000, 3)


def test_a_long_way_beyond_the_capacity_may_contain_a_cliff() -> None:
    assert not is_on_line(np.array([(1000.0, 10.0), (1500.0, 60.0)]), 1000, 1)
    assert not is_on_line(STREAMED, None, 2)
    assert not is_on_line(STREAMED, 2000, 2)


def test_a_share_stays_on_the_line_if_the_other_devices_have_room() -> None:
    assert trusted_limits([0, 1], [None, 90], [70, None], 100) == [70, 90]
    assert trusted_limits([0, 1], [50, None], [70, 80], 100) == [50, 80]
    assert trusted_limits([0, 1], [None, 20], [70, None], 100) == [None, 20]
    assert trusted_limits([0], [None, None], [70, None], 100) == [None, None]


def test_a_small_memory_is_no_end_if_what_exceeds_it_is_fast() -> None:
    balance = IterationBalance(5000, 2, capacities=[5000, 190])

    for k in range(1, 9):
        rows = balance.rows
        balance.tell([timed(k, rows, rows[0] / 1e5, rows[1] / 2e5)], remaining=1000)

    assert balance.rows == pytest.approx((1667, 3333), rel=0.02)


def test_one_cliff_does_not_keep_shares_beyond_another_memory_where_they_are() -> None:
    balance = IterationBalance(940, 3, kinds=["core", "core", "gpu"], capacities=[255, None, None])

    for k in range(1, 9):
        rows = balance.rows
        gpu = 1e-3 + rows[2] / 8e5 + 75 * max(0, rows[2] - 363) / 8e5
        seconds = rows[0] / 3.87e5, rows[1] / 1.51e4, gpu
        balance.tell([timed(k, rows, *seconds)])

    assert max(seconds) < 1.1 * 0.00145
