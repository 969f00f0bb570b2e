"""The geometric partitioner: golden values, limits, foreign models, what is refused."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hetsched.errors import DataError, UsageError
from hetsched.models import Affine, Constant, PiecewiseLinear
from hetsched.models.curves import Segments
from hetsched.partition import Distribution, geometric

ONE_TO_FOUR = [Constant(speed) for speed in (1, 2, 3, 4)]


def by_speed(*knots: tuple[float, float]) -> PiecewiseLinear:
    return PiecewiseLinear([(x, x / speed) for x, speed in knots])


@pytest.mark.parametrize(
    ("load", "limits", "shares"),
    [
        (100, None, (10, 20, 30, 40)),
        (101, None, (10, 20, 30, 41)),
        (7, None, (1, 1, 2, 3)),
        (100, [5, None, None, None], (5, 21, 32, 42)),
        (1, None, (0, 0, 0, 1)),
        (0, None, (0, 0, 0, 0)),
    ],
)
def test_constant_speeds(
    load: int, limits: Sequence[int | None] | None, shares: tuple[int, ...]
) -> None:
    assert geometric(ONE_TO_FOUR, load, limits).shares == shares


def test_piecewise_linear_speeds_finish_together() -> None:
    models = [by_speed((10, 5), (40, 8), (100, 2)), by_speed((20, 4), (60, 4), (120, 3))]

    assert geometric(models, 100) == Distribution((60, 40), pytest.approx(10.0), pytest.approx(0))


def test_makespan_and_spread_are_those_of_the_devices_with_a_share() -> None:
    result = geometric([Constant(1.0), Constant(3.0), Constant(1e-6)], 6)

    assert result == Distribution((1, 5, 0), 5 / 3, pytest.approx(2 / 3))


def test_one_device_takes_all_without_spread() -> None:
    assert geometric([Constant(2.0)], 10) == Distribution((10,), 5.0, 0.0)


def test_a_fixed_cost_can_be_too_much_for_a_small_load() -> None:
    models = [Affine(gap=1.0, slope=0.001), Constant(10.0)]

    assert geometric(models, 5).shares == (0, 5)
    assert geometric(models, 2000).shares == (1971, 29)


class Foreign:
    """Somebody else's model: numbers only."""

    def __init__(self, curve: Any) -> None:
        self._curve = curve

    def speed(self, x: float) -> float:
        assert not isinstance(x, np.ndarray)
        return float(self._curve.speed(x))

    def time(self, x: float) -> float:
        assert not isinstance(x, np.ndarray)
        return float(self._curve.time(x))


@pytest.mark.parametrize("load", [1, 7, 100, 12345])
def test_models_of_others_are_split_as_well_as_ours(load: int) -> None:
    curves = [by_speed((10, 5), (40, 8), (100, 2)), by_speed((20, 4.1), (60, 4)), Constant(1.7)]

    foreign = geometric([Foreign(model) for model in curves], load)
    mixed = geometric([Foreign(curves[0]), curves[1], Foreign(curves[2])], load)

    assert foreign.shares == geometric(curves, load).shares == mixed.shares


def test_a_foreign_model_is_asked_for_whole_units_once_each() -> None:
    sizes: list[int] = []

    def time(x: int) -> float:
        sizes.append(x)
        return x / 3

    model = SimpleNamespace(speed=lambda x: 3.0, time=time, inverse=lambda seconds: 10**9)

    assert geometric([model, Constant(1.0)], 8).shares == (6, 2)
    assert all(type(x) is int for x in sizes)
    assert len(sizes) == len(set(sizes)) <= 8


def test_times_that_do_not_rise_at_all_are_still_split() -> None:
    flat = SimpleNamespace(speed=lambda x: x / 2.0, time=lambda x: 2.0 if x else 0.0)

    assert sum(geometric([flat, flat, Constant(1.0)], 50).shares) == 50


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


class Jump(Constant):
    """1 s a unit; 10 s more from the fifth unit on, so that no time is that of just below 5."""

    @property
    def segments(self) -> Segments:
        second = (0.0, 0.0, 1.0, 1.0, 0.0)
        return Segments([second, (5.0, 5.0, 0.0, 1.0, 0.0), (15.0, 5.0, 1.0, 1.0, 0.0)])


def test_the_units_before_a_jump_of_the_time_are_not_handed_on_with_it() -> None:
    assert geometric([Jump(), Constant(0.5)], 9).shares == (4, 5)
    assert geometric([Jump(), Constant(0.5)], 13).shares == (6, 7)


def test_a_pooled_stretch_is_split_within_it() -> None:
    level = PiecewiseLinear([(10, 5.0), (100000, 5.0)])

    shares = geometric([level, level, Constant(1.0)], 100000).shares

    assert shares[2] == 5
    assert sum(shares) == 100000


def test_a_huge_load_needs_no_more_steps() -> None:
    result = geometric([Constant(1.0), Constant(3.0)], 10**15)

    assert result.shares == (25 * 10**13, 75 * 10**13)


def test_limits_that_exactly_hold_the_load_are_filled() -> None:
    assert geometric(ONE_TO_FOUR, 20, [5, 5, 5, 5]).shares == (5, 5, 5, 5)


def test_limits_too_small_for_the_load_say_by_how_much() -> None:
    with pytest.raises(DataError, match=r"100 units is 58 more than .* allow \(42\)"):
        geometric([Constant(1.0), Constant(1.0)], 100, [40, 2])


@pytest.mark.parametrize(
    ("models", "load", "limits", "message"),
    [
        ([], 1, None, "at least one device"),
        (ONE_TO_FOUR, -1, None, "load: -1"),
        (ONE_TO_FOUR, 1.5, None, "load: 1.5"),
        (ONE_TO_FOUR, 1, [1], "1 for 4 devices"),
        (ONE_TO_FOUR, 1, [1, -2, 3, 4], "limit: -2"),
        ([PiecewiseLinear()], 1, None, "no observation"),
    ],
)
def test_malformed_requests_are_refused(models: Any, load: Any, limits: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        geometric(models, load, limits)


def test_numpy_integers_are_whole_numbers() -> None:
    result = geometric(ONE_TO_FOUR, np.int64(100), [np.int32(5), None, None, None])

    assert result.shares == (5, 21, 32, 42)
    assert all(type(share) is int for share in result.shares)


def test_a_hundred_thousand_equal_devices_share_a_load_equally() -> None:
    shares = geometric([by_speed((10, 5), (40, 8))] * 10**5, 10**6 + 1).shares

    assert set(shares) == {10, 11}
    assert shares[0] == 11
