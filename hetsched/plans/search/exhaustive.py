"""Small loads: all plans there are, so that the best of them is certain. Exact up to 10 units."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from hetsched.memory import MemoryDemand
from hetsched.plans.batch_timeline import Sizes, makespans, padded
from hetsched.plans.device_plan import DevicePlan, Mode, Overlap, slot_sizes
from hetsched.plans.memory_fit import MOST_SLOTS
from hetsched.plans.phase_costs import Costs

SMALL = 10
"""Units: 512 ways to cut them into chunks."""

Chunks = tuple[int, ...]


def best_ring(
    share: int, costs: Costs, memory: MemoryDemand, overlap: Overlap
) -> tuple[float, DevicePlan] | None:
    """The ring of least time of all that fit, with 1 to 4 slots; None: no ring is needed.

    Returns
    -------
    (seconds, DevicePlan)
    """
    cuts, sizes = _cuts(share)
    usable = [i for i, chunks in enumerate(cuts) if max(chunks) <= costs.largest]
    every = np.arange(1, MOST_SLOTS + 1)
    rows = np.repeat(sizes[usable], MOST_SLOTS, axis=0)
    seconds = makespans(rows, np.tile(every, len(usable)), costs, overlap)
    for index in np.argsort(seconds, kind="stable").tolist():
        row, slots = divmod(index, MOST_SLOTS)
        chunks, slots = cuts[usable[row]], min(slots + 1, len(cuts[usable[row]]))
        if memory.fits(slot_sizes(chunks, slots)):
            return float(seconds[index]), DevicePlan((chunks,), Mode.RING, slots)
    return None


def best_installments(
    share: int, costs: Costs, memory: MemoryDemand, overlap: Overlap
) -> tuple[float, DevicePlan]:
    """The sub-distributions of least time of all that fit.

    Returns
    -------
    (seconds, DevicePlan)
    """
    alone = {s: _sub_distribution(s, costs, memory, overlap) for s in range(1, share + 1)}
    best: list[tuple[float, tuple[Chunks, ...]]] = [(0.0, ())]
    for units in range(1, share + 1):
        options = []
        for size in range(1, units + 1):
            found = alone[size]
            if found is not None:
                rest, parts = best[units - size]
                options.append((rest + found[0], (*parts, found[1])))
        best.append(min(options))
    return best[share][0], DevicePlan(best[share][1])


def _sub_distribution(
    units: int, costs: Costs, memory: MemoryDemand, overlap: Overlap
) -> tuple[float, Chunks] | None:
    cuts, sizes = _cuts(units)
    usable = [i for i, chunks in enumerate(cuts) if max(chunks) <= costs.largest]
    seconds = makespans(sizes[usable], 0, costs, overlap)
    for index in np.argsort(seconds, kind="stable").tolist():
        chunks = cuts[usable[index]]
        if memory.fits(chunks):
            return float(seconds[index]), chunks
    return None


@lru_cache(maxsize=SMALL)
def _cuts(units: int) -> tuple[list[Chunks], Sizes]:
    """All ordered ways to cut `units` into chunks, and the same as rows; fewer chunks first."""
    lists: list[list[Chunks]] = [[()]]
    for total in range(1, units + 1):
        lists.append([(a, *rest) for a in range(total, 0, -1) for rest in lists[total - a]])
    cuts = sorted(lists[units], key=len)
    return cuts, padded(cuts)
