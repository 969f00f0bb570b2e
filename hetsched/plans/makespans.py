"""Makespans of many plans at once, for searches: `recurrence` on arrays."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from hetsched.plans.device_plan import Overlap
from hetsched.plans.phase_costs import Floats, PhaseCosts
from hetsched.plans.recurrence import (
    ARRAYS,
    MAX_SLOTS_IN_USE,
    Recurrence,
    copy_in_rule,
    same_slots,
)

Sizes = NDArray[np.int64]


def padded(plans: Sequence[Sequence[int]]) -> Sizes:
    """Return chunk lists as rows, padded with zeros: empty chunks cost nothing."""
    longest = max(map(len, plans))
    return np.array([[*plan, *(0,) * (longest - len(plan))] for plan in plans], dtype=np.int64)


def makespans(
    sizes: Sizes, slots: int | NDArray[np.int64], costs: PhaseCosts, overlap: Overlap
) -> Floats:
    """Return the seconds of each plan of one sub-distribution. Fast if few `slots` differ.

    Parameters
    ----------
    sizes : (n, chunks) int64, units
        Rows with fewer chunks end with zeros.
    slots : int or (n,) int64
        Of a ring; 0: all chunks are in device memory together.
    costs : PhaseCosts
    overlap : Overlap

    Returns
    -------
    (n,) float64, seconds
    """
    ring_slots = np.broadcast_to(np.asarray(slots, dtype=np.int64), len(sizes))
    ring_slots = np.where(ring_slots == 0, sizes.shape[1], ring_slots)
    limit = MAX_SLOTS_IN_USE.get(overlap)
    if limit is None:
        return _priced(sizes, ring_slots, costs, overlap)
    ring_slots = np.minimum(ring_slots, limit)
    seconds = np.empty(len(sizes))
    for count in set(ring_slots.tolist()):
        rows = ring_slots == count
        seconds[rows] = _priced(sizes[rows], ring_slots[rows], costs, overlap)
    return seconds


def _priced(sizes: Sizes, slots: NDArray[np.int64], costs: PhaseCosts, overlap: Overlap) -> Floats:
    """Return the seconds of plans whose chunks share the link in the same way."""
    by_slots = np.argsort(slots, kind="stable")
    slots = slots[by_slots]
    by_chunk = np.ascontiguousarray(sizes[by_slots].T)
    rule = copy_in_rule(overlap, int(slots[-1]), costs.duplex)
    start: Floats = np.zeros(len(sizes))
    recurrence = Recurrence(start, ARRAYS, rule, _freed(slots))
    for phases in zip(*(phase[by_chunk] for phase in costs.phases), strict=True):
        recurrence.append(*phases)
    seconds: Floats = np.empty(len(sizes))
    seconds[by_slots] = recurrence.makespan
    return seconds


def _freed(slots: NDArray[np.int64]) -> Callable[[list[Floats], int], Floats | None]:
    """Return when the slot of each plan's next chunk is free; `slots` rises from plan to plan."""
    counts, firsts = np.unique(slots, return_index=True)
    if len(counts) == 1:
        return same_slots(int(counts[0]))
    bounds = [*firsts.tolist(), len(slots)]
    plans = [
        (count, slice(*ends))
        for count, ends in zip(counts.tolist(), itertools.pairwise(bounds), strict=True)
    ]
    fewest = plans[0][0]

    def freed(ends: list[Floats], chunk: int) -> Floats | None:
        if chunk < fewest:
            return None
        free: Floats = np.zeros(len(slots))
        for count, rows in plans:
            if chunk < count:
                break
            free[rows] = ends[chunk - count][rows]
        return free

    return freed
