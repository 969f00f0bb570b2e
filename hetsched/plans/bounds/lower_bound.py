"""A lower bound on the time of any plan for one device's share.

There is a bound for each kind of plan: serial chunks, rings of a given number of slots
(`ring_bound`), installments (`installment_bound`); their minimum bounds every plan. For each
possible number of chunks they combine the busiest engine's time plus the minimum time to fill and
drain the pipeline; critical paths, averaged so that chunk sizes cancel out; and memory over time
(`bound_terms`). Curves that aren't straight are replaced by convex and straight ones below them.
(Ours; Ilic & Sousa give none.)
"""

from __future__ import annotations

from collections.abc import Iterable

from hetsched.memory import MemoryDemand
from hetsched.models import DeviceModel
from hetsched.plans.bounds.bound_terms import bound_inputs, least_over_counts
from hetsched.plans.bounds.installment_bound import installment_bound
from hetsched.plans.bounds.ring_bound import ring_bound
from hetsched.plans.bounds.sampled_costs import SampledCosts, sampled_costs
from hetsched.plans.device_plan import Overlap
from hetsched.plans.memory_fit import MAX_SLOTS, largest_sub_distribution
from hetsched.plans.validation import validate_request

ROUNDING = 1e-12
"""Relative error of a bound by rounding; a plan may take exactly as long as its bound."""


def lower_bound(share: int, model: DeviceModel, memory: MemoryDemand, overlap: Overlap) -> float:
    """Return the minimum seconds of any plan for `share` units. O(log(largest chunk) + chunks).

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
    costs = sampled_costs(model, memory.max_chunk(share))
    return bound_of(share, costs, largest_sub_distribution(share, memory), overlap)


def bound_of(share: int, costs: SampledCosts, room: int, overlap: Overlap) -> float:
    """Return `lower_bound` from costs; `room`: units that fit in memory together."""
    return (1 - ROUNDING) * _exact_bound(share, costs, room, overlap)


def _exact_bound(share: int, costs: SampledCosts, room: int, overlap: Overlap) -> float:
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
    """Return the numbers of slots to bound; the last one stands for all larger numbers.

    With a single engine, more than two slots make no difference. A share that fits as a whole
    needs no slots.
    """
    if overlap is Overlap.SINGLE:
        return (2,) if room > 1 else ()
    return (MAX_SLOTS + 1,) if share <= room else range(2, min(MAX_SLOTS + 1, room) + 1)


def relative_gap(seconds: float, bound: float) -> float:
    """Return the relative excess of `seconds` over `bound`; 0 if the bound is 0."""
    return seconds / bound - 1 if bound else 0.0
