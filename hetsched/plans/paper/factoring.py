"""Factoring by two: the first run's plan, which needs no model and measures many sizes.

Ilic & Sousa, section 4 (initialization), equation (11), recursive under a memory limit.
"""

from __future__ import annotations

from hetsched.memory import MemoryDemand
from hetsched.plans.device_plan import DevicePlan
from hetsched.plans.validation import validate_share

SubDistributions = tuple[tuple[int, ...], ...]


def factoring(share: int, memory: MemoryDemand) -> DevicePlan:
    """Cut chunks of half the remaining units; halve the whole share first until they fit.

    Parameters
    ----------
    share : int, units
    memory : MemoryDemand

    Returns
    -------
    DevicePlan
        Installments; 64 -> 32, 16, 8, 4, 2, 1, 1.

    Raises
    ------
    DataError
        Not even one unit fits.
    UsageError
        The share is negative or not an integer; `memory` has the wrong type.
    """
    share = validate_share(share, memory)
    if share == 0:
        return DevicePlan(())
    memory.max_chunk(1)  # raises if one unit doesn't fit: splitting would never end
    return DevicePlan(_split(share, memory, {}))


def _split(
    share: int, memory: MemoryDemand, splits: dict[int, SubDistributions]
) -> SubDistributions:
    """Return the sub-distributions; `splits` keeps the work O(log share): two sizes per level."""
    if share not in splits:
        chunks = _halves(share)
        if memory.fits(chunks):
            splits[share] = (chunks,)
        else:
            larger = (share + 1) // 2
            splits[share] = _split(larger, memory, splits) + _split(share - larger, memory, splits)
    return splits[share]


def _halves(share: int) -> tuple[int, ...]:
    chunks = []
    while share:
        chunks.append((share + 1) // 2)
        share -= chunks[-1]
    return tuple(chunks)
