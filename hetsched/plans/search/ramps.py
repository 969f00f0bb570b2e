"""Ramps: sizes that grow from chunk to chunk just so fast that the busiest engine never waits.

The first chunk is small, so that work begins early; every further one is the largest that arrives
in time (Ilic & Sousa, equations (5) and (9), with any engine as the busiest). The mirrored ramp
ends a plan: what a chunk does last, it does first in the mirror.
"""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from hetsched.plans.device_plan import Overlap
from hetsched.plans.phase_costs import Floats

Ramp = tuple[int, ...]

STARTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128, 256, 512, 1024)
GROWTHS = (1.6, 3.0)
"""For ramps that don't ask what anything costs."""
LONGEST = 24
"""Chunks of a ramp at most."""


def ramps(phases: tuple[Floats, Floats, Floats], largest: int, overlap: Overlap) -> list[Ramp]:
    """Growing lists of sizes below `largest`, the empty one first.

    Parameters
    ----------
    phases : three (sizes,) float64, seconds
        By size, in the order in which a chunk goes through them; reversed for the mirrored ramp.
    largest : int, units
    """
    rising = [np.maximum.accumulate(phase) for phase in phases]
    rising.append(np.maximum.accumulate(rising[0] + rising[1]))
    rising.append(np.maximum.accumulate(rising[1] - rising[0]))
    tables = [phase[: largest + 1].tolist() for phase in rising]
    found: dict[Ramp, None] = {(): None}
    for start in STARTS:
        if start >= largest:
            break
        found[_fed(start, tables, largest, overlap)] = None
        for growth in GROWTHS:
            found[_geometric(start, growth, largest)] = None
    return list(found)


def _geometric(start: int, growth: float, largest: int) -> Ramp:
    sizes = [start]
    while len(sizes) < LONGEST and sizes[-1] * growth < largest:
        sizes.append(int(np.ceil(sizes[-1] * growth)))
    return tuple(size for size in sizes if size < largest)


def _fed(start: int, rising: list[list[float]], largest: int, overlap: Overlap) -> Ramp:
    """The largest next chunk that keeps the busiest engine fed, again and again."""
    first, middle, last, until_computed, beyond = rising
    full = overlap is Overlap.FULL
    busy = last[largest] if full else first[largest] + last[largest]
    out_bound = busy > middle[largest]
    sizes = [start]
    arrived = first[start]
    computed = arrived + middle[start]
    left = computed + last[start]
    while len(sizes) < LONGEST:
        if out_bound and not full:
            fits = _most(beyond, last[sizes[-1]])
        elif out_bound:
            fits = min(_most(until_computed, left - arrived), _most(middle, left - computed))
        elif full:
            fits = _most(first, computed - arrived)
        else:
            before = last[sizes[-2]] if len(sizes) > 1 else 0.0
            fits = _most(first, middle[sizes[-1]] - before)
        size = max(min(fits, 8 * sizes[-1]), sizes[-1] + 1)
        if size >= largest:
            break
        sizes.append(size)
        arrived += first[size]
        computed = max(arrived, computed) + middle[size]
        left = max(computed, left) + last[size]
    return tuple(sizes)


def _most(rising: list[float], seconds: float) -> int:
    """The largest size whose phase takes at most `seconds`."""
    return bisect_right(rising, seconds * (1 + 1e-12)) - 1
