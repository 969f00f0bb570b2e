"""Sub-distributions of overlapping chunks: three to begin with, then one more and one more.

Ilic & Sousa, section 3, steps 1 to 3. Where the paper leaves a choice: sizes whose phase takes at
least (at most) a time are the smallest (largest) whole ones; a chunk that doesn't fit any more is
cut to the room that is left, as in the published lists; branching is bounded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hetsched.plans.batch_timeline import Sizes, makespans
from hetsched.plans.device_plan import Overlap
from hetsched.plans.phase_costs import Costs, Floats

FINE = 160
"""Sizes of a first or third chunk that are tried: all, or as many spread evenly by ratio."""
BRANCHES = 12
"""Sub-distributions of greatest speed that are extended further."""

LONGEST = 64
"""Chunks of a sub-distribution at most; more cost more than they save."""


@dataclass(frozen=True)
class Part:
    """A sub-distribution while chunks are appended to it.

    Attributes
    ----------
    chunks : tuple of int, units
    inward, computed, outward : float, seconds
        When the engine for copies in is free again, the last chunk is computed, and all copies out
        but (with one engine) the last are done.
    seconds : float
        Of the whole sub-distribution.
    """

    chunks: tuple[int, ...]
    units: int
    inward: float
    computed: float
    outward: float
    seconds: float

    @property
    def speed(self) -> float:
        """psi_delta: units a second."""
        return self.units / self.seconds


class Bases:
    """Finds sub-distributions for a device.

    Parameters
    ----------
    costs : Costs
        Up to the largest chunk that may be used.
    overlap : Overlap
        One copy engine or two.
    room : int, units
        No sub-distribution has more.
    """

    def __init__(self, costs: Costs, overlap: Overlap, room: int) -> None:
        self._full = overlap is Overlap.FULL
        self._largest = costs.largest
        self._room = room
        rising = [np.maximum.accumulate(phase) for phase in costs.phases]
        self._rising = rising
        self._in, self._compute, self._out = (phase.tolist() for phase in costs.phases)
        self._threes, self._sums = self._all_threes(costs, overlap)

    def within(self, room: int) -> Iterator[Part]:
        """All sub-distributions found of at most `room` units, each with all its prefixes."""
        level = list(self._first(room))
        while level and len(level[0].chunks) <= LONGEST:
            yield from level
            longer = {one.chunks: one for part in level for one in self._longer(part, room)}
            level = sorted(longer.values(), key=lambda one: -one.speed)[:BRANCHES]

    # ---- steps 1 and 2: three chunks

    def _all_threes(self, costs: Costs, overlap: Overlap) -> tuple[Sizes, Sizes]:
        """Every b1, b3 with the b2 of equation (7), the fastest first; and their sums."""
        most = min(self._largest, self._room - 2)
        if most < 1:
            return np.zeros((0, 3), dtype=np.int64), np.zeros(0, dtype=np.int64)
        ends = np.unique(np.geomspace(1, most, FINE).round().astype(np.int64))
        if most <= FINE:
            ends = np.arange(1, most + 1)
        first, last = (one.ravel() for one in np.meshgrid(ends, ends, indexing="ij"))
        out, inward = self._rising[2][first], self._rising[0][last]
        needed = np.maximum(out, inward) if self._full else out + inward
        middle = np.maximum(self._at_least(1, needed), 1)
        sums = first + middle + last
        keep = (middle <= self._largest) & (sums <= self._room)
        threes = np.stack((first, middle, last), axis=1)[keep]
        if not len(threes):
            return threes, sums[keep]
        seconds = makespans(threes, 0, costs, overlap)
        order = np.lexsort((-sums[keep], -(sums[keep] / seconds)))
        return threes[order], sums[keep][order]

    def _first(self, room: int) -> Iterator[Part]:
        fitting = self._sums <= room
        if not fitting.any():
            return
        first, middle, last = self._threes[int(np.argmax(fitting))].tolist()
        computes = self._rising[1]
        before = self._most_or_none(int(np.searchsorted(computes, self._in[middle])))
        behind = self._most_or_none(int(np.searchsorted(computes, self._out[middle])))
        tried = [(first, middle, last), (before, middle, last), (first, middle, behind)]
        tried.append((before, middle, behind))
        for chunks in dict.fromkeys(tried):
            if min(chunks) and sum(chunks) <= room:
                yield self._part(chunks)

    def _most_or_none(self, size: int) -> int:
        """`size`, at least 1; 0 where it is larger than any chunk may be."""
        return max(1, size) if size <= self._largest else 0

    def _at_least(self, phase: int, seconds: Floats) -> Sizes:
        """The smallest sizes whose `phase` takes at least `seconds`; beyond the largest: none."""
        return np.searchsorted(self._rising[phase], seconds * (1 - 1e-12))

    # ---- step 3: one more

    def _longer(self, part: Part, room: int) -> Iterator[Part]:
        """`part` with one chunk more: the smallest that equation (5) admits, and the largest."""
        left = room - part.units
        if left < 1:
            return
        last, before = part.chunks[-1], part.chunks[-2]
        slot = self._compute[last] - (0.0 if self._full else self._out[before])
        tail = max(1, int(self._at_least(1, np.array([self._out[last]]))[0]))
        growth = int(np.searchsorted(self._rising[0], slot * (1 + 1e-12), "right")) - 1
        for size in {min(tail, left), min(growth, left)}:
            if 1 <= size <= min(growth, self._largest):
                yield self._appended(part, size)

    def _part(self, chunks: tuple[int, ...]) -> Part:
        part = Part((), 0, 0.0, 0.0, 0.0, 0.0)
        for size in chunks:
            part = self._appended(part, size)
        return part

    def _appended(self, part: Part, size: int) -> Part:
        inward = part.inward + self._in[size]
        computed = max(inward, part.computed) + self._compute[size]
        chunks, units = (*part.chunks, size), part.units + size
        if self._full:
            outward = max(computed, part.outward) + self._out[size]
            return Part(chunks, units, inward, computed, outward, outward)
        if part.chunks:
            inward = max(inward, part.computed) + self._out[part.chunks[-1]]
        seconds = max(inward, computed) + self._out[size]
        return Part(chunks, units, inward, computed, inward, seconds)
