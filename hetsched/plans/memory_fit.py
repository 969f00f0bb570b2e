"""Capacity of a device's memory: chunks, sub-distributions, and patterns for odd sizes.

Ilic & Sousa, equation (2): the chunks that are in device memory together need at most b_i.
"""

from __future__ import annotations

import numpy as np

from hetsched.memory import MemoryDemand
from hetsched.plans.bounds.sampled_costs import sample_sizes

MAX_SLOTS = 4
"""Maximum slots of a ring in searches: a chunk in each phase, and one waiting."""
SIZE_STEP = 1 / 128
"""Relative step of large sizes at which bytes are evaluated if they are functions."""
SAMPLED_SIZES = 32
"""Sizes at which bytes per unit are compared if bytes grow in proportion."""


def largest_sub_distribution(share: int, memory: MemoryDemand) -> int:
    """Return an upper bound on the units that fit together, at most `share`.

    Exact if bytes grow in proportion; otherwise based on the minimum bytes per unit. Bytes of
    large sizes that aren't evaluated are at least those of the next smaller one.

    Raises
    ------
    DataError
        Not even one unit fits.
    """
    largest = memory.max_chunk(share)
    if memory.limit is None or largest == share:
        return share
    sizes = np.unique(np.geomspace(1, largest, SAMPLED_SIZES).round().astype(int)).tolist()
    up_to = sizes
    if any(map(callable, (memory.input_bytes, memory.work_bytes, memory.output_bytes))):
        sizes = sample_sizes(largest, SIZE_STEP).astype(int).tolist()
        up_to = [size - 1 for size in sizes[1:]] + [largest]
    shared = memory.work == "max"
    bytes_per_unit = min(
        (memory.data(size) + (0 if shared else memory.workspace(size))) / last
        for size, last in zip(sizes, up_to, strict=True)
    )
    free = memory.limit - memory.resident_bytes - (memory.workspace(1) if shared else 0)
    if not bytes_per_unit:
        return share
    return min(share, max(largest, int(free / bytes_per_unit + 1e-9)))


def patterns(share: int, memory: MemoryDemand) -> dict[int, tuple[int, ...]]:
    """Return slots -> the largest chunks, units, that fit together, as equal as possible.

    A ring that repeats a pattern fits, because any `slots` neighbours are the same chunks. One
    slot is always present, others if as many units fit.

    Raises
    ------
    DataError
        Not even one unit fits.
    """
    largest = memory.max_chunk(share)
    pattern_of: dict[int, tuple[int, ...]] = {1: (largest,)}
    for slots in range(2, MAX_SLOTS + 1):
        if not memory.fits([1] * slots):
            break
        sizes = [memory.max_chunk(largest, slots)] * slots
        for index in range(slots - 1):
            larger = [*sizes[:index], sizes[index] + 1, *sizes[index + 1 :]]
            if sizes[index] < largest and memory.fits(larger):
                sizes = larger
        pattern_of[slots] = tuple(sizes)
    return pattern_of
