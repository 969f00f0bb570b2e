"""The plans of Ilic & Sousa: factoring by two, and multi-installment with multi-distributions.

Section 4 (initialization), equation (11): a first run needs no model, and chunks of half the
remaining units measure many sizes. Section 3: a base of three chunks that overlap (step 1) and
variants of it (step 2) are extended chunk by chunk (step 3), then the remaining load likewise
(step 4); what is left runs chunk by chunk (step 5), and the fastest plan is chosen (step 6).
Sub-distributions are independent, so the best plan for a remaining load is computed once. Where
the paper leaves a choice, a phase of at least (at most) a given time means the smallest (largest)
whole size; a chunk that no longer fits is cut to the remaining room, as in the published lists;
branching is bounded. With two copy engines the conditions are those of the paper's figure 1(b). A
pipeline bound by its copies can't meet them; factoring by two is used if it is faster.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hetsched.memory import MemoryDemand
from hetsched.models import DeviceModel
from hetsched.models.validation import require_count
from hetsched.plans.costs import (
    MAX_GRANULES,
    MAX_SEARCHED_CHUNKS,
    Floats,
    PhaseCosts,
    costs_of,
    granular,
    largest_sub_distribution,
)
from hetsched.plans.device_plan import DevicePlan, Overlap, require_type, validate_request
from hetsched.plans.recurrence import Recurrence, Sizes, price, prices

MAX_END_SIZES = 160
"""Sizes of a first or third chunk to compare: all, or so many spread evenly by ratio."""
MAX_BRANCHES = 12
"""Fastest sub-distributions that are extended further, and with which a plan may continue."""
MAX_ROOMS_PLANNED = 4
"""Ratio of share to memory above which the fastest sub-distribution is simply repeated."""
MAX_SEARCHED_ROOMS = 24
"""Remaining loads for which sub-distributions are searched; others use those of a smaller one."""

Chunks = tuple[int, ...]
Option = tuple[Chunks, int, float]
"""A sub-distribution: chunks, their sum, seconds."""


def factoring(share: int, memory: MemoryDemand) -> DevicePlan:
    """Cut chunks of half the remaining units; halve the whole share first until they fit.

    Parameters
    ----------
    share : int, units
    memory : MemoryDemand

    Returns
    -------
    DevicePlan
        Installments; 64 -> 32, 16, 8, 4, 2, 1, 1.

    Raises
    ------
    DataError
        Not even one unit fits.
    UsageError
        The share is negative or not an integer; `memory` has the wrong type.
    """
    require_type("memory", memory, MemoryDemand)
    share = require_count("share", share)
    if share == 0:
        return DevicePlan(())
    memory.max_chunk(1)  # raises if one unit doesn't fit: splitting would never end
    return DevicePlan(_split(share, memory, {}))


def _split(
    share: int, memory: MemoryDemand, splits: dict[int, tuple[Chunks, ...]]
) -> tuple[Chunks, ...]:
    """Return the sub-distributions; `splits` keeps the work O(log share): two sizes per level."""
    if share not in splits:
        chunks = _halves(share)
        if memory.fits(chunks):
            splits[share] = (chunks,)
        else:
            larger = (share + 1) // 2
            splits[share] = _split(larger, memory, splits) + _split(share - larger, memory, splits)
    return splits[share]


def _halves(share: int) -> tuple[int, ...]:
    chunks = []
    while share:
        chunks.append((share + 1) // 2)
        share -= chunks[-1]
    return tuple(chunks)


def multi_installment(
    share: int, model: DeviceModel, memory: MemoryDemand, *, overlap: Overlap
) -> DevicePlan:
    """Return the paper's plan for one device, or factoring by two where that is faster.

    Parameters
    ----------
    share : int, units
    model : DeviceModel
        Of compute, copy in and copy out.
    memory : MemoryDemand
    overlap : Overlap

    Returns
    -------
    DevicePlan
        Consecutive sub-distributions that fit.

    Raises
    ------
    DataError
        Not even one unit fits.
    UsageError
        The share is negative or not an integer; a parameter has the wrong type; the model returns
        a negative time or NaN.
    """
    share = validate_request(share, model, memory, overlap)
    if share == 0:
        return DevicePlan(())
    plans = paper_steps(share, model, memory, overlap=overlap), factoring(share, memory)
    return min(plans, key=lambda plan: price(plan, model, overlap))


def paper_steps(
    share: int, model: DeviceModel, memory: MemoryDemand, *, overlap: Overlap
) -> DevicePlan:
    """Follow steps 1 to 6 alone. Parameters and errors: as for `multi_installment`."""
    is_large = memory.max_chunk(share) > MAX_GRANULES
    # Each remaining load is searched: fewer granules, if there are any at all.
    coarse = granular(share, memory, MAX_GRANULES // 4 if is_large else MAX_GRANULES)
    share, memory = coarse.share, coarse.memory
    costs = costs_of(model, coarse.largest, overlap, coarse.granule)
    if overlap is Overlap.NONE:
        singles: list[Chunks] = []  # step 5; they shrink often only where bytes may fall with size
        while share:
            size = memory.max_chunk(share)
            singles += [(size,)] * (share // size)
            share %= size
        return coarse.in_units(DevicePlan(tuple(singles)))
    room = largest_sub_distribution(share, memory)
    points = getattr(model.compute, "points", ())
    trusted = costs.largest
    if len(points):  # chunks stay near what a partial model has measured
        measured = float(max(point[0] for point in points))
        trusted = min(trusted, max(1, round(2 * measured / coarse.granule)))
    search = SubDistributionSearch(costs.up_to(trusted), overlap, room)
    return coarse.in_units(DevicePlan(_RemainingLoads(costs, memory, search, room).plan(share)))


class _RemainingLoads:
    """Steps 4 to 6: the best plan for each remaining load that can occur."""

    def __init__(
        self, costs: PhaseCosts, memory: MemoryDemand, search: SubDistributionSearch, room: int
    ) -> None:
        self._costs = costs
        self._memory = memory
        self._search = search
        self._room = room
        self._fastest: dict[int, list[SubDistribution]] = {}

    def plan(self, share: int) -> tuple[Chunks, ...]:
        repeated: tuple[Chunks, ...] = ()
        fastest = max(self._fastest_within(self._room), key=lambda sub: sub.speed, default=None)
        chunks = (self._costs.largest,) if fastest is None else fastest.chunks
        excess = share - MAX_ROOMS_PLANNED * self._room
        if excess > 0:
            times = -(-excess // sum(chunks))
            repeated = (chunks,) * times
            share -= times * sum(chunks)
        return repeated + self._best(share)

    def _best(self, share: int) -> tuple[Chunks, ...]:
        """Return the fastest plan. Smaller remaining loads come first, to avoid recursion."""
        options_of: dict[int, list[Option]] = {share: []}
        waiting = [share]
        while waiting:
            remaining = waiting.pop()
            options_of[remaining] = self._options(remaining)
            for _, units, _ in options_of[remaining]:
                rest = remaining - units
                if rest and rest not in options_of:
                    options_of[rest] = []
                    waiting.append(rest)
        best_of: dict[int, tuple[float, tuple[Chunks, ...]]] = {0: (0.0, ())}
        for remaining in sorted(options_of):
            best_of[remaining] = min(
                (
                    (
                        seconds + best_of[remaining - units][0],
                        (chunks, *best_of[remaining - units][1]),
                    )
                    for chunks, units, seconds in options_of[remaining]
                ),
                key=lambda option: option[0],
            )
        return best_of[share][1]

    def _options(self, remaining: int) -> list[Option]:
        options = [(s.chunks, s.units, s.seconds) for s in self._fastest_within(remaining)]
        single = self._costs.largest
        if remaining < single:
            single = self._memory.max_chunk(remaining)
        seconds = sum(float(phase[single]) for phase in self._costs)
        return [*options, ((single,), single, seconds)]

    def _fastest_within(self, remaining: int) -> list[SubDistribution]:
        """Return the fastest sub-distributions of at most `remaining` units, one per sum."""
        room = min(remaining, self._room)
        if room not in self._fastest and len(self._fastest) >= MAX_SEARCHED_ROOMS:
            room = max((searched for searched in self._fastest if searched <= room), default=0)
        if not room or room in self._fastest:
            return self._fastest.get(room, [])
        fastest_of: dict[int, SubDistribution] = {}
        for candidate in self._search.within(room):
            rival = fastest_of.get(candidate.units)
            is_faster = rival is None or candidate.seconds < rival.seconds
            if is_faster and self._memory.fits(candidate.chunks):
                fastest_of[candidate.units] = candidate
        fastest = sorted(fastest_of.values(), key=lambda sub: -sub.speed)[:MAX_BRANCHES]
        if room in fastest_of and fastest_of[room] not in fastest:
            fastest.append(fastest_of[room])
        self._fastest[room] = fastest
        return fastest


@dataclass(frozen=True)
class SubDistribution:
    """Chunks that are in device memory together. `units`: their sum."""

    chunks: Chunks
    units: int
    recurrence: Recurrence[float]

    @property
    def seconds(self) -> float:
        return float(self.recurrence.makespan)

    @property
    def speed(self) -> float:
        return self.units / self.seconds


class SubDistributionSearch:
    """A search for fast sub-distributions of at most `room` units; `costs` of allowed chunks."""

    def __init__(self, costs: PhaseCosts, overlap: Overlap, room: int) -> None:
        self._costs = costs
        self._overlap = overlap
        self._full = overlap is Overlap.FULL
        self._largest = costs.largest
        self._room = room
        self._rising = [np.maximum.accumulate(phase) for phase in costs]
        self._in, self._compute, self._out = (phase.tolist() for phase in costs)
        self._triples, self._sums = self._all_triples()

    def within(self, room: int) -> Iterator[SubDistribution]:
        """Yield the sub-distributions of at most `room` units, each after all its prefixes."""
        level = list(self._first(room))
        while level and len(level[0].chunks) <= MAX_SEARCHED_CHUNKS:
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
        seconds = prices(triples, 0, self._costs, self._overlap)
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
                empty = Recurrence(0.0, self._overlap, MAX_SEARCHED_CHUNKS)
                sub_distribution = SubDistribution((), 0, empty)
                for size in chunks:
                    sub_distribution = self._appended(sub_distribution, size)
                yield sub_distribution

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

    def _appended(self, prefix: SubDistribution, size: int) -> SubDistribution:
        recurrence = prefix.recurrence.branch()
        recurrence.extend([(self._in[size], self._compute[size], self._out[size])])
        return SubDistribution((*prefix.chunks, size), prefix.units + size, recurrence)
