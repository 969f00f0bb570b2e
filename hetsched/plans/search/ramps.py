"""Ramps: chunk sizes that grow as fast as possible without stalling the busiest engine.

The first chunk is small, so that work begins early; each further one is the largest that arrives
in time (Ilic & Sousa, equations (5) and (9), for any busiest engine). The mirrored ramp ends a
plan: the last phase of a chunk is the first of its mirror image.
"""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from hetsched.plans.device_plan import Overlap
from hetsched.plans.phase_costs import Floats

Ramp = tuple[int, ...]

FIRST_SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128, 256, 512, 1024)
GROWTH_FACTOR = 3.0
"""Growth factors of ramps with a fixed ratio. Arbitrary."""
MAX_GROWTH = 8
"""Ratio of a chunk to its predecessor."""
MAX_RAMP_CHUNKS = 24


def ramps(phases: tuple[Floats, Floats, Floats], largest: int, overlap: Overlap) -> list[Ramp]:
    """Return growing lists of sizes below `largest`, the empty one first.

    A single unit; and from each first size: as fast as engines allow, by ratio, and by steps of
    that size.

    Parameters
    ----------
    phases : three (sizes,) float64, seconds
        Indexed by size, in order of execution; reversed for the mirrored ramp.
    largest : int, units
    overlap : Overlap
    """
    first, middle, last = (np.maximum.accumulate(phase) for phase in phases)
    until_computed = np.maximum.accumulate(first + middle)
    beyond_copy = np.maximum.accumulate(middle - first)
    tables = [
        table[: largest + 1].tolist()
        for table in (first, middle, last, until_computed, beyond_copy)
    ]
    distinct: dict[Ramp, None] = dict.fromkeys([(), (1,)] if largest > 1 else [()])
    for size in FIRST_SIZES:
        if size >= largest:
            break
        distinct[_just_in_time(size, tables, largest, overlap)] = None
        distinct[_geometric(size, largest)] = None
        distinct[tuple(range(size, largest, size)[:MAX_RAMP_CHUNKS])] = None
    return list(distinct)


def _geometric(first_size: int, largest: int) -> Ramp:
    sizes = [first_size]
    while len(sizes) < MAX_RAMP_CHUNKS and sizes[-1] * GROWTH_FACTOR < largest:
        sizes.append(int(np.ceil(sizes[-1] * GROWTH_FACTOR)))
    return tuple(size for size in sizes if size < largest)


def _just_in_time(
    first_size: int, tables: list[list[float]], largest: int, overlap: Overlap
) -> Ramp:
    """Return a ramp whose chunks are each the largest that doesn't stall the busiest engine."""
    first, middle, last, until_computed, beyond_copy = tables
    full = overlap is Overlap.FULL
    link_seconds = last[largest] if full else first[largest] + last[largest]
    out_bound = link_seconds > middle[largest]
    arrived = computed = copied_out = 0.0  # ends of the last chunk's phases, without any wait
    sizes: list[int] = []
    size = first_size
    while size < largest or not sizes:
        sizes.append(size)
        if len(sizes) == MAX_RAMP_CHUNKS:
            break
        arrived += first[size]
        computed = max(computed, arrived) + middle[size]
        copied_out = max(copied_out, computed) + last[size]
        if out_bound and not full:
            next_size = _largest_within(beyond_copy, last[size])
        elif out_bound:
            next_size = min(
                _largest_within(until_computed, copied_out - arrived),
                _largest_within(middle, copied_out - computed),
            )
        elif full:
            next_size = _largest_within(first, computed - arrived)
        else:
            busy = last[sizes[-2]] if len(sizes) > 1 else 0.0
            next_size = _largest_within(first, middle[size] - busy)
        size = max(min(next_size, MAX_GROWTH * size), size + 1)
    return tuple(sizes)


def _largest_within(rising: list[float], seconds: float) -> int:
    """Return the largest size whose phase takes at most `seconds`."""
    return bisect_right(rising, seconds * (1 + 1e-12)) - 1
