"""The rule by which cores take units of a shared tail."""

from hypothesis import given
from hypothesis import strategies as st

from hetsched.device import TailCounter, TailPart


def part(weight: float, least: int = 1, most: int = 1000) -> TailPart:
    return TailPart(first=100, units=64, weight=weight, least=least, most=most)


def test_a_core_takes_half_of_its_part_of_what_remains() -> None:
    assert [part(0.5).units_to_take(remaining) for remaining in (64, 48, 4)] == [16, 12, 1]


def test_a_chunk_has_at_least_and_at_most_so_many_units() -> None:
    assert part(0.5, least=5).units_to_take(8) == 5
    assert part(0.5, least=5).units_to_take(3) == 3
    assert part(0.5, most=7).units_to_take(64) == 7
    assert part(0.5).largest_take == 16


@given(st.lists(st.floats(0.01, 1.0), min_size=1, max_size=8), st.integers(0, 500))
def test_every_unit_is_taken_once_in_order(weights: list[float], units: int) -> None:
    counter = TailCounter(100, units)
    taken: list[int] = []
    for turn in range(units + 1):
        chunk = counter.take(part(weights[turn % len(weights)], least=1 + turn % 3))
        taken += [] if chunk is None else range(chunk[0], sum(chunk))
    assert taken == list(range(100, 100 + units))
    assert counter.take(part(0.5)) is None
