"""A bound for rings: a chunk waits until the previous chunk frees its slot.

The chunks of one slot are serial, and if few chunks must fill memory many times, they can't be
small.
"""

from __future__ import annotations

import numpy as np

from hetsched.plans.bounds.bound_terms import (
    BoundInputs,
    least_over_counts,
    phase_totals,
    raised_by_paths,
    raised_by_residence,
)
from hetsched.plans.device_plan import Overlap
from hetsched.plans.memory_fit import MAX_SLOTS
from hetsched.plans.phase_costs import Floats


def ring_bound(share: int, slots: int, inputs: BoundInputs, overlap: Overlap) -> float:
    """Return the minimum seconds of rings of `slots` slots for `share` units.

    A number above `MAX_SLOTS` stands for all larger ones. So does 2 with a single engine, because
    more slots don't change the order of its copies.
    """

    def raised(counts: Floats, bounds: Floats) -> Floats:
        bounds = raised_by_paths(share, counts, inputs, overlap, bounds)
        if slots <= MAX_SLOTS:
            bounds = np.maximum(bounds, _slot_average(share, counts, slots, inputs))
            if share > inputs.room:
                bounds = np.maximum(bounds, _refills(share, counts, slots, inputs))
        return bounds

    def raised_convex(counts: Floats, bounds: Floats) -> Floats:
        bounds = raised_by_residence(share, counts, inputs, bounds)
        if slots > MAX_SLOTS:
            return bounds
        return np.maximum(bounds, _slot_average(share, counts, slots, inputs))

    first = _fewest_chunks(share, slots, inputs)
    return least_over_counts(share, first, inputs, overlap, raised, raised_convex)


def _fewest_chunks(share: int, slots: int, inputs: BoundInputs) -> int:
    """Return the minimum number of chunks, each a unit or more, with `slots` of them in memory."""
    if share <= inputs.room:
        return 2
    full_turns, rest = divmod(share, inputs.room)
    return full_turns * slots + (max(slots - (inputs.room - rest), 1) if rest else 0)


def _slot_average(share: int, counts: Floats, slots: int, inputs: BoundInputs) -> Floats:
    """Return the average over slots of all phases of a slot's chunks, plus what frames them.

    Before them the first chunks of other slots are copied in; after them the last chunks of other
    slots are copied out.
    """
    cheap_in, _, cheap_out = inputs.cheapest
    total = sum(phase_totals(share, counts, inputs))
    other_slots = np.minimum(counts, slots) - 1
    bounds: Floats = total / slots + other_slots / 2 * (cheap_in + cheap_out)
    return bounds


def _refills(share: int, counts: Floats, slots: int, inputs: BoundInputs) -> Floats:
    """Return bounds for q `slots` + r chunks, r > 0, from the units beyond q full turns.

    q full turns hold at most q times the capacity, so any r chunks outside of them hold all other
    units. That applies to r slots in each of q + 1 turns.
    """
    turns, extra_chunks = np.divmod(counts, slots)
    extra_units = np.maximum(share - turns * inputs.room, 0)
    applies = (extra_chunks > 0) & (extra_units > 0)
    bounds = np.zeros_like(counts)
    for lines in inputs.lines:
        gap, slope = sum(line.gap for line in lines), sum(line.slope for line in lines)
        turn = gap + slope * extra_units / np.maximum(extra_chunks, 1)
        bounds = np.maximum(bounds, np.where(applies, (turns + 1) * turn, 0.0))
    return bounds
