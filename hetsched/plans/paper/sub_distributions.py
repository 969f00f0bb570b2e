"""Sub-distributions of overlapping chunks: three to begin with, extended chunk by chunk.

Ilic & Sousa, section 3, steps 1 to 3. Where the paper leaves a choice, a phase of at least (at
most) a given time means the smallest (largest) whole size; a chunk that no longer fits is cut to
the remaining room, as in the published lists; branching is bounded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hetsched.plans.device_plan import Overlap
from hetsched.plans.makespans import Sizes, makespans
from hetsched.plans.phase_costs import Floats, PhaseCosts
from hetsched.plans.recurrence import (
    FLOATS,
    MAX_SLOTS_IN_USE,
    Recurrence,
    copy_in_rule,
    same_slots,
)

MAX_END_SIZES = 160
"""Sizes of a first or third chunk to compare: all, or so many spread evenly by ratio."""
MAX_BRANCHES = 12
"""Fastest sub-distributions that are extended further."""
MAX_CHUNKS = 64
"""Maximum chunks of a sub-distribution; more cost more than they save. Arbitrary."""

Chunks = tuple[int, ...]


@dataclass(frozen=True)
class SubDistribution:
    """Chunks that are in device memory together. `units`: their sum."""

    chunks: Chunks
    units: int
    recurrence: Recurrence[float]

    @property
    def seconds(self) -> float:
        """The makespan, ignoring the slowdown of simultaneous copies."""
        return self.recurrence.makespan

    @property
    def speed(self) -> float:
        """psi_delta: units per second."""
        return self.units / self.seconds


class SubDistributionSearch:
    """A search for fast sub-distributions of a device.

    Parameters
    ----------
    costs : PhaseCosts
        Up to the largest allowed chunk.
    overlap : Overlap
        One copy engine or two.
    room : int, units
        The largest sub-distribution.
    """

    def __init__(self, costs: PhaseCosts, overlap: Overlap, room: int) -> None:
        self._costs = costs
        self._overlap = overlap
        self._full = overlap is Overlap.FULL
        self._largest = costs.largest
        self._room = room
        self._rising = [np.maximum.accumulate(phase) for phase in costs.phases]
        self._in, self._compute, self._out = (phase.tolist() for phase in costs.phases)
        self._triples, self._sums = self._all_triples()

    def within(self, room: int) -> Iterator[SubDistribution]:
        """Yield the sub-distributions of at most `room` units, each after all its prefixes."""
        level = list(self._first(room))
        while level and len(level[0].chunks) <= MAX_CHUNKS:
            yield from level
            longer = {
                extended.chunks: extended
                for prefix in level
                for extended in self._longer(prefix, room)
            }
            by_speed = sorted(longer.values(), key=lambda extended: -extended.speed)
            level = by_speed[:MAX_BRANCHES]

    # ---- steps 1 and 2: three chunks

    def _all_triples(self) -> tuple[Sizes, Sizes]:
        """Return all b1, b3 with the b2 of equation (7), fastest first; and their sums."""
        largest_end = min(self._largest, self._room - 2)
        if largest_end < 1:
            return np.zeros((0, 3), dtype=np.int64), np.zeros(0, dtype=np.int64)
        ends = np.arange(1, largest_end + 1)
        if largest_end > MAX_END_SIZES:
            ends = np.unique(np.geomspace(1, largest_end, MAX_END_SIZES).round().astype(np.int64))
        first, last = (grid.ravel() for grid in np.meshgrid(ends, ends, indexing="ij"))
        out, inward = self._rising[2][first], self._rising[0][last]
        needed = np.maximum(out, inward) if self._full else out + inward
        middle = np.maximum(self._at_least(1, needed), 1)
        sums = first + middle + last
        keep = (middle <= self._largest) & (sums <= self._room)
        triples = np.stack((first, middle, last), axis=1)[keep]
        if not len(triples):
            return triples, sums[keep]
        seconds = makespans(triples, 0, self._costs, self._overlap)
        order = np.lexsort((-sums[keep], -(sums[keep] / seconds)))
        return triples[order], sums[keep][order]

    def _first(self, room: int) -> Iterator[SubDistribution]:
        """Yield the fastest triple that fits, and the one whose end chunks hide b2's copies."""
        fitting = self._sums <= room
        if not fitting.any():
            return
        first, middle, last = self._triples[int(np.argmax(fitting))].tolist()
        computes = self._rising[1]
        hides_in = self._allowed(int(np.searchsorted(computes, self._in[middle])))
        hides_out = self._allowed(int(np.searchsorted(computes, self._out[middle])))
        triples = [
            (first, middle, last),
            (hides_in, middle, last),
            (first, middle, hides_out),
            (hides_in, middle, hides_out),
        ]
        for chunks in dict.fromkeys(triples):
            if min(chunks) and sum(chunks) <= room:
                yield self._sub_distribution(chunks)

    def _allowed(self, size: int) -> int:
        """Return `size`, at least 1; 0 if it exceeds the largest chunk."""
        return max(1, size) if size <= self._largest else 0

    def _at_least(self, phase: int, seconds: Floats) -> Sizes:
        """Return the smallest sizes whose `phase` takes at least `seconds`."""
        return np.searchsorted(self._rising[phase], seconds * (1 - 1e-12))

    # ---- step 3: one more chunk

    def _longer(self, prefix: SubDistribution, room: int) -> Iterator[SubDistribution]:
        """Yield `prefix` plus one chunk: the smallest and largest that equation (5) admits."""
        remaining = room - prefix.units
        if remaining < 1:
            return
        before, last = prefix.chunks[-2:]
        slot = self._compute[last] - (0.0 if self._full else self._out[before])
        tail = max(1, int(self._at_least(1, np.array([self._out[last]]))[0]))
        growth = int(np.searchsorted(self._rising[0], slot * (1 + 1e-12), "right")) - 1
        for size in {min(tail, remaining), min(growth, remaining)}:
            if 1 <= size <= min(growth, self._largest):
                yield self._appended(prefix, size)

    def _sub_distribution(self, chunks: Chunks) -> SubDistribution:
        rule = copy_in_rule(self._overlap, len(chunks), duplex=(1.0, 1.0))
        slots = MAX_SLOTS_IN_USE.get(self._overlap, MAX_CHUNKS)
        empty = Recurrence(0.0, FLOATS, rule, same_slots(slots))
        sub_distribution = SubDistribution((), 0, empty)
        for size in chunks:
            sub_distribution = self._appended(sub_distribution, size)
        return sub_distribution

    def _appended(self, prefix: SubDistribution, size: int) -> SubDistribution:
        recurrence = prefix.recurrence.branch()
        recurrence.append(self._in[size], self._compute[size], self._out[size])
        return SubDistribution((*prefix.chunks, size), prefix.units + size, recurrence)
