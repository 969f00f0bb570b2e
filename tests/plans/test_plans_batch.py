"""Many plans at once cost what `timeline` says of each."""

import random

import numpy as np
import pytest
from test_plans_replay import random_model

from hetsched.plans import DevicePlan, Mode, Overlap, timeline
from hetsched.plans.makespans import makespans, padded
from hetsched.plans.phase_costs import costs_of


@pytest.mark.parametrize("overlap", list(Overlap))
def test_a_batch_of_plans_has_the_costs_of_the_timeline(overlap: Overlap) -> None:
    for seed in range(60):
        rng = random.Random(seed)
        model = random_model(rng)
        plans = [[rng.randint(1, 20) for _ in range(rng.randint(1, 12))] for _ in range(5)]
        slots = np.array([rng.randint(0, 5) for _ in plans])
        batch = makespans(padded(plans), slots, costs_of(model, 20), overlap)
        for chunks, ring_slots, seconds in zip(plans, slots.tolist(), batch.tolist(), strict=True):
            mode = Mode.RING if ring_slots else Mode.INSTALLMENTS
            plan = DevicePlan((tuple(chunks),), mode, ring_slots)
            assert seconds == pytest.approx(timeline(plan, model, overlap).makespan, rel=1e-9)
