from typing import Any

import pytest

from hetsched.partition import geometric, smooth


class Power:
    """t(x) = a x^b, numbers only and no derivative."""

    def __init__(self, a: float, b: float) -> None:
        self.a, self.b = a, b

    def time(self, x: float) -> float:
        return self.a * float(x) ** self.b

    def speed(self, x: float) -> float:
        return x / self.time(x)


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
