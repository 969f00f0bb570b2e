"""Ways to cut a share: a ramp up, a steady middle, a ramp down; the same recipe for any share.

Equal sublots are a good heuristic for a flow shop of three stages (Potts & Baker 1989), geometric
ones at the ends make the pipeline fill and drain sooner (Glass, Gupta & Potts 1994). Where memory
holds an odd number of units, the middle repeats a pattern that fills it: 2, 3, 2, 3 in room for 5.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from hetsched.schedule.ramps import Ramp


@dataclass(frozen=True)
class Recipe:
    """How to cut.

    Attributes
    ----------
    middle : tuple of int, units
        One size: equal chunks of at most that. Several: repeated in turn.
    slots : int
        Of the ring; 0: all chunks are in device memory together.
    up, down : tuple of int, units
        Sizes that grow; `down` is mirrored.
    """

    middle: tuple[int, ...]
    slots: int
    up: Ramp = ()
    down: Ramp = ()

    def chunks(self, share: int) -> tuple[int, ...]:
        """The chunks of `share` units. Ramps lose their largest sizes where there is no room."""
        largest = min(self.middle)
        up = _below(self.up, min(largest, share))
        down = _below(self.down, min(largest, share))
        while sum(up) + sum(down) > share:
            if up and (not down or up[-1] >= down[-1]):
                up = up[:-1]
            else:
                down = down[:-1]
        rest = share - sum(up) - sum(down)
        return (*up, *self._steady(rest), *down[::-1])

    def _steady(self, rest: int) -> tuple[int, ...]:
        if rest == 0:
            return ()
        if len(self.middle) == 1:
            return evenly(rest, -(-rest // self.middle[0]))
        sizes: list[int] = []
        for size in itertools.cycle(self.middle):
            if rest <= size:
                return (*sizes, rest)
            sizes.append(size)
            rest -= size
        return ()


def _below(ramp: Ramp, largest: int) -> Ramp:
    return tuple(itertools.takewhile(lambda size: size < largest, ramp))


def evenly(share: int, chunks: int) -> tuple[int, ...]:
    """`share` units as so many chunks that differ by one at most, the larger ones first."""
    size, larger = divmod(share, chunks)
    return (size + 1,) * larger + (size,) * (chunks - larger)
