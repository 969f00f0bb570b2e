"""What fits into a device's memory: chunks, sub-distributions, and patterns for odd sizes.

Ilic & Sousa, equation (2): the chunks that are in device memory together need at most b_i.
"""

from __future__ import annotations

import numpy as np

from hetsched.memory import MemoryDemand

MOST_SLOTS = 4
"""Slots of a ring at most: a chunk in each phase, and one whose buffers wait for the next."""


def largest_sub_distribution(share: int, memory: MemoryDemand) -> int:
    """No chunks that fit together have more units than this, at most `share`.

    Exact where bytes grow in proportion; else from the least bytes that a unit of a chunk takes.

    Raises
    ------
    DataError
        Not even one unit fits.
    """
    largest = memory.most(share)
    if memory.limit is None or largest == share:
        return share
    sizes = np.unique(np.geomspace(1, largest, 32).round().astype(int)).tolist()
    if any(callable(one) for one in (memory.input_bytes, memory.work_bytes, memory.output_bytes)):
        sizes = range(1, largest + 1)
    shared = memory.work == "max"
    least = min(
        (memory.data(size) + (0 if shared else memory.workspace(size))) / size for size in sizes
    )
    free = memory.limit - memory.resident_bytes - (memory.workspace(1) if shared else 0)
    return min(share, max(largest, int(free / least + 1e-9))) if least else share


def patterns(share: int, memory: MemoryDemand) -> dict[int, tuple[int, ...]]:
    """Slots of a ring -> the largest chunks, units, that fit together, as equal as possible.

    A ring that repeats them in turn fits: any so many neighbours are the same chunks. One slot is
    always there; more where so many units fit.

    Raises
    ------
    DataError
        Not even one unit fits.
    """
    largest = memory.most(share)
    found: dict[int, tuple[int, ...]] = {1: (largest,)}
    for slots in range(2, MOST_SLOTS + 1):
        if not memory.fits([1] * slots):
            break
        sizes = [memory.most(largest, slots)] * slots
        for index in range(slots - 1):
            larger = [*sizes[:index], sizes[index] + 1, *sizes[index + 1 :]]
            if sizes[index] < largest and memory.fits(larger):
                sizes = larger
        found[slots] = tuple(sizes)
    return found
