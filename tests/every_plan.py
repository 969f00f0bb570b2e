"""The best of all plans for a small load: enumerated, judged by `timeline` one by one."""

from __future__ import annotations

import random
from collections.abc import Iterator

from hetsched.memory import MemoryDemand
from hetsched.models import Affine, DeviceModel, PiecewiseLinear
from hetsched.plans import DevicePlan, Mode, Overlap, timeline

MOST_SLOTS = 4


def cuts(units: int) -> Iterator[tuple[int, ...]]:
    """All ordered ways to cut `units` into chunks."""
    if units == 0:
        yield ()
    for first in range(1, units + 1):
        for rest in cuts(units - first):
            yield (first, *rest)


def least_seconds(share: int, model: DeviceModel, memory: MemoryDemand, overlap: Overlap) -> float:
    """What the fastest of all rings and installments that fit takes."""
    rings = (
        timeline(DevicePlan((chunks,), Mode.RING, slots), model, overlap).makespan
        for chunks in cuts(share)
        for slots in range(1, min(MOST_SLOTS, len(chunks)) + 1)
        if all(
            memory.fits(chunks[first : first + slots]) for first in range(len(chunks) - slots + 1)
        )
    )
    return min(*rings, least_installments(share, model, memory, overlap))


def least_installments(
    share: int, model: DeviceModel, memory: MemoryDemand, overlap: Overlap
) -> float:
    """Sub-distributions follow each other: the best sum of the best of each size."""
    least = [0.0]
    alone = [float("inf")]
    for units in range(1, share + 1):
        fitting = (DevicePlan((chunks,)) for chunks in cuts(units) if memory.fits(chunks))
        times = (timeline(plan, model, overlap).makespan for plan in fitting)
        alone.append(min(times, default=float("inf")))
        least.append(min(alone[size] + least[units - size] for size in range(1, units + 1)))
    return least[share]


def random_case(seed: int, most: int) -> tuple[int, DeviceModel, MemoryDemand, Overlap]:
    """A load of up to `most` units for a device; affine and tabulated curves, tight memories."""
    rng = random.Random(seed)
    share = rng.randint(1, most)
    duplex = (rng.uniform(0.4, 1), rng.uniform(0.4, 1)) if rng.random() < 0.2 else (1.0, 1.0)
    compute, h2d, d2h = (_curve(rng, most) for _ in range(3))
    model = DeviceModel(Affine(0.0, 1.0), compute, h2d, d2h, duplex=duplex)
    overlap = rng.choice([Overlap.SINGLE, Overlap.FULL, Overlap.FULL, Overlap.NONE])
    return share, model, _memory(rng, share), overlap


def _curve(rng: random.Random, most: int) -> Affine | PiecewiseLinear:
    gap = rng.choice([0.0, rng.uniform(0, 0.1), rng.uniform(0, 1)])
    slope = 10 ** rng.uniform(-1.5, 0)
    if rng.random() < 0.6:
        return Affine(gap, slope)
    times = [gap]
    for _ in range(most):
        times.append(times[-1] + slope * rng.choice([0.3, 1.0, 1.0, 3.0]))
    return PiecewiseLinear(enumerate(times[1:], 1))


def _memory(rng: random.Random, share: int) -> MemoryDemand:
    room = rng.randint(1, share + 3)
    kind = rng.random()
    if kind < 0.6:
        return MemoryDemand(input_bytes=1, work_bytes=0, output_bytes=0, limit=room)
    if kind < 0.8:
        return MemoryDemand(
            input_bytes=10, work_bytes=rng.randint(1, 10), output_bytes=10,
            limit=30 * room, work="max",
        )  # fmt: skip
    return MemoryDemand(
        input_bytes=lambda units: -(-10 * units // 16) * 16,
        work_bytes=0,
        output_bytes=0,
        limit=16 * room,
    )
