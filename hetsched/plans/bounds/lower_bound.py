"""A lower bound on the time that one device needs for its share, whatever the plan.

Each kind of plan has its own bound: chunks one after the other, rings of so many slots
(`ring_bound`), installments (`installment_bound`); the least of them bounds every plan. For each
number of chunks that a plan may have, they combine what the busiest engine does, with the least
that fills and drains the pipeline around it; critical paths, averaged so that the sizes of the
chunks cancel out; and memory over time (`bound_terms`). Curves that aren't straight are replaced
by convex and straight ones below them. (Ours; Ilic & Sousa give none.)
"""

from __future__ import annotations

from collections.abc import Iterable

from hetsched.memory import MemoryDemand
from hetsched.models import DeviceModel
from hetsched.plans.bounds.bound_terms import bound_inputs, least_over_counts
from hetsched.plans.bounds.installment_bound import installment_bound
from hetsched.plans.bounds.ring_bound import ring_bound
from hetsched.plans.device_plan import Overlap
from hetsched.plans.memory_fit import MAX_SLOTS, largest_sub_distribution
from hetsched.plans.phase_costs import PhaseCosts, costs_of
from hetsched.plans.validation import validate_request


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
        The share is negative or not an integer; a parameter has the wrong type.
    """
    share = validate_request(share, model, memory, overlap)
    if share == 0:
        return 0.0
    costs = costs_of(model, memory.max_chunk(share))
    return bound_of(share, costs, largest_sub_distribution(share, memory), overlap)


def bound_of(share: int, costs: PhaseCosts, room: int, overlap: Overlap) -> float:
    """`lower_bound` from tabulated costs, where at most `room` units fit together."""
    inputs = bound_inputs(share, costs, room)
    serial = least_over_counts(share, -(-share // inputs.largest), inputs, Overlap.NONE)
    if overlap is Overlap.NONE or share == 1:
        return serial
    rings = [
        ring_bound(share, slots, inputs, overlap) for slots in _slot_counts(share, room, overlap)
    ]
    installments = [] if share <= room else [installment_bound(share, inputs, overlap)]
    return min(serial, *rings, *installments)


def _slot_counts(share: int, room: int, overlap: Overlap) -> Iterable[int]:
    """The numbers of slots to bound; the last of them stands for more.

    The order of a single engine needs no more than two chunks together. A share that fits as a
    whole needs no slots.
    """
    if overlap is Overlap.SINGLE:
        return (2,) if room > 1 else ()
    return (MAX_SLOTS + 1,) if share <= room else range(2, min(MAX_SLOTS + 1, room) + 1)


def relative_gap(seconds: float, bound: float) -> float:
    """How far `seconds` are above `bound`, as a ratio; 0 if the bound is 0."""
    return seconds / bound - 1 if bound else 0.0
