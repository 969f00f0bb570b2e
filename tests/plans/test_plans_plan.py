import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.errors import DataError, UsageError
from hetsched.models import Affine, DeviceModel
from hetsched.plans import (
    DevicePlan,
    MemoryDemand,
    Mode,
    Overlap,
    check,
    factoring,
    multi_installment,
    timeline,
)


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


# ---- the paper's steps

GTX = DeviceModel(Affine(0.0, 2.0), Affine(0.0, 1.0), Affine(0.0, 0.552), Affine(0.0, 0.441))
"""The ratios that the published lists imply: copies in and out take so much of the computation."""
PUBLISHED = {
    181: ((8, 14, 18, 20, 9, 1), (8, 14, 18, 20, 21, 21, 9)),
    199: ((14, 26, 36, 16, 7, 3), (14, 26, 36, 16, 5)),
    205: ((14, 26, 36, 16, 7, 3), (14, 26, 36, 16, 7, 3, 1)),
}

OURS = {
    181: ((3, *(5,) * 14, 3, 1), (3, *(5,) * 20, 1)),
    199: ((3, *(5,) * 16, 3, 1), (3, *(5,) * 21, 3, 1)),
    205: ((3, *(5,) * 17, 3, 1), (3, *(5,) * 21, 3, 1), (1,)),
}
"""What our steps find instead: small chunks keep the kernel as busy, and end sooner."""
SECONDS = {181: (186.722, 197.844), 199: (203.84, 229.011), 205: (210.833, 234.969)}
"""Ours and the published lists by the same timeline."""


@pytest.mark.parametrize("share", PUBLISHED)
def test_plans_are_at_least_as_fast_as_the_published_ones(share: int) -> None:
    plan = multi_installment(share, GTX, memory(112), overlap=Overlap.SINGLE)
    published = timeline(DevicePlan(PUBLISHED[share]), GTX, Overlap.SINGLE).makespan
    check(plan, memory(112))
    assert plan.share == share
    assert plan.sub_distributions == OURS[share]
    seconds = timeline(plan, GTX, Overlap.SINGLE).makespan
    assert (seconds, published) == pytest.approx(SECONDS[share])


def test_a_link_bound_device_falls_back_to_factoring() -> None:
    slow = DeviceModel(Affine(0.0, 1.0), Affine(0.02, 0.011), Affine(0.01, 0.076),
                       Affine(0.01, 0.076))  # fmt: skip
    plan = multi_installment(205, slow, memory(112), overlap=Overlap.FULL)
    assert plan == factoring(205, memory(112))


def test_without_copy_engines_the_largest_chunks_go_one_by_one() -> None:
    plan = multi_installment(25, GTX, memory(10), overlap=Overlap.NONE)
    assert plan.sub_distributions == ((10,), (10,), (5,))


def random_device(rng: random.Random) -> DeviceModel:
    i, w, o = (Affine(rng.uniform(0, 30e-6), 10 ** rng.uniform(-6, -3)) for _ in range(3))
    return DeviceModel(Affine(0.0, 1.0), w, i, o)


def test_it_covers_the_share_fits_and_is_never_slower_than_factoring() -> None:
    for seed in range(60):
        rng = random.Random(seed)
        share, room = rng.randint(1, 300), rng.randint(1, 300)
        overlap, model = rng.choice(list(Overlap)), random_device(rng)
        plan = multi_installment(share, model, memory(room), overlap=overlap)
        check(plan, memory(room))
        assert (plan.share, plan.mode) == (share, Mode.INSTALLMENTS)
        halved = timeline(factoring(share, memory(room)), model, overlap).makespan
        assert timeline(plan, model, overlap).makespan <= halved
