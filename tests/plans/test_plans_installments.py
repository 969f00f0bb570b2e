import random

import pytest

from hetsched.models import Affine, DeviceModel
from hetsched.plans import DevicePlan, MemoryDemand, Mode, Overlap, check, timeline
from hetsched.plans.costs import costs_of
from hetsched.plans.paper import (
    SubDistributionSearch,
    factoring,
    multi_installment,
)

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


def memory(units: int) -> MemoryDemand:
    return MemoryDemand(input_bytes=1, work_bytes=0, output_bytes=0, limit=units)


@pytest.mark.parametrize("share", PUBLISHED)
def test_plans_are_at_least_as_fast_as_the_published_ones(share: int) -> None:
    plan = multi_installment(share, GTX, memory(112), overlap=Overlap.SINGLE)
    published = timeline(DevicePlan(PUBLISHED[share]), GTX, Overlap.SINGLE).makespan
    check(plan, memory(112))
    assert plan.share == share
    assert plan.sub_distributions == OURS[share]
    seconds = timeline(plan, GTX, Overlap.SINGLE).makespan
    assert (seconds, published) == pytest.approx(SECONDS[share])


def test_every_sub_distribution_overlaps_as_in_equations_4_and_5() -> None:
    costs = costs_of(GTX, 112, Overlap.SINGLE)
    for part in SubDistributionSearch(costs, Overlap.SINGLE, 112).within(112):
        sizes = part.chunks
        assert 1 * sizes[1] >= 0.441 * sizes[0] + 0.552 * sizes[2] - 1e-9
        for before, last, new in zip(sizes[1:], sizes[2:], sizes[3:], strict=False):
            assert 0.552 * new <= 1 * last - 0.441 * before + 1e-9
        assert part.seconds == pytest.approx(
            timeline(DevicePlan((sizes,)), GTX, Overlap.SINGLE).makespan
        )


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
