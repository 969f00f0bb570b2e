"""No plan can be faster than this: a lower bound on what one device needs for its share.

Each kind of plan has its own: chunks one after the other, rings of so many slots (`turns`),
installments (`drained`); the least of them bounds every plan. For each number of chunks L that a
plan may have: what the busiest engine does, with the least that fills and drains the pipeline
around it; critical paths, averaged so that the sizes of the chunks cancel out; and memory over
time (`bound_terms`). Curves that aren't straight are replaced by convex and straight ones below
them. (Ours; Ilic & Sousa give none.)
"""

from __future__ import annotations

from collections.abc import Iterable

from hetsched.memory import MemoryDemand
from hetsched.models import DeviceModel
from hetsched.plans.bounds.bound_terms import device_of, least_of
from hetsched.plans.bounds.installment_bound import drained_bound
from hetsched.plans.bounds.ring_bound import ring_bound
from hetsched.plans.device_plan import Overlap
from hetsched.plans.memory_fit import MOST_SLOTS, largest_sub_distribution
from hetsched.plans.phase_costs import Costs, costs_of
from hetsched.plans.validation import request


def lower_bound(share: int, model: DeviceModel, memory: MemoryDemand, overlap: Overlap) -> float:
    """Seconds that any plan for `share` units takes at least. O(largest chunk + chunks).

    Parameters
    ----------
    share : int, units
    model : DeviceModel
    memory : MemoryDemand
    overlap : Overlap

    Raises
    ------
    DataError
        Not even one unit fits.
    UsageError
        The share is negative or no whole number; a parameter isn't of its kind.
    """
    share = request(share, model, memory, overlap)
    if share == 0:
        return 0.0
    costs = costs_of(model, memory.most(share))
    return bound_of(share, costs, largest_sub_distribution(share, memory), overlap)


def bound_of(share: int, costs: Costs, room: int, overlap: Overlap) -> float:
    """`lower_bound` where costs are known, and that `room` units fit together at most."""
    device = device_of(share, costs, room)
    serial = least_of(share, -(-share // device.largest), device, Overlap.NONE)
    if overlap is Overlap.NONE or share == 1:
        return serial
    rings = [ring_bound(share, slots, device, overlap) for slots in _slots(share, room, overlap)]
    drained = [] if share <= room else [drained_bound(share, device, overlap)]
    return min(serial, *rings, *drained)


def _slots(share: int, room: int, overlap: Overlap) -> Iterable[int]:
    """The rings that have to be looked at: so many slots, the last of them standing for more.

    The order of a single engine needs no more than two chunks together. What fits as a whole
    needs no slots.
    """
    if overlap is Overlap.SINGLE:
        return (2,) if room > 1 else ()
    return (MOST_SLOTS + 1,) if share <= room else range(2, min(MOST_SLOTS + 1, room) + 1)


def gap(seconds: float, bound: float) -> float:
    """How far `seconds` are above `bound`, as a ratio; 0 for nothing to do."""
    return seconds / bound - 1 if bound else 0.0
