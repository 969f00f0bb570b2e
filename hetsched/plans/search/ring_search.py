"""The search for a good ring: recipes for its chunks, improved part by part.

Long plans are searched at a shorter share: their steady middle only repeats itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hetsched.memory import MemoryDemand
from hetsched.plans.device_plan import DevicePlan, Mode, Overlap, slot_sizes
from hetsched.plans.makespans import makespans, padded
from hetsched.plans.memory_fit import MAX_SLOTS, patterns
from hetsched.plans.phase_costs import Floats, PhaseCosts
from hetsched.plans.search.ramps import Ramp, ramps
from hetsched.plans.search.recipes import Recipe, evenly, leftover_patterns, spread_out
from hetsched.plans.search.serial_chunks import serial_chunks

CHUNK_COUNTS = (
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    8,
    10,
    12,
    14,
    16,
    20,
    24,
    28,
    32,
    40,
    48,
    56,
    64,
    80,
    96,
    128,
)
"""Numbers of chunks in the middle tried first, before refining sizes around the best."""
MAX_EQUAL_CHUNKS = 64
MAX_CHEAP_CHUNKS = 512
"""Maximum chunks in the middle where small chunks cost less per unit."""
MAX_SEARCHED_CHUNKS = 160
"""Chunks beyond which a plan is searched at a shorter share."""
MAX_PRICED_CHUNKS = 4096
"""Chunks up to which the final choice is made at the whole share. Longer plans differ from shorter
ones by turns of their steady middle. Arbitrary."""
RECIPES_KEPT = 4
"""Fastest recipes kept for the next step."""
REFINEMENTS = 2
"""Rounds of changes to the best recipes. Arbitrary: further ones gain almost nothing."""
SIZE_FACTORS = (0.5, 0.65, 0.8, 0.9, 1.1, 1.25, 1.5, 2.0)
"""Sizes of the middle around a good one."""
ROUNDING = 1e-9
"""Relative; smaller gains are rounding errors."""

Ring = tuple[tuple[int, ...], int]
"""Chunks and slots; 0 slots: all chunks are in device memory together."""


@dataclass(frozen=True)
class PricedRing:
    """A plan of one sub-distribution with its makespan. `slots`: as in `Ring`.

    The makespan of plans with more than `MAX_PRICED_CHUNKS` chunks is an estimate.
    """

    seconds: float
    chunks: tuple[int, ...]
    slots: int

    def plan(self) -> DevicePlan:
        slots = self.slots or len(self.chunks)
        return DevicePlan((self.chunks,), Mode.RING, min(slots, len(self.chunks)))


class RingSearch:
    """A search for the fastest ring for one share.

    Parameters
    ----------
    share : int, units, >= 1
    costs : PhaseCosts
    memory : MemoryDemand
    overlap : Overlap
    """

    def __init__(
        self,
        share: int,
        costs: PhaseCosts,
        memory: MemoryDemand,
        overlap: Overlap,
    ) -> None:
        self._costs = costs
        self._memory = memory
        self._overlap = overlap
        self._patterns = patterns(share, memory)
        if len(self._patterns) > 1:
            del self._patterns[1]  # with one slot nothing overlaps: `serial_chunks` is optimal
        self._share = share
        largest = max(min(sizes) for sizes in self._patterns.values())
        self._short_share = min(share, MAX_SEARCHED_CHUNKS * largest)
        self._priced_share = min(share, MAX_PRICED_CHUNKS * largest)

    def best(self) -> PricedRing:
        """Return the fastest ring of the search that fits; `quick` is a part of it."""
        if self._overlap is Overlap.NONE:
            return self.quick()
        refined = self._recipes
        for _ in range(REFINEMENTS):
            refined = self._refined(refined)
        return self._fastest_of([*self._recipes, *refined], self._equal_rings())

    def quick(self) -> PricedRing:
        """Return a ring after a shorter search: mostly within 0.5 % of the best."""
        return self._fastest_of([] if self._overlap is Overlap.NONE else self._recipes)

    def _fastest_of(self, recipes: Sequence[Recipe], others: Iterable[Ring] = ()) -> PricedRing:
        """Return the fastest ring of `recipes`, the serial chunks and `others`."""
        if self._priced_share == self._share:
            return self._fastest([*self._rings(recipes, self._share), *others])
        seconds = self._seconds(self._rings(recipes, self._priced_share))
        rings = self._rings(recipes, self._share)
        for index in np.argsort(seconds, kind="stable").tolist():
            estimate = float(seconds[index]) * self._share / self._priced_share
            ring = PricedRing(estimate, *rings[index])
            if self._fits(ring):
                return ring
        return self._unit_by_unit()

    def _rings(self, recipes: Sequence[Recipe], share: int) -> list[Ring]:
        """Return the rings of `recipes` for `share` units, and the serial chunks."""
        serial = (serial_chunks(share, self._costs), 1)
        return [serial, *((recipe.chunks(share), recipe.slots) for recipe in recipes)]

    def _equal_rings(self) -> Iterable[Ring]:
        """Yield all rings of few equal chunks, so that no such plan beats the result."""
        fewest = -(-self._share // self._costs.largest)
        for chunks in range(fewest, min(MAX_EQUAL_CHUNKS, self._share) + 1):
            for slots, sizes in self._patterns.items():
                if self._share <= -(-chunks // slots) * sum(sizes):
                    yield evenly(self._share, chunks), slots
                    yield spread_out(self._share, chunks), slots

    def _fastest(self, rings: Sequence[Ring]) -> PricedRing:
        """Return the fastest of `rings` that fits, in the fewest slots of equal speed."""
        rings = list(dict.fromkeys(rings))
        seconds = self._seconds(rings)
        for index in np.argsort(seconds, kind="stable").tolist():
            ring = PricedRing(float(seconds[index]), *rings[index])
            if self._fits(ring):
                return self._with_fewest_slots(ring)
        return self._unit_by_unit()

    def _fits(self, ring: PricedRing) -> bool:
        """Return whether the slots for these chunks fit together."""
        slots = ring.slots or len(ring.chunks)
        return self._memory.fits(slot_sizes(ring.chunks, slots))

    def _with_fewest_slots(self, ring: PricedRing) -> PricedRing:
        """Return the same chunks in the fewest slots of equal speed, to send few chunks ahead."""
        slots = ring.slots or len(ring.chunks)
        if slots <= 2 or len(ring.chunks) > MAX_SEARCHED_CHUNKS:
            return ring
        for counts in (range(1, MAX_SLOTS + 1), range(MAX_SLOTS + 1, slots)):
            if counts:
                seconds = self._seconds([(ring.chunks, count) for count in counts])
                is_as_fast = seconds <= ring.seconds * (1 + ROUNDING)
                if is_as_fast.any():
                    fewest = int(np.argmax(is_as_fast))
                    return PricedRing(float(seconds[fewest]), ring.chunks, counts[fewest])
        return ring

    def _unit_by_unit(self) -> PricedRing:
        """Return single units, which always fit, for demands that don't grow with size."""
        seconds = self._share * sum(float(phase[1]) for phase in self._costs.phases)
        return PricedRing(seconds, (1,) * self._share, 1)

    # ---- recipes

    @cached_property
    def _recipes(self) -> list[Recipe]:
        """Search recipes at the short share: the middle first, then its ramps, then its size."""
        up, down = self._ramps
        best = self._fastest_recipes(self._middles())
        best = self._fastest_recipes([r._replace(up=ramp) for r in best for ramp in up])
        best = self._fastest_recipes([r._replace(down=ramp) for r in best for ramp in down])
        return self._fastest_recipes([*best, *self._other_middles(best)])

    def _refined(self, best: list[Recipe]) -> list[Recipe]:
        """Return the fastest recipes near `best`, whose ramps were chosen for another middle."""
        up, down = self._ramps
        best = self._fastest_recipes([*best, *(best[0]._replace(up=ramp) for ramp in up)])
        best = self._fastest_recipes([*best, *(best[0]._replace(down=ramp) for ramp in down)])
        return self._fastest_recipes([*best, *self._other_middles(best)])

    @cached_property
    def _ramps(self) -> tuple[list[Ramp], list[Ramp]]:
        """Return ramps up, and ramps down before mirroring."""
        largest = max(sizes[0] for _, sizes in self._sizes_in_memory())
        up, down = (
            ramps(phases, largest, self._overlap)
            for phases in (self._costs.phases, self._costs.phases[::-1])
        )
        return up, down

    def _middles(self) -> list[Recipe]:
        recipes = []
        for slots, sizes in self._sizes_in_memory():
            if sizes[0] != sizes[-1]:
                rotated = (sizes[first:] + sizes[:first] for first in range(slots))
                recipes += [Recipe(pattern, slots) for pattern in dict.fromkeys(rotated)]
            if slots and self._short_share == self._share:
                for pattern in leftover_patterns(self._share, sizes):
                    if max(pattern) <= self._costs.largest:
                        recipes.append(Recipe(pattern, slots))
            recipes += [Recipe((size,), slots) for size in self._equal_sizes(sizes[-1])]
        return recipes

    def _cheap_sizes(self, largest: int) -> list[int]:
        """Return sizes for the middle that must not be changed to make chunks equal.

        Of each octave that of least cost per unit, where a phase isn't a line: a size next to it
        may take twice as long. None of which the short share has very many.
        """
        if not self._has_bends:
            return []
        paces = self._busiest(largest)[1:] / np.arange(1, largest + 1)
        ends = [1 << power for power in range(largest.bit_length() + 1)]
        octaves = [(low - 1, min(high - 1, largest)) for low, high in itertools.pairwise(ends)]
        sizes = [low + 1 + int(np.argmin(paces[low:high])) for low, high in octaves if low < high]
        return [size for size in sizes if self._short_share <= MAX_CHEAP_CHUNKS * size]

    @cached_property
    def _has_bends(self) -> bool:
        return any(
            np.abs(np.diff(phase[1:], 2)).max(initial=0.0) > ROUNDING * float(phase[-1])
            for phase in self._costs.phases
        )

    def _equal_sizes(self, largest: int) -> list[int]:
        """Return sizes of equal chunks, units, for a middle."""
        sizes = {min(largest, -(-self._short_share // count)) for count in CHUNK_COUNTS}
        cheapest = self._cheapest_size(largest)
        if self._short_share <= MAX_CHEAP_CHUNKS * cheapest:
            sizes.add(cheapest)
        return sorted(sizes)

    def _cheapest_size(self, largest: int) -> int:
        """Return the size of least cost per unit on the busiest engine; small where cliffs are."""
        busiest = self._busiest(largest)[1:]
        return 1 + int(np.argmin(busiest / np.arange(1, len(busiest) + 1)))

    def _busiest(self, largest: int) -> Floats:
        """Return the seconds of a chunk on its busiest engine, by its units from 0 on."""
        return self._costs.up_to(largest).busiest(self._overlap)

    def _sizes_in_memory(self) -> Iterable[tuple[int, tuple[int, ...]]]:
        """Yield slots and the largest chunks they hold; 0 slots: the whole share, if it fits."""
        yield from self._patterns.items()
        if self._short_share == self._share == self._costs.largest:
            yield 0, (self._share,)

    def _other_middles(self, recipes: Sequence[Recipe]) -> Iterable[Recipe]:
        fastest = recipes[0]
        for size in self._cheap_sizes(self._patterns.get(fastest.slots, (self._share,))[-1]):
            yield fastest._replace(middle=(size, size))
        for recipe in recipes:
            for slots, sizes in self._sizes_in_memory():
                if len(recipe.middle) == 1:
                    for factor in (1.0, *SIZE_FACTORS):
                        size = max(1, min(round(recipe.middle[0] * factor), sizes[-1]))
                        yield recipe._replace(middle=(size,), slots=slots)
                elif sizes[0] != sizes[-1]:
                    yield recipe._replace(middle=sizes, slots=slots)

    def _fastest_recipes(self, recipes: Iterable[Recipe]) -> list[Recipe]:
        """Return the fastest of `recipes` at the short share, without duplicates."""
        recipe_of: dict[Ring, Recipe] = {}
        for recipe in recipes:
            recipe_of.setdefault((recipe.chunks(self._short_share), recipe.slots), recipe)
        fastest = np.argsort(self._seconds(list(recipe_of)), kind="stable")[:RECIPES_KEPT]
        different = list(recipe_of.values())
        return [different[index] for index in fastest.tolist()]

    def _seconds(self, rings: Sequence[Ring]) -> Floats:
        slots = np.array([slots for _, slots in rings])
        return makespans(
            padded([chunks for chunks, _ in rings]), slots, self._costs, self._overlap
        )
