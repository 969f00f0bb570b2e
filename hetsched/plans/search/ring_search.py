"""The search for a good ring: recipes first, then units moved from chunk to chunk.

Long plans are searched at a shorter share: their steady middle only repeats itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from hetsched.memory import MemoryDemand
from hetsched.plans.batch_timeline import makespans, padded
from hetsched.plans.device_plan import DevicePlan, Mode, Overlap, slot_sizes
from hetsched.plans.memory_fit import patterns
from hetsched.plans.phase_costs import Costs
from hetsched.plans.search.climb import bent, neighbours
from hetsched.plans.search.growth import grown, rules
from hetsched.plans.search.ramps import Ramp, ramps
from hetsched.plans.search.recipes import Recipe, evenly, leftover, spread
from hetsched.plans.search.serial_chunks import serial_chunks

COUNTS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 128)
"""Chunks of the middle that are tried first, before sizes around the best are."""
MOST_EQUAL = 64
MOST_CHEAP = 512
"""Chunks of the middle at most where they are small because they are cheap."""
LONG = 160
"""Chunks from which on a plan is searched at a shorter share."""
KEPT = 4
"""Recipes, the best so far, that the next step starts from."""
NEARBY = (0.5, 0.65, 0.8, 0.9, 1.1, 1.25, 1.5, 2.0)
"""Sizes of the middle around one that is good."""
MOST_UNITS_MOVED = 1024
"""Larger shares have so many units that moving single ones gains nothing."""

MORE_OR_FEWER = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 1.25, 0.4, 0.3, 1.1, 1.5, 1.75, 2.0)
"""Chunks of plans that grow throughout, against those of the best recipe."""
MOST_CLIMBED = 80
"""Chunks of a plan that is still worth it."""
CLIMBED = 3
"""Plans from which units are moved."""
JUDGED = 4 * CLIMBED
STEPS = 40
CHECKED = 40
"""Neighbours, the fastest, of which one has to fit."""
LEAST_GAIN = 1e-9
"""Relative; less is rounding."""


@dataclass(frozen=True)
class Found:
    """A plan of one sub-distribution, and what it costs."""

    seconds: float
    chunks: tuple[int, ...]
    slots: int

    def plan(self) -> DevicePlan:
        slots = self.slots or len(self.chunks)
        return DevicePlan((self.chunks,), Mode.RING, min(slots, len(self.chunks)))


class Search:
    """Looks for the plan of least time for one share.

    Parameters
    ----------
    share : int, units, >= 1
    costs : Costs
    memory : MemoryDemand
    overlap : Overlap
    """

    def __init__(
        self,
        share: int,
        costs: Costs,
        memory: MemoryDemand,
        overlap: Overlap,
    ) -> None:
        self._costs = costs
        self._memory = memory
        self._overlap = overlap
        self._room = patterns(share, memory)
        if len(self._room) > 1:
            del self._room[1]  # two slots let phases overlap, one never does: see `_cut`
        self._share = share
        self._short = min(share, LONG * max(min(sizes) for sizes in self._room.values()))

    def best(self) -> Found:
        """The plan of least time found, which fits."""
        climbed = (self._climbed(one) for one in self._starts())
        return self._thrifty(min(climbed, key=lambda one: one.seconds))

    def quick(self) -> Found:
        """The same without moving single units: within a few tenths of a percent of it."""
        return self._thrifty(self._cut(fine=False)[0])

    def _thrifty(self, found: Found) -> Found:
        """The same chunks in as few slots as are as fast, so that little is sent ahead."""
        most = found.slots or len(found.chunks)
        if most <= 2 or len(found.chunks) > LONG:
            return found
        slots = np.arange(1, most + 1)
        sizes = np.repeat(padded([found.chunks]), most, axis=0)
        seconds = makespans(sizes, slots, self._costs, self._overlap)
        first = int(np.argmax(seconds <= found.seconds * (1 + LEAST_GAIN)))
        return Found(float(seconds[first]), found.chunks, first + 1)

    def _cut(self, fine: bool) -> list[Found]:
        """Plans that recipes and growth give, the fastest first."""
        serial = (serial_chunks(self._share, self._costs), 1)
        if self._overlap is Overlap.NONE:
            return self._judged([serial])
        recipes = self._recipes()
        plans = [serial, *self._of(recipes, fine=False)]
        if fine:  # more, and all that is found quickly
            plans += [*self._of(self._refined(recipes), fine=True), *self._equal()]
        return self._judged(plans)

    def _of(self, recipes: Sequence[Recipe], fine: bool) -> list[tuple[tuple[int, ...], int]]:
        plans = [(recipe.chunks(self._share), recipe.slots) for recipe in recipes]
        return [*plans, *self._grown(recipes, plans[0][0], fine)]

    def _equal(self) -> Iterable[tuple[tuple[int, ...], int]]:
        """All rings of equal chunks, so that none of them is ever better."""
        fewest = -(-self._share // self._costs.largest)
        for chunks in range(fewest, min(MOST_EQUAL, self._share) + 1):
            for slots, room in self._room.items():
                if self._share <= -(-chunks // slots) * sum(room):
                    yield evenly(self._share, chunks), slots
                    yield spread(self._share, chunks), slots

    def _starts(self) -> list[Found]:
        """Where to climb from: the fastest plans, different in their slots."""
        found = self._cut(fine=True)
        if len(found[0].chunks) > MOST_CLIMBED or self._share > MOST_UNITS_MOVED:
            return found[:1]
        several = {one.slots: one for one in reversed(found)}
        return sorted({found[0], *several.values()}, key=lambda one: one.seconds)[:CLIMBED]

    def _climbed(self, found: Found) -> Found:
        if len(found.chunks) > MOST_CLIMBED or self._share > MOST_UNITS_MOVED:
            return found
        step = max(1, max(found.chunks) // 4)
        for _ in range(STEPS):
            better = self._step(found, step)
            if better is not None:
                found = better
            elif step == 1:
                break
            else:
                step = max(1, step // 2)
        return found

    def _step(self, found: Found, step: int) -> Found | None:
        """The best of the neighbours that fits, if it is better than `found`."""
        sizes = neighbours(found.chunks, step)
        sizes = np.concatenate((sizes, bent(found.chunks, step / max(found.chunks))))
        sizes = sizes[sizes.max(axis=1) <= self._costs.largest]
        if not len(sizes):
            return None
        seconds = makespans(sizes, found.slots, self._costs, self._overlap)
        order = np.argsort(seconds, kind="stable")[:CHECKED]
        for index in order[seconds[order] < found.seconds * (1 - LEAST_GAIN)].tolist():
            chunks = tuple(size for size in sizes[index].tolist() if size)
            one = Found(float(seconds[index]), chunks, found.slots)
            if self._lie(one):
                return one
        return None

    def _lie(self, found: Found) -> bool:
        """Whether the slots that the chunks come into in turn fit together."""
        slots = found.slots or len(found.chunks)
        return self._memory.fits(slot_sizes(found.chunks, slots))

    # ---- recipes

    def _recipes(self) -> list[Recipe]:
        """The best few, judged at the short share."""
        up, down = self._ramps()
        best = self._better(self._middles())
        best = self._better([r._replace(up=ramp) for r in best for ramp in up])
        best = self._better([r._replace(down=ramp) for r in best for ramp in down])
        return self._better([*best, *self._nearby(best)])

    def _refined(self, best: list[Recipe]) -> list[Recipe]:
        """Once more around the best: its ramps were chosen for another middle."""
        up, down = self._ramps()
        best = self._better([*best, *(best[0]._replace(up=ramp) for ramp in up)])
        best = self._better([*best, *(best[0]._replace(down=ramp) for ramp in down)])
        return self._better([*best, *self._nearby(best)])

    def _ramps(self) -> tuple[list[Ramp], list[Ramp]]:
        largest = max(sizes[0] for _, sizes in self._together())
        phases = self._costs.phases
        up, down = (ramps(each, largest, self._overlap) for each in (phases, phases[::-1]))
        return up, down

    def _middles(self) -> list[Recipe]:
        recipes = []
        for slots, sizes in self._together():
            if sizes[0] != sizes[-1]:
                turned = (sizes[first:] + sizes[:first] for first in range(slots))
                recipes += [Recipe(each, slots) for each in dict.fromkeys(turned)]
            if slots and self._short == self._share:
                several = leftover(self._share, sizes)
                able = (each for each in several if max(each) <= self._costs.largest)
                recipes += [Recipe(each, slots) for each in able]
            equal = {min(sizes[-1], -(-self._short // count)) for count in COUNTS}
            cheapest = self._cheapest(sizes[-1])
            if self._short <= MOST_CHEAP * cheapest:
                equal.add(cheapest)
            recipes += [Recipe((size,), slots) for size in sorted(equal)]
        return recipes

    def _cheapest(self, largest: int) -> int:
        """The size that costs the busiest engine least a unit; with cliffs it may be small."""
        c_in, compute, c_out = (phase[1 : largest + 1] for phase in self._costs.phases)
        link = c_in + c_out if self._overlap is Overlap.SINGLE else np.maximum(c_in, c_out)
        return 1 + int(np.argmin(np.maximum(link, compute) / np.arange(1, len(compute) + 1)))

    def _together(self) -> Iterable[tuple[int, tuple[int, ...]]]:
        """Slots and what they hold; 0 slots: the whole share, if that fits."""
        yield from self._room.items()
        if self._short == self._share == self._costs.largest:
            yield 0, (self._share,)

    def _nearby(self, recipes: Sequence[Recipe]) -> Iterable[Recipe]:
        for recipe in recipes:
            for slots, room in self._together():
                if len(recipe.middle) == 1:
                    for factor in (1.0, *NEARBY):
                        size = max(1, min(round(recipe.middle[0] * factor), room[-1]))
                        yield recipe._replace(middle=(size,), slots=slots)
                elif room[0] != room[-1]:
                    yield recipe._replace(middle=room, slots=slots)

    def _better(self, recipes: Iterable[Recipe]) -> list[Recipe]:
        """The best few of `recipes` at the short share, all different there."""
        known: dict[tuple[tuple[int, ...], int], Recipe] = {}
        for recipe in recipes:
            known.setdefault((recipe.chunks(self._short), recipe.slots), recipe)
        seconds = self._seconds(list(known))
        order = np.argsort(seconds, kind="stable")[:KEPT].tolist()
        several = list(known.values())
        return [several[index] for index in order]

    # ---- plans

    def _grown(
        self, recipes: Sequence[Recipe], like: tuple[int, ...], fine: bool
    ) -> Iterable[tuple[tuple[int, ...], int]]:
        """Plans that grow throughout, of about as many chunks as `like`; none for long ones."""
        if self._short < self._share or len(like) > MOST_CLIMBED:
            return
        found = rules(self._costs, max(like), self._overlap)
        factors = MORE_OR_FEWER if fine else MORE_OR_FEWER[::3]
        counts = sorted({max(1, round(len(like) * factor)) for factor in factors})
        kept = recipes if fine else recipes[:1]
        ups, downs = ({(), *(r.up for r in kept)}, {(), *(r.down for r in kept)})
        ends = sorted((up, down) for up in ups for down in downs)
        for slots, room in self._together():
            for chunks in grown(self._share, room[-1], found, counts, ends):
                yield chunks, slots

    def _judged(self, plans: Sequence[tuple[tuple[int, ...], int]]) -> list[Found]:
        """The few fastest of `plans` (chunks and slots) that fit, the fastest first."""
        plans = list(dict.fromkeys(plans))
        seconds = self._seconds(plans)
        found: list[Found] = []
        for index in np.argsort(seconds, kind="stable").tolist():
            one = Found(float(seconds[index]), *plans[index])
            if self._lie(one):
                found.append(one)
            if len(found) == JUDGED:
                break
        return found or [self._unit_by_unit()]

    def _unit_by_unit(self) -> Found:
        """What always fits, for demands of bytes that don't grow with size."""
        seconds = self._share * sum(float(phase[1]) for phase in self._costs.phases)
        return Found(seconds, (1,) * self._share, 1)

    def _seconds(self, plans: Sequence[tuple[tuple[int, ...], int]]) -> np.ndarray:
        slots = np.array([slots for _, slots in plans])
        sizes = padded([chunks for chunks, _ in plans])
        return makespans(sizes, slots, self._costs, self._overlap)
