"""Root finding: the optimum where times rise, and what it falls back from."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.models import Affine, Akima, Constant, PiecewiseLinear
from hetsched.partition import geometric, smooth


class Power:
    """t(x) = a x^b, numbers only and no derivative."""

    def __init__(self, a: float, b: float) -> None:
        self.a, self.b = a, b

    def time(self, x: float) -> float:
        return self.a * float(x) ** self.b

    def speed(self, x: float) -> float:
        return x / self.time(x)


knots = st.lists(st.tuples(st.integers(1, 60), st.floats(1e-3, 100)), min_size=1, max_size=6)
curves = (
    st.builds(Constant, st.floats(1e-3, 100))
    | st.builds(Affine, st.floats(1e-3, 100), st.floats(0, 10))
    | knots.map(PiecewiseLinear)
)


@given(st.lists(knots, min_size=1, max_size=5), st.integers(1, 1000), st.integers(0, 300))
def test_any_akima_curves_are_split_within_the_limits(
    drawn: list[list[tuple[int, float]]], load: int, limit: int
) -> None:
    models = [Akima(observed, load=load) for observed in drawn]

    result = smooth(models, load, [None] + [limit] * (len(models) - 1))

    assert sum(result.shares) == load
    assert all(0 <= share <= limit for share in result.shares[1:])


def test_smooth_curves_of_many_devices_end_together() -> None:
    rng, x = np.random.default_rng(2), np.linspace(50, 2000, 12)
    falls = 1 - 0.3 * x / 2000
    models = [
        Akima(zip(x, x / (speed * falls), strict=True), load=10000)
        for speed in rng.uniform(50, 500, 16)
    ]

    assert smooth(models, 10000).spread < 0.02


class Flat(Power):
    """The same time for any size."""

    def time(self, x: float) -> float:
        return self.a


class Fast(Power):
    """A slope that lies, so that steps are too small to get anywhere."""

    def derivative(self, x: float) -> float:
        return 1e12


@pytest.mark.parametrize("models", [[Flat(1.0, 1.0), Flat(2.0, 1.0)], [Fast(1, 1), Fast(2, 1)]])
def test_without_a_root_the_split_is_that_of_geometric_and_says_why(models: Any) -> None:
    result = smooth(models, 60)

    assert result.shares == geometric(models, 60).shares
    assert result.reason.startswith("smooth: ")
    assert result.reason.endswith("geometric's split instead")
