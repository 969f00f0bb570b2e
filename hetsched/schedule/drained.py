"""A bound for memories that hold little, from the moments at which a device is empty.

Where two neighbouring chunks don't fit together, the first has left before the second comes: the
plan falls into segments that follow each other, of one chunk (all in series) or of several whose
neighbours fit. A segment of l chunks holds at most half of l + 1 times the room. If what is paid
once for a whole plan is left out, no mixture of both kinds is faster than the faster kind alone.
"""

from __future__ import annotations

import math

import numpy as np

from hetsched.schedule.bound_terms import Device, residence, totals_of
from hetsched.schedule.costs import Costs, Floats
from hetsched.schedule.plan import Overlap

ZOOMS, GRID = 4, 64
"""Steps and points of the search for the least of a convex function."""
SAFETY = 1e-6
"""Relative; what that search may have missed."""


def drained_bound(share: int, costs: Costs, device: Device, overlap: Overlap) -> float:
    """Seconds that any plan for `share` units takes at least; 0 if everything fits together.

    Parameters
    ----------
    share : int, units
    costs : Costs
    device : Device
        Of `costs`.
    overlap : Overlap
    """
    room = device.room
    if share <= room or overlap is Overlap.NONE:
        return 0.0
    whole = costs.copy_in + costs.compute + costs.copy_out
    single = float((whole[1:] / np.arange(1, costs.largest + 1)).min())
    several = _least_rate(device, overlap) * (1 - SAFETY)
    return min(single, several) * share


def _least_rate(device: Device, overlap: Overlap) -> float:
    """Seconds a unit of segments of several chunks, at least, however many chunks there are."""
    low, high = 1.5 / device.room, 1.0
    least = math.inf
    for _ in range(ZOOMS):
        counts = np.geomspace(low, high, GRID)
        rates = _rates(counts, device, overlap)
        index = int(rates.argmin())
        least = min(least, float(rates[index]))
        low, high = counts[max(index - 1, 0)], counts[min(index + 1, GRID - 1)]
    return least


def _rates(counts: Floats, device: Device, overlap: Overlap) -> Floats:
    """For so many chunks a unit. What is paid once for a whole plan is left out."""
    fills = np.maximum(2 / device.room - counts, 0)
    least_in, least_compute, least_out = device.least
    c_in, compute, c_out = totals_of(1, counts, device)
    found = compute + fills * (least_in + least_out)
    if overlap is Overlap.SINGLE:
        found = np.maximum(found, c_in + c_out)
    else:
        found = np.maximum(found, c_in + fills * (least_compute + least_out))
        found = np.maximum(found, c_out + fills * (least_in + least_compute))
    for phases in device.straight:
        found = np.maximum(found, residence(1, counts, phases, device.room))
    return found
