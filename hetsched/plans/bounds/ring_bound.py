"""A bound for rings: a chunk waits for the slot of the chunk that had it before.

The chunks of one slot are in series, and so few chunks that memory must be filled again and again
can't be small ones.
"""

from __future__ import annotations

import numpy as np

from hetsched.plans.bounds.bound_terms import Device, least_of, smooth, totals_of
from hetsched.plans.device_plan import Overlap
from hetsched.plans.memory_fit import MOST_SLOTS
from hetsched.plans.phase_costs import Floats


def ring_bound(share: int, slots: int, device: Device, overlap: Overlap) -> float:
    """Seconds that rings of `slots` slots for `share` units take at least.

    With more than are searched: of as many or more. 2 with a single engine: of two or more, whose
    copies have an order as if there were two slots.
    """

    def raised(counts: Floats, found: Floats) -> Floats:
        found = smooth(share, counts, device, overlap, found)
        if slots <= MOST_SLOTS:
            found = np.maximum(found, _turns(share, counts, slots, device))
            if share > device.room:
                found = np.maximum(found, _refilled(share, counts, slots, device))
        return found

    return least_of(share, _fewest(share, slots, device), device, overlap, raised)


def _fewest(share: int, slots: int, device: Device) -> int:
    """Chunks at least, if every `slots` neighbours fit together and every chunk has a unit."""
    if share <= device.room:
        return 2
    whole, rest = divmod(share, device.room)
    return whole * slots + (max(slots - (device.room - rest), 1) if rest else 0)


def _turns(share: int, counts: Floats, slots: int, device: Device) -> Floats:
    """The average over slots: all phases of its chunks, after the first chunks of other slots were
    copied in and before the last ones of others are copied out."""
    c_in, _, c_out = device.least
    whole = sum(totals_of(share, counts, device))
    ends = np.minimum(counts, slots) - 1
    found: Floats = whole / slots + ends / 2 * (c_in + c_out)
    return found


def _refilled(share: int, counts: Floats, slots: int, device: Device) -> Floats:
    """Of q `slots` + r chunks any r that q whole turns leave over hold the units left over.

    They are in each of q + 1 turns, in r slots.
    """
    turns, over = np.divmod(counts, slots)
    left = np.maximum(share - turns * device.room, 0)
    found = np.zeros_like(counts)
    for phases in device.straight:
        gap, slope = sum(line.gap for line in phases), sum(line.slope for line in phases)
        each = gap + slope * left / np.maximum(over, 1)
        found = np.maximum(found, np.where((over > 0) & (left > 0), (turns + 1) * each, 0.0))
    return found
