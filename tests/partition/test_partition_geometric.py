from types import SimpleNamespace

import pytest

from hetsched.errors import DataError
from hetsched.models import Constant, PiecewiseLinear
from hetsched.partition import geometric


def test_a_foreign_model_is_asked_for_whole_units_once_each() -> None:
    sizes: list[int] = []

    def time(x: int) -> float:
        sizes.append(x)
        return x / 3

    model = SimpleNamespace(speed=lambda x: 3.0, time=time, inverse=lambda seconds: 10**9)

    assert geometric([model, Constant(1.0)], 8).shares == (6, 2)
    assert all(type(x) is int for x in sizes)
    assert len(sizes) == len(set(sizes)) <= 8


def test_level_times_of_a_huge_load_are_split_in_order_of_devices() -> None:
    flat = SimpleNamespace(speed=lambda x: x / 2.0, time=lambda x: 2.0)

    assert geometric([Constant(1.0), flat, flat], 10**12, [None, 10**11, None]).shares == (
        2,
        10**11,
        9 * 10**11 - 2,
    )


def test_an_infinite_time_is_a_size_that_cannot_be_done() -> None:
    small = SimpleNamespace(speed=lambda x: 1.0, time=lambda x: x if x <= 4 else float("inf"))

    assert geometric([small, Constant(0.1)], 10).shares == (4, 6)
    with pytest.raises(DataError, match="no split of 9 units has a finite time"):
        geometric([small, small], 9)
    with pytest.raises(DataError, match="no split of 1000000000 units"):
        geometric([small, small], 10**9)


def test_speeds_beyond_all_measure_are_still_split() -> None:
    assert geometric([Constant(1e-300), Constant(1e-300)], 4).shares == (2, 2)
    assert geometric([Constant(1e300), Constant(3e300)], 4).shares == (1, 3)
    assert geometric([Constant(1e300), Constant(1e-300)], 4).shares == (4, 0)


def test_a_hundred_thousand_equal_devices_share_a_load_equally() -> None:
    shares = geometric([PiecewiseLinear([(10, 2.0), (40, 5.0)])] * 10**5, 10**6 + 1).shares

    assert set(shares) == {10, 11}
    assert shares[0] == 11
