"""Recipes for cutting any share: a ramp up, a steady middle, a ramp down.

Equal sublots are a good heuristic for a flow shop of three stages (Potts & Baker 1989); geometric
ones at the ends fill and drain the pipeline faster (Glass, Gupta & Potts 1994). If memory holds an
odd number of units, the middle repeats a pattern that fills it: 2, 3, 2, 3 in room for 5.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable
from typing import NamedTuple

from hetsched.plans.search.ramps import Ramp


class Recipe(NamedTuple):
    """A rule for cutting any share into chunks.

    Attributes
    ----------
    middle : tuple of int, units
        One size: equal chunks of at most that size. Several: repeated in turn.
    slots : int
        Slots of the ring; 0: all chunks are in device memory together.
    up, down : tuple of int, units
        Sizes that grow; `down` is mirrored.
    """

    middle: tuple[int, ...]
    slots: int
    up: Ramp = ()
    down: Ramp = ()

    def chunks(self, share: int) -> tuple[int, ...]:
        """Cut `share` units. If the share is too small, ramps lose their largest sizes."""
        largest = min(*self.middle, share)
        up, down = _below(self.up, largest), _below(self.down, largest)
        rest = share - sum(up) - sum(down)
        while rest < 0:
            if up and (not down or up[-1] >= down[-1]):
                rest, up = rest + up[-1], up[:-1]
            else:
                rest, down = rest + down[-1], down[:-1]
        return (*up, *self._steady(rest), *down[::-1])

    def _steady(self, rest: int) -> tuple[int, ...]:
        if rest == 0:
            return ()
        if len(self.middle) == 1:
            return evenly(rest, -(-rest // self.middle[0]))
        turns, rest = divmod(rest - 1, sum(self.middle))  # the last turn has a unit or more
        rest += 1
        last_turn: list[int] = []
        for size in self.middle:
            last_turn.append(min(size, rest))
            rest -= last_turn[-1]
            if not rest:
                break
        return (*self.middle * turns, *last_turn)


def leftover_patterns(share: int, sizes: tuple[int, ...]) -> Iterable[tuple[int, ...]]:
    """Yield patterns for `share` in as few chunks as possible, for slots of `sizes`.

    If a few chunks remain after full turns through all slots, those slots are used once more and
    may hold larger chunks than the others: 12 8 12 8 12 for 52 units in room for 20.
    """
    slots, room = len(sizes), sum(sizes)
    turns = share // room
    for extra_chunks in range(1, slots if turns else 0):
        extra_units = share - turns * room
        if extra_chunks * max(sizes) < extra_units <= room - (slots - extra_chunks):
            small = evenly(room - extra_units, slots - extra_chunks)
            yield (*evenly(extra_units, extra_chunks), *small)


def _below(ramp: Ramp, largest: int) -> Ramp:
    if not ramp or ramp[-1] < largest:
        return ramp
    return ramp[: bisect.bisect_left(ramp, largest)]


def evenly(share: int, chunks: int) -> tuple[int, ...]:
    """Cut `share` units into chunks that differ by one at most, the larger ones first."""
    size, larger = divmod(share, chunks)
    return (size + 1,) * larger + (size,) * (chunks - larger)


def spread_out(share: int, chunks: int) -> tuple[int, ...]:
    """Cut as `evenly`, but with the larger chunks as far from each other as possible."""
    ends = (share * end // chunks for end in range(chunks + 1))
    return tuple(after - before for before, after in itertools.pairwise(ends))
