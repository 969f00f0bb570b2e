"""Factoring by two: the first run's plan, which needs no model and yields points at many sizes.

Ilic & Sousa, section 4 (initialization), equation (11), recursive under a memory limit.
"""

from __future__ import annotations

from hetsched.memory import MemoryDemand
from hetsched.plans.device_plan import DevicePlan
from hetsched.plans.validation import load

SubDistributions = tuple[tuple[int, ...], ...]


def factoring(share: int, memory: MemoryDemand) -> DevicePlan:
    """Chunks of half of what is left, again and again; halved as a whole until they fit.

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
        The share is negative or no whole number; `memory` isn't one.
    """
    share = load(share, memory)
    if share == 0:
        return DevicePlan(())
    memory.most(1)  # raises where one unit doesn't fit, or splitting would never end
    return DevicePlan(_split(share, memory, {}))


def _split(
    share: int, memory: MemoryDemand, known: dict[int, SubDistributions]
) -> SubDistributions:
    """`known` keeps the work O(log share): each level of halving has only two sizes."""
    if share not in known:
        chunks = _halves(share)
        if memory.fits(chunks):
            known[share] = (chunks,)
        else:
            larger = (share + 1) // 2
            known[share] = _split(larger, memory, known) + _split(share - larger, memory, known)
    return known[share]


def _halves(share: int) -> tuple[int, ...]:
    chunks = []
    while share:
        chunks.append((share + 1) // 2)
        share -= chunks[-1]
    return tuple(chunks)
