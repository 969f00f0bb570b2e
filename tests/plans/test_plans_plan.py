import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.errors import DataError, UsageError
from hetsched.plans import DevicePlan, MemoryDemand, Mode, Overlap, check
from hetsched.plans.paper import factoring


def memory(limit: int | None) -> MemoryDemand:
    return MemoryDemand(input_bytes=1, work_bytes=0, output_bytes=0, limit=limit)


def ring(*chunks: int, slots: int) -> DevicePlan:
    return DevicePlan((chunks,), Mode.RING, slots)


def test_a_ring_has_one_sub_distribution_and_slots() -> None:
    with pytest.raises(UsageError, match="one sub-distribution"):
        DevicePlan(((1,), (1,)), Mode.RING, 2)
    with pytest.raises(UsageError, match="slots"):
        DevicePlan(((1,),), Mode.RING)
    with pytest.raises(UsageError, match="slots"):
        DevicePlan(((1,),), slots=2)


def test_copy_engines_beyond_two_change_nothing() -> None:
    assert [Overlap.of(n) for n in range(4)] == [
        Overlap.NONE,
        Overlap.SINGLE,
        Overlap.FULL,
        Overlap.FULL,
    ]


def test_a_sub_distribution_has_to_fit_as_a_whole() -> None:
    check(DevicePlan(((4, 4), (8,))), memory(8))
    with pytest.raises(DataError, match=r"4, 5 units need 9 B .* limit is 8 B"):
        check(DevicePlan(((4, 4), (4, 5))), memory(8))


def test_of_a_ring_only_as_many_neighbours_as_slots_have_to_fit() -> None:
    check(ring(5, 3, 5, 3, slots=2), memory(8))
    with pytest.raises(DataError, match="5, 4 units"):
        check(ring(3, 5, 4, slots=2), memory(8))


@pytest.mark.parametrize(
    ("share", "chunks"),
    [
        (64, (32, 16, 8, 4, 2, 1, 1)),
        (61, (31, 15, 8, 4, 2, 1)),
        (100, (50, 25, 13, 6, 3, 2, 1)),
        (1, (1,)),
    ],
)
def test_factoring_halves_what_is_left(share: int, chunks: tuple[int, ...]) -> None:
    assert factoring(share, memory(None)).sub_distributions == (chunks,)


def test_factoring_halves_the_whole_until_it_fits() -> None:
    assert factoring(300, memory(112)).sub_distributions == ((38, 19, 9, 5, 2, 1, 1),) * 4


def test_factoring_fails_if_not_even_one_unit_fits() -> None:
    with pytest.raises(DataError, match="one unit needs 1 bytes"):
        factoring(5, memory(0))


@given(st.integers(1, 5000), st.integers(1, 600))
def test_factoring_covers_the_share_and_fits(share: int, limit: int) -> None:
    plan = factoring(share, memory(limit))
    check(plan, memory(limit))
    assert plan.share == share
