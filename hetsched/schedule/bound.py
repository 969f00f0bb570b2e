"""No plan can be faster than this: a lower bound on what one device needs for its share.

For each number of chunks L that a plan may have: what the busiest engine does, with the least that
fills and drains the pipeline around it; critical paths, averaged so that the sizes of the chunks
cancel out; and memory over time (`bound_terms`). The least over L bounds every plan, rings and
installments alike. Where little fits, `drained` says more. Curves that aren't straight are
replaced by convex and straight ones below them. (Ours; Ilic & Sousa give none.)
"""

from __future__ import annotations

import numpy as np

from hetsched.memory import MemoryDemand
from hetsched.models import DeviceModel
from hetsched.schedule.bound_terms import Device, busiest, device_of, least_of, smooth, totals_of
from hetsched.schedule.checks import request
from hetsched.schedule.costs import Costs, Floats, costs_of
from hetsched.schedule.drained import drained_bound
from hetsched.schedule.plan import Overlap
from hetsched.schedule.room import largest_sub_distribution


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
    first = -(-share // device.largest)

    def for_counts(counts: Floats) -> Floats:
        return _for_counts(share, counts, device, overlap)

    plain = least_of(share, first, device, overlap, for_counts)
    return max(plain, drained_bound(share, costs, device, overlap))


def _for_counts(share: int, counts: Floats, device: Device, overlap: Overlap) -> Floats:
    pairs = np.ceil(counts / 2)
    fills = 1 + np.maximum(-(-share // device.room) - pairs, 0)
    found = busiest(counts, device, overlap, fills, totals_of(share, counts, device))
    return smooth(share, counts, device, overlap, found)


def gap(seconds: float, bound: float) -> float:
    """How far `seconds` are above `bound`, as a ratio; 0 for nothing to do."""
    return seconds / bound - 1 if bound else 0.0
