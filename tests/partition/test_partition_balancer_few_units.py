from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hetsched.models import Constant
from hetsched.partition import Balancer, optimal

OPTIMAL = ("geometric", "smooth", "optimal", "dfpa", "imbalance-factor")


def best_found(method: str, load: int, speeds: list[float]) -> float:
    """The makespan of the split with which the Balancer ends."""
    balancer = Balancer(load, len(speeds), method)
    for _ in range(100):
        if balancer.reason:
            break
        shares = balancer.ask().shares
        balancer.tell([share / speed for share, speed in zip(shares, speeds, strict=True)])
    assert balancer.reason
    return max(s / v for s, v in zip(balancer.ask().shares, speeds, strict=True))


@given(
    st.sampled_from(OPTIMAL),
    st.integers(1, 6),
    st.lists(st.integers(1, 300).map(float), min_size=7, max_size=9),
)
def test_any_few_units_are_split_well(method: str, load: int, speeds: list[float]) -> None:
    best = optimal([Constant(speed) for speed in speeds], load).makespan

    assert best_found(method, load, speeds) <= 1.12 * best
