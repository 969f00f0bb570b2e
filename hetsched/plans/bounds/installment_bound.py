"""A bound for installments: sub-distributions that follow each other, each no larger than memory.

Those of one chunk are in series. Those of several fill and drain the pipeline; what a unit costs
in them falls as they grow, so that none does better than one that fills memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from hetsched.plans.bounds.bound_terms import Device, least_of, smooth
from hetsched.plans.device_plan import Overlap
from hetsched.plans.phase_costs import Floats


def drained_bound(share: int, device: Device, overlap: Overlap) -> float:
    """Seconds that installments for `share` units take at least, if they don't fit as a whole."""
    fills = -(-share // device.room)
    first = max(fills, -(-share // device.largest))
    return max(
        _least_rate(device, overlap) * share,
        least_of(share, first, device, overlap, _smooth(share, device, overlap), fills),
    )


def _least_rate(device: Device, overlap: Overlap) -> float:
    """Seconds a unit of any sub-distribution, at least."""
    c_in, compute, c_out = (_rooted(curve) for curve in device.totals)
    room, largest = device.room, device.largest
    single = float((c_in + compute + c_out)[largest]) / largest
    if room < 2:
        return single
    rooted = replace(device, totals=(c_in, compute, c_out))
    first = max(2, -(-room // largest))
    return min(
        single, least_of(room, first, rooted, overlap, _smooth(room, rooted, overlap)) / room
    )


def _smooth(share: int, device: Device, overlap: Overlap) -> Callable[[Floats, Floats], Floats]:
    return lambda counts, found: smooth(share, counts, device, overlap, found)


def _rooted(convex: Floats) -> Floats:
    """The largest convex curve below `convex` whose value a unit never grows."""
    sizes = np.arange(1, len(convex))
    least = np.minimum.accumulate(convex[1:] / sizes) * sizes
    first = 2 * least[0] - least[1] if len(least) > 1 else least[0]
    return np.concatenate(([max(first, 0.0)], least))
