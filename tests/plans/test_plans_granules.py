from __future__ import annotations

import random

import pytest

from hetsched.memory import MemoryDemand
from hetsched.models import Affine, DeviceModel, PiecewiseLinear
from hetsched.plans import Overlap, best_plan, check, multi_installment, price
from hetsched.plans.costs import MAX_GRANULES
from hetsched.plans.slots import slotted


def device(seed: int) -> tuple[DeviceModel, Overlap]:
    """Fixed costs of 5 to 30 us, 1 ns to 0.1 us a unit."""
    rng = random.Random(seed)
    phases = [Affine(rng.uniform(5e-6, 30e-6), 10 ** rng.uniform(-9, -7)) for _ in range(3)]
    model = DeviceModel(PiecewiseLinear(), phases[0], phases[1], phases[2])
    return model, rng.choice([Overlap.SINGLE, Overlap.FULL])


def room_for(units: int) -> MemoryDemand:
    return MemoryDemand(input_bytes=8, work_bytes=0, output_bytes=8, limit=16 * units)


@pytest.mark.parametrize("seed", range(6))
def test_chunks_of_a_large_share_sum_to_it_and_fit(seed: int) -> None:
    rng = random.Random(seed)
    model, overlap = device(seed)
    share, room = rng.randint(10**5, 10**8), rng.randint(2 * MAX_GRANULES, 10**7)
    memory = slotted(room_for(room))
    for plan in (
        best_plan(share, model, memory, overlap=overlap),
        multi_installment(share, model, memory, overlap=overlap),
    ):
        assert plan.share == share
        check(plan, memory)


@pytest.mark.parametrize("seed", range(6))
def test_a_plan_of_many_chunks_is_as_good_as_one_of_few(seed: int) -> None:
    """It is searched at a shorter share; its steady middle takes as long per unit."""
    model, overlap = device(seed)
    memory = slotted(room_for(random.Random(seed).randint(40, 300) * 32))
    paces = [
        price(best_plan(share, model, memory, overlap=overlap), model, overlap) / share
        for share in (10**5, 10**6 + seed)
    ]
    assert paces[1] <= 1.001 * paces[0]
