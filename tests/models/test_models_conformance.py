from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.errors import HetschedError
from hetsched.models import (
    Affine,
    Akima,
    Constant,
    DeviceModel,
    PhaseCurve,
    PiecewiseLinear,
    SpeedFunction,
)
from hetsched.models.windows import Windows

Maker = Callable[[], Any]
CURVES: dict[str, Maker] = {
    "constant": Constant,
    "rising": PiecewiseLinear,
    "paper": lambda: PiecewiseLinear(shape="paper"),
    "dips": lambda: PiecewiseLinear(shape="dips"),
    "corrected": lambda: PiecewiseLinear(Windows(corrects=True)),
    "akima": Akima,
    "affine": Affine,
    "phase": PhaseCurve,
}
RISING = set(CURVES) - {"akima", "dips", "phase"}
BAD_NUMBERS = [0, 0.0, -1, -0.5, math.nan, math.inf, -math.inf, True, "1", None, 1j, [1], b"1"]
BAD_LOADS = [-1, -1e-300, math.nan, math.inf, True, "1", None, 1j, [1.0], (), {}]
observations = st.lists(
    st.tuples(st.integers(1, 1000), st.floats(1e-3, 10)), min_size=1, max_size=12
)


@pytest.fixture(params=CURVES)
def make(request: pytest.FixtureRequest) -> Maker:
    return CURVES[request.param]


@pytest.fixture
def curve(make: Maker) -> Any:
    result = make()
    for units, seconds in ((10, 1.0), (40, 3.5), (40, 3.6), (100, 9.0)):
        result.observe(units, seconds)
    return result


def refused(error: pytest.ExceptionInfo[HetschedError]) -> bool:
    message = str(error.value)
    return "\n" not in message and 10 < len(message) < 200


class TestEveryCurve:
    def test_it_is_a_speed_function(self, curve: Any) -> None:
        assert isinstance(curve, SpeedFunction)

    def test_time_is_load_over_speed(self, curve: Any) -> None:
        for x in (1, 10, 25.5, 40, 99, 250):
            assert curve.time(x) == pytest.approx(x / curve.speed(x))

    def test_nothing_takes_no_time(self, curve: Any) -> None:
        assert curve.time(0) == 0.0
        assert math.isfinite(curve.speed(0))

    def test_arrays_of_any_shape_give_what_numbers_give(self, curve: Any) -> None:
        x = np.array([[0, 1, 25], [40, 99, 250]])
        for ask in (curve.time, curve.speed):
            assert ask(x).shape == x.shape
            assert ask(x).dtype == np.float64
            assert ask(x).ravel().tolist() == [ask(units) for units in x.ravel().tolist()]
            assert ask(np.array([])).shape == (0,)
            assert ask(np.float32(25)) == ask(Fraction(25)) == ask(25)

    def test_a_number_gives_a_float(self, curve: Any) -> None:
        assert {type(curve.time(25)), type(curve.speed(25)), type(curve.time(0))} == {float}

    def test_points_are_units_and_seconds_by_units(self, curve: Any, make: Maker) -> None:
        assert curve.points.shape[1] == 2
        assert np.all(np.diff(curve.points[:, 0]) > 0)
        assert make().points.shape == (0, 2)
        curve.points[:] = 0
        assert np.all(curve.points > 0)

    def test_it_follows_what_it_is_told(self, curve: Any) -> None:
        for _ in range(9):
            for units, seconds in ((10, 10.0), (40, 36.0), (100, 90.0)):
                curve.observe(units, seconds)
        assert curve.time(100) == pytest.approx(90.0, rel=0.02)

    def test_before_it_knows_anything_it_says_so(self, make: Maker) -> None:
        for ask in (make().time, make().speed):
            with pytest.raises(HetschedError, match="no observation") as error:
                ask(1)
            assert refused(error)

    @pytest.mark.parametrize("bad", BAD_NUMBERS)
    def test_impossible_observations_are_refused_and_not_learnt(
        self, curve: Any, bad: Any
    ) -> None:
        before = curve.points
        for units, seconds in ((bad, 1.0), (1.0, bad)):
            with pytest.raises(HetschedError) as error:
                curve.observe(units, seconds)
            assert refused(error)
        assert np.array_equal(curve.points, before)

    @pytest.mark.parametrize("bad", BAD_LOADS)
    def test_impossible_loads_are_refused(self, curve: Any, bad: Any) -> None:
        for ask in (curve.time, curve.speed, curve.derivative):
            with pytest.raises(HetschedError, match="load") as error:
                ask(bad)
            assert refused(error)

    @pytest.mark.parametrize("bad", [[-1.0], [1.0, math.nan], [math.inf], [True], ["1"], [1j]])
    def test_impossible_arrays_are_refused(self, curve: Any, bad: list[Any]) -> None:
        for ask in (curve.time, curve.speed, curve.derivative):
            with pytest.raises(HetschedError, match="load"):
                ask(np.array(bad))

    def test_the_derivative_is_that_of_time(self, curve: Any) -> None:
        for x in (5.0, 25.0, 70.0, 300.0):
            slope = (curve.time(x + 1e-4) - curve.time(x - 1e-4)) / 2e-4
            assert curve.derivative(x) == pytest.approx(slope, rel=1e-3)


