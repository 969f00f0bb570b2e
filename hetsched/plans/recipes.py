"""Recipes for cutting any share: a ramp up, a steady middle, a ramp down.

Equal sublots are a good heuristic for a flow shop of three stages (Potts & Baker 1989); growing
ones at the ends fill and drain the pipeline faster (Glass, Gupta & Potts 1994). If memory holds an
odd number of units, the middle repeats a pattern that fills it: 2, 3, 2, 3 in room for 5.
"""

from __future__ import annotations

import bisect
import itertools
import math
from typing import NamedTuple

import numpy as np

from hetsched.models.curves import EQUAL
from hetsched.plans.costs import PhaseCosts
from hetsched.plans.device_plan import Overlap

Ramp = tuple[int, ...]

MAX_RAMP_CHUNKS = 24
NEARLY = 1 + EQUAL


class Recipe(NamedTuple):
    """A rule for cutting any share into chunks.

    `middle`: a size, perhaps not a whole one, of equal chunks; or sizes that follow each other in
    turn. `slots`: of the ring. `up`, `down`: growing; `down` is mirrored.
    """

    middle: float | tuple[int, ...]
    slots: int
    up: Ramp = ()
    down: Ramp = ()

    def chunks(self, share: int) -> tuple[int, ...]:
        """Cut `share` units. If the share is too small, ramps lose their largest sizes."""
        middle = self.middle
        largest = min(middle) if isinstance(middle, tuple) else middle
        up = self.up[: bisect.bisect_left(self.up, largest)]
        down = self.down[: bisect.bisect_left(self.down, largest)]
        rest = share - sum(up) - sum(down)
        while rest < 0:
            if up and (not down or up[-1] >= down[-1]):
                rest, up = rest + up[-1], up[:-1]
            else:
                rest, down = rest + down[-1], down[:-1]
        if isinstance(middle, tuple):
            turns, left = divmod(rest, sum(middle))
            ends = [min(end, left) for end in itertools.accumulate(middle, initial=0)]
            last_turn = [b - a for a, b in itertools.pairwise(ends) if b > a]
            return (*up, *middle * turns, *last_turn, *down[::-1])
        count = min(math.ceil(rest / middle / NEARLY), rest)
        size, larger = divmod(rest, max(count, 1))
        return (*up, *(size + 1,) * larger, *(size,) * (count - larger), *down[::-1])


def evenly(share: int, chunks: int) -> tuple[int, ...]:
    """Cut `share` units into chunks that differ by one at most, the larger ones first."""
    size, larger = divmod(share, chunks)
    return (size + 1,) * larger + (size,) * (chunks - larger)


def ramps(phases: PhaseCosts, largest: int, overlap: Overlap) -> list[Ramp]:
    """Return growing lists of sizes below `largest`, the empty one first.

    The first chunk is small, so that work begins early; each further one is the largest that
    arrives in time (Ilic & Sousa, equations (5) and (9), for any busiest engine), and grows by the
    first one at least: more chunks would cost more than they save. `phases`: in order, or reversed
    for the ramp that ends a plan.
    """
    first, middle, last = (np.maximum.accumulate(phase[: largest + 1]) for phase in phases)
    until_computed = np.maximum.accumulate(first + middle)
    beyond_copy = np.maximum.accumulate(middle - first)
    tables = [t.tolist() for t in (first, middle, last, until_computed, beyond_copy)]
    distinct: dict[Ramp, None] = dict.fromkeys([(), (1,)] if largest > 1 else [()])
    for power in range((largest - 1).bit_length()):
        distinct[_just_in_time(1 << power, tables, overlap)] = None
    return list(distinct)


def _just_in_time(first_size: int, tables: list[list[float]], overlap: Overlap) -> Ramp:
    """Return a ramp whose chunks are each the largest that doesn't stall the busiest engine."""
    first, middle, last, until_computed, beyond_copy = tables
    is_full = overlap is Overlap.FULL
    link_seconds = last[-1] if is_full else first[-1] + last[-1]
    out_bound = link_seconds > middle[-1]
    arrived = computed = copied_out = 0.0  # ends of the last chunk's phases, without any wait
    sizes: list[int] = []
    size = first_size
    while size < len(last) - 1 and len(sizes) < MAX_RAMP_CHUNKS:
        sizes.append(size)
        arrived += first[size]
        computed = max(computed, arrived) + middle[size]
        copied_out = max(copied_out, computed) + last[size]
        if out_bound and is_full:
            next_size = min(
                bisect.bisect_right(until_computed, (copied_out - arrived) * NEARLY),
                bisect.bisect_right(middle, (copied_out - computed) * NEARLY),
            )
        elif out_bound:
            next_size = bisect.bisect_right(beyond_copy, last[size] * NEARLY)
        elif is_full:
            next_size = bisect.bisect_right(first, (computed - arrived) * NEARLY)
        else:
            busy = last[sizes[-2]] if len(sizes) > 1 else 0.0
            next_size = bisect.bisect_right(first, (middle[size] - busy) * NEARLY)
        size = max(next_size - 1, size + first_size)
    return tuple(sizes)


def serial_chunks(share: int, costs: PhaseCosts) -> tuple[int, ...]:
    """Return fast chunks for `share` units (>= 1) in one slot: of the size that costs least.

    The largest if others save nothing; curves with cliffs and steps have cheaper ones.
    """
    total = costs.serial[: share + 1]
    times, rest = np.divmod(share, np.arange(1, len(total)))
    seconds = times * total[1:] + total[rest]
    size = 1 + int(np.flatnonzero(seconds <= seconds.min() * NEARLY)[-1])
    return (size,) * (share // size) + ((share % size,) if share % size else ())
