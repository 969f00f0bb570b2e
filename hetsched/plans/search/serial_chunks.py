"""Chunks that go one after the other: those whose phases add up to the least.

Where a chunk's fixed cost is all that larger ones save, few large ones are best. Curves that are
measured have cliffs and steps; then sizes are chosen by what they cost.
"""

from __future__ import annotations

import numpy as np

from hetsched.plans.bounds.convex_minorant import ROUNDING
from hetsched.plans.phase_costs import Costs, Floats

MOST_SUMMED = 1024
"""Units up to which all sums of chunks are compared; of more, those of one size and a rest."""


def serial_chunks(share: int, costs: Costs) -> tuple[int, ...]:
    """The chunks, units, of least time for `share` units (>= 1) in one slot; largest first.

    Exact for shares of up to `MOST_SUMMED` units. O(share x largest chunk), or O(largest chunk).
    """
    total = np.add.reduce(costs.phases)[: share + 1]
    if _concave(total):
        return _repeated(share, len(total) - 1)
    if share <= MOST_SUMMED:
        return _cheapest(share, total)
    sizes = np.arange(1, len(total))
    times, rest = np.divmod(share, sizes)
    return _repeated(share, 1 + int(np.argmin(times * total[1:] + total[rest])))


def _concave(total: Floats) -> bool:
    """Whether a unit more never costs more than the one before: then large chunks are best."""
    bends = np.diff(total, 2)
    return not len(bends) or float(bends.max()) <= ROUNDING * float(np.abs(total).max())


def _repeated(share: int, size: int) -> tuple[int, ...]:
    times, rest = divmod(share, size)
    return (size,) * times + ((rest,) if rest else ())


def _cheapest(share: int, total: Floats) -> tuple[int, ...]:
    """All sums, smaller shares first: what is left after a chunk is a share itself."""
    least = np.zeros(share + 1)
    last = np.zeros(share + 1, dtype=np.int64)
    for units in range(1, share + 1):
        most = min(units, len(total) - 1)
        sums = total[1 : most + 1] + least[units - most : units][::-1]
        last[units] = 1 + int(np.argmin(sums))
        least[units] = sums[last[units] - 1]
    chunks = []
    while share:
        chunks.append(int(last[share]))
        share -= chunks[-1]
    return tuple(sorted(chunks, reverse=True))