@pytest.mark.parametrize("name", sorted(RISING))
@given(observed=observations)
def test_times_rise_with_the_load(name: str, observed: list[tuple[int, float]]) -> None:
    curve = CURVES[name]()
    for units, seconds in observed:
        curve.observe(units, seconds)
    times = curve.time(np.linspace(0, 2000, 200))
    assert np.all(np.diff(times) >= -1e-9 * times[1:])
    assert np.all(np.isfinite(times))


@pytest.mark.parametrize(
    "make_it",
    [
        lambda: Constant(-1.0),
        lambda: Constant(math.nan),
        lambda: Constant("1"),  # type: ignore[arg-type]
        lambda: Affine(-1.0, 1.0),
        lambda: Affine(0.0, math.inf),
        lambda: Affine(True, 1.0),
        lambda: Akima(load=0),
        lambda: Akima(load=math.nan),
        lambda: Akima(load="1"),  # type: ignore[arg-type]
        lambda: PiecewiseLinear(shape="square"),  # type: ignore[arg-type]
        lambda: PiecewiseLinear([(1, 2, 3)]),  # type: ignore[list-item]
        lambda: PiecewiseLinear([1.0, 2.0]),  # type: ignore[list-item]
        lambda: PiecewiseLinear(7),  # type: ignore[arg-type]
        lambda: PiecewiseLinear([("a", 1.0)]),  # type: ignore[list-item]
        lambda: DeviceModel(Constant(1.0), Constant(1.0), duplex=(0.5,)),  # type: ignore[arg-type]
        lambda: DeviceModel(Constant(1.0), Constant(1.0), duplex=(0.5, math.nan)),
        lambda: DeviceModel(Constant(1.0), Constant(1.0), duplex=("a", 1.0)),  # type: ignore[arg-type]
        lambda: DeviceModel(Constant(1.0), Constant(1.0), call_seconds=-1.0),
        lambda: DeviceModel(Constant(1.0), Constant(1.0), call_seconds="x"),  # type: ignore[arg-type]
        lambda: DeviceModel(Constant(1.0), Constant(1.0), duplex=None),  # type: ignore[arg-type]
        lambda: DeviceModel(1.0, Constant(1.0)),  # type: ignore[arg-type]
        lambda: DeviceModel(Constant(1.0), None),  # type: ignore[arg-type]
    ],
)
def test_impossible_arguments_are_refused(make_it: Callable[[], object]) -> None:
    with pytest.raises(HetschedError) as error:
        make_it()
    assert refused(error)
