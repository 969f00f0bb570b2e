import heapq
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from partition_cases import monotone

from hetsched.models import Constant
from hetsched.partition import round_greedy
from hetsched.partition.distribution import predict

MODELS = [Constant(speed) for speed in (1, 2, 4)]


def greedy(models: list[Any], shares: list[int], load: int, max_shares: list[int]) -> list[int]:
    """One unit after the other, to the device that ends first with it."""
    shares = list(shares)
    ends = [(model.time(x + 1), i) for i, (model, x) in enumerate(zip(models, shares, strict=True))
            if x < max_shares[i]]  # fmt: skip
    heapq.heapify(ends)
    while sum(shares) < load:
        i = heapq.heappop(ends)[1]
        shares[i] += 1
        if shares[i] < max_shares[i]:
            heapq.heappush(ends, (models[i].time(shares[i] + 1), i))
    return shares


def test_parts_that_are_too_much_are_taken_from_those_who_end_last() -> None:
    assert round_greedy(MODELS, [3.0, 4.0, 8.0], 14, [99, 99, 99]) == [2, 4, 8]
    assert round_greedy(MODELS, [20.0, 20.0, 20.0], 14) == [2, 4, 8]


@given(st.integers(0, 10**6), st.data())
def test_whatever_is_left_is_handed_out_like_greedy(seed: int, data: st.DataObject) -> None:
    case = monotone(seed)
    max_shares = [case.load if limit is None else limit for limit in case.limits or [None] * 6]
    parts = greedy(
        case.models, [0] * len(case.models), data.draw(st.integers(0, case.load)), max_shares
    )

    rounded = round_greedy(case.models, parts, case.load, case.limits)

    expected = greedy(case.models, parts, case.load, max_shares)
    assert all(x >= part for x, part in zip(rounded, parts, strict=True))
    assert predict(case.models, rounded).makespan == predict(case.models, expected).makespan
