from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.errors import DataError, HetschedError, UsageError
from hetsched.models import Affine, Constant, DeviceModel, PiecewiseLinear
from hetsched.partition import Distribution, constant, geometric, optimal, round_greedy, smooth

METHODS: dict[str, Callable[..., Distribution]] = {
    "constant": constant,
    "geometric": geometric,
    "smooth": smooth,
    "optimal": optimal,
}
GOOD = [Constant(1.0), Affine(0.1, 1.0)]
SPECIAL = st.sampled_from([0.0, -0.0, -1.0, float("nan"), float("inf"), float("-inf")])
NO_NUMBERS = st.sampled_from([None, "3", "three", b"3", [], [3], (3,), {}, {3}, object(), 3j])
NO_COUNTS = (
    NO_NUMBERS
    | SPECIAL
    | st.floats()
    | st.booleans()
    | st.integers(max_value=-1)
    | st.sampled_from([np.float64(3), np.bool_(True), np.array([3, 4]), np.array(3.0)])
)


class Odd:
    """A model that says `time` and `speed`, or raises them."""

    def __init__(self, time: Any = 1.0, speed: Any = 1.0) -> None:
        self._time, self._speed = time, speed

    def time(self, x: Any) -> Any:
        return _said(self._time)

    def speed(self, x: Any) -> Any:
        return _said(self._speed)


def _said(value: Any) -> Any:
    if isinstance(value, Exception):
        raise value
    return value


FAILURES = st.sampled_from(
    [ValueError("two\nlines"), IndexError(4), ZeroDivisionError(), RuntimeError(""), KeyError("x")]
)
LIES = (
    FAILURES
    | st.floats(max_value=0)
    | st.sampled_from([float("nan"), None, "fast", [], np.zeros(3), np.empty(0), 1j, object()])
)


def refused(call: Callable[[], Any]) -> str:
    """The one sentence with which `call` is refused."""
    with pytest.raises(HetschedError) as caught:
        call()
    message = str(caught.value)
    assert message
    assert "\n" not in message
    assert len(message) < 400
    return message


@pytest.mark.parametrize("method", METHODS)
class TestPartitioner:
    @given(load=NO_COUNTS)
    def test_a_load_that_is_no_number_of_units(self, method: str, load: Any) -> None:
        assert refused(lambda: METHODS[method](GOOD, load)).startswith("load: ")

    @given(limit=NO_COUNTS.filter(lambda limit: limit is not None))
    def test_a_limit_that_is_no_number_of_units(self, method: str, limit: Any) -> None:
        assert refused(lambda: METHODS[method](GOOD, 3, [None, limit])).startswith("limit: ")

    @pytest.mark.parametrize("limits", [[], [3], [3, 3, 3], 3, 3.5, iter([3, 3])])
    def test_not_one_limit_a_device(self, method: str, limits: Any) -> None:
        assert refused(lambda: METHODS[method](GOOD, 3, limits)).startswith("limits: ")

    @given(limits=st.lists(st.integers(0, 50), min_size=2, max_size=2), excess=st.integers(1, 99))
    def test_limits_too_small_say_by_how_much(
        self, method: str, limits: list[int], excess: int
    ) -> None:
        with pytest.raises(DataError, match=f"is {excess} more than .* allow .{sum(limits)}.;"):
            METHODS[method](GOOD, sum(limits) + excess, limits)

    @pytest.mark.parametrize("models", [[], (), {}, None, 3, Constant(1.0), iter(GOOD)])
    def test_no_models(self, method: str, models: Any) -> None:
        refused(lambda: METHODS[method](models, 3))

    @given(model=NO_NUMBERS | SPECIAL)
    def test_something_that_is_no_model(self, method: str, model: Any) -> None:
        message = refused(lambda: METHODS[method]([GOOD[0], model], 9))

        assert message.startswith("model of device 1: ")

    def test_a_model_that_knows_nothing(self, method: str) -> None:
        for unknown in (PiecewiseLinear(), DeviceModel(PiecewiseLinear(), Constant(1.0))):
            with pytest.raises(UsageError, match="no observation"):
                METHODS[method]([*GOOD, unknown], 9)

    @given(invalid=LIES, load=st.integers(4, 1000))
    def test_a_time_that_cannot_be_beside_good_ones(
        self, method: str, invalid: Any, load: int
    ) -> None:
        message = refused(lambda: METHODS[method]([*GOOD, Odd(time=invalid)], load))

        assert message.startswith("model of device 2: ")

    def test_no_finite_time_at_all(self, method: str) -> None:
        with pytest.raises(DataError, match="finite"):
            METHODS[method]([Odd(time=float("inf"), speed=0.0)] * 2, 9)


@given(NO_NUMBERS | st.lists(st.floats(0, 9), max_size=5).filter(lambda parts: len(parts) != 2))
def test_rounding_wants_parts(parts: Any) -> None:
    assert refused(lambda: round_greedy(GOOD, parts, 9)).startswith("parts: ")


def test_rounding_is_no_partitioner() -> None:
    assert "below the load" in refused(lambda: round_greedy(GOOD, [0.0, 9.0], 10**9))
