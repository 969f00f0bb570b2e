"""Exhaustive search for small shares: exact up to 10 units."""

from __future__ import annotations

import numpy as np

from hetsched.memory import MemoryDemand
from hetsched.plans.device_plan import DevicePlan, Mode, Overlap, slot_sizes
from hetsched.plans.makespans import Sizes, makespans
from hetsched.plans.memory_fit import MAX_SLOTS
from hetsched.plans.phase_costs import Floats, PhaseCosts

MAX_EXHAUSTIVE_SHARE = 10
"""Units; there are 512 ways to cut 10 units into chunks."""

Chunks = tuple[int, ...]


def best_ring(
    share: int, costs: PhaseCosts, memory: MemoryDemand, overlap: Overlap
) -> DevicePlan | None:
    """Return the fastest ring of 1 to 4 slots that fits; None if none does."""
    cuts = _usable_cuts(share, costs)
    rows = np.repeat(cuts, MAX_SLOTS, axis=0)
    slots = np.tile(np.arange(1, MAX_SLOTS + 1), len(cuts))
    seconds = makespans(rows, slots, costs, overlap)
    for index in _fastest_first(seconds):
        chunks = _chunks(cuts[index // MAX_SLOTS])
        used = min(int(slots[index]), len(chunks))
        if memory.fits(slot_sizes(chunks, used)):
            return DevicePlan((chunks,), Mode.RING, used)
    return None


def best_installments(
    share: int, costs: PhaseCosts, memory: MemoryDemand, overlap: Overlap
) -> tuple[float, DevicePlan]:
    """Return the fastest sub-distributions that fit.

    Returns
    -------
    (seconds, DevicePlan)
    """
    single = {s: _best_sub_distribution(s, costs, memory, overlap) for s in range(1, share + 1)}
    best: list[tuple[float, tuple[Chunks, ...]]] = [(0.0, ())]
    for units in range(1, share + 1):
        options = []
        for size in range(1, units + 1):
            last = single[size]
            if last is not None:
                seconds, sub_distributions = best[units - size]
                options.append((seconds + last[0], (*sub_distributions, last[1])))
        best.append(min(options))
    return best[share][0], DevicePlan(best[share][1])


def _best_sub_distribution(
    units: int, costs: PhaseCosts, memory: MemoryDemand, overlap: Overlap
) -> tuple[float, Chunks] | None:
    cuts = _usable_cuts(units, costs)
    seconds = makespans(cuts, 0, costs, overlap)
    for index in _fastest_first(seconds):
        chunks = _chunks(cuts[index])
        if memory.fits(chunks):
            return float(seconds[index]), chunks
    return None


def _fastest_first(seconds: Floats) -> list[int]:
    order: list[int] = np.argsort(seconds, kind="stable").tolist()
    return order


def _usable_cuts(units: int, costs: PhaseCosts) -> Sizes:
    """Return all ordered ways to cut `units` into chunks with known costs, fewest chunks first.

    Bit k of a row's number, from the left, is a cut after unit k; so among rows of equally many
    chunks those with larger first chunks come first.
    """
    numbers = np.arange(1 << (units - 1))[:, None]
    has_cut = (numbers >> np.arange(units - 2, -1, -1)) & 1
    chunk_of_unit = np.pad(np.cumsum(has_cut, axis=1), ((0, 0), (1, 0)))
    sizes: Sizes = (chunk_of_unit[:, :, None] == np.arange(units)).sum(axis=1)
    sizes = sizes[np.argsort(chunk_of_unit[:, -1], kind="stable")]
    usable: Sizes = sizes[sizes.max(axis=1) <= costs.largest]
    return usable


def _chunks(row: Sizes) -> Chunks:
    return tuple(size for size in row.tolist() if size)
