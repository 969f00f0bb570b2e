"""Serial chunks: those with the minimum sum of phases.

If larger chunks save only fixed costs, a few large ones are best. Measured curves have cliffs and
steps, where sizes are chosen by cost.
"""

from __future__ import annotations

import numpy as np

from hetsched.plans.bounds.sampled_costs import ROUNDING
from hetsched.plans.phase_costs import Floats, PhaseCosts

MAX_EXACT_SHARE = 1024
"""Units up to which all cuts are compared; larger shares use one size and a remainder."""


def serial_chunks(share: int, costs: PhaseCosts) -> tuple[int, ...]:
    """Return the fastest chunks, units, for `share` units (>= 1) in one slot; largest first.

    Exact for shares of up to `MAX_EXACT_SHARE` units. O(share x largest chunk), or O(largest
    chunk).
    """
    total = np.add.reduce(costs.phases)[: share + 1]
    if _is_concave(total):
        return _repeated(share, len(total) - 1)
    if share <= MAX_EXACT_SHARE:
        return _cheapest_sum(share, total)
    sizes = np.arange(1, len(total))
    times, rest = np.divmod(share, sizes)
    return _repeated(share, 1 + int(np.argmin(times * total[1:] + total[rest])))


def _is_concave(total: Floats) -> bool:
    """Return whether each further unit costs no more than the last: large chunks are best."""
    bends = np.diff(total, 2)
    return not len(bends) or float(bends.max()) <= ROUNDING * float(np.abs(total).max())


def _repeated(share: int, size: int) -> tuple[int, ...]:
    times, rest = divmod(share, size)
    return (size,) * times + ((rest,) if rest else ())


def _cheapest_sum(share: int, total: Floats) -> tuple[int, ...]:
    """Find the cheapest cut by dynamic programming over shares."""
    seconds = np.zeros(share + 1)
    last_chunk = np.zeros(share + 1, dtype=np.int64)
    for units in range(1, share + 1):
        largest = min(units, len(total) - 1)
        sums = total[1 : largest + 1] + seconds[units - largest : units][::-1]
        last_chunk[units] = 1 + int(np.argmin(sums))
        seconds[units] = sums[last_chunk[units] - 1]
    chunks = []
    while share:
        chunks.append(int(last_chunk[share]))
        share -= chunks[-1]
    return tuple(sorted(chunks, reverse=True))
