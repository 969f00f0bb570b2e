"""The search for a good ring: recipes for its chunks, improved part by part.

A recipe cuts any share: a ramp up, a steady middle, a ramp down. Equal sublots are a good
heuristic for a flow shop of three stages (Potts & Baker 1989); growing ones at the ends fill and
drain the pipeline faster (Glass, Gupta & Potts 1994). If memory holds an odd number of units, the
middle repeats a pattern that fills it: 2, 3, 2, 3 in room for 5. Long plans are searched at a
shorter share: their steady middle only repeats itself.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from hetsched.memory import MemoryDemand
from hetsched.models import DeviceModel
from hetsched.models.curves import EQUAL
from hetsched.plans.costs import (
    EQUAL_CHUNKS,
    MAX_SEARCHED_CHUNKS,
    GranularShare,
    PhaseCosts,
    costs_of,
    granular,
    patterns,
)
from hetsched.plans.device_plan import (
    DevicePlan,
    Mode,
    Overlap,
    fits,
    slot_sizes,
    validate_request,
)
from hetsched.plans.recurrence import Sizes, price, prices

MAX_CHEAP_CHUNKS = 512
"""Maximum chunks in the middle where small chunks cost less per unit."""
KEPT = 24
"""Fastest recipes of which other ramps and sizes are tried. Where copies slow each other, as many
plans are priced exactly: searches stretch copies instead."""

Ring = tuple[tuple[int, ...], int]
"""Chunks and slots."""
Ramp = tuple[int, ...]

NEARLY = 1 + EQUAL


def best_plan(
    share: int, model: DeviceModel, memory: MemoryDemand, *, overlap: Overlap
) -> DevicePlan:
    """Return the fastest plan that the search finds, by predicted time.

    Parameters
    ----------
    share : int, units
    model : DeviceModel
        Only its phases are used; curves need only `time` of a number.
    memory : MemoryDemand
    overlap : Overlap

    Returns
    -------
    DevicePlan
        It fits `memory`; for a share of 0 it has no chunks.

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
    coarse = granular(share, memory)
    rings = _RingSearch(coarse, model, overlap).fastest_first()
    # Bytes needn't grow with size: an odd batch may need a larger work area. One unit always fits.
    plans = (plan for ring in rings if (plan := _fitting_plan(ring, coarse)) is not None)
    return next(plans, None) or DevicePlan(((1,) * share,), Mode.RING, 1)


def _fitting_plan(ring: Ring, share: GranularShare) -> DevicePlan | None:
    chunks, slots = ring
    used = min(slots, len(chunks))
    plan = DevicePlan((chunks,), Mode.RING, used)
    if share.memory.fits(slot_sizes(chunks, used)) and fits(plan, share.memory):
        return share.in_units(plan)
    return None


def _moved(chunks: Sizes) -> Sizes:
    """Return plans with one unit of a chunk, or all, in another chunk or in a new one in between.

    (n, chunks + 1) units; chunks of 0 units come last.
    """
    spaced = np.zeros(2 * len(chunks) + 1, dtype=np.int64)
    spaced[1::2] = chunks
    places = np.arange(len(spaced))
    from_end = np.minimum(places, places[::-1])
    places = places[(from_end < 6) | (from_end == len(chunks))]  # at both ends, and the middle
    to, source = (grid.ravel() for grid in np.meshgrid(places, places[spaced[places] > 0]))
    to, source = np.tile((to, source), 2)
    units = spaced[source]
    units[: len(units) // 2] = 1
    moved = np.tile(spaced, (len(units), 1))
    rows = np.arange(len(units))
    moved[rows, source] -= units
    moved[rows, to] += units
    order = np.argsort(moved == 0, axis=1, kind="stable")
    return np.take_along_axis(moved, order, axis=1)[:, : len(chunks) + 1]


class _RingSearch:
    """A search for the fastest ring for one share, in granules of its tables."""

    def __init__(self, share: GranularShare, model: DeviceModel, overlap: Overlap) -> None:
        self._model, self._overlap, self._granule = model, overlap, share.granule
        self._costs = costs_of(model, share.largest, overlap, share.granule)
        self._share = share.share
        self._patterns = patterns(self._share, share.memory)
        if len(self._patterns) > 1:
            del self._patterns[1]  # with one slot nothing overlaps: `serial_chunks` are best
        largest = max(min(sizes) for sizes in self._patterns.values())
        self._short_share = min(self._share, MAX_SEARCHED_CHUNKS * largest)

    def fastest_first(self) -> Iterator[Ring]:
        """Yield the rings found, the fastest first."""
        recipes = [] if self._overlap is Overlap.NONE else self._recipes()
        rings = whole = self._rings(recipes, self._short_share)
        if self._short_share < self._share:
            whole = self._rings(recipes, self._share)
        elif recipes:
            rings.append(self._improved(rings[1]))
        order = self._order(rings)
        if self._overlap is Overlap.FULL and min(self._model.duplex) < 1:
            # With one slot, as the first ring has, copies never meet.
            finalists = {0, *order[:KEPT]}
            exact = sorted(finalists, key=lambda index: self._exact(rings[index]))
            order = [*exact, *(index for index in order if index not in finalists)]
        return (whole[index] for index in order)

    def _rings(self, recipes: Sequence[Recipe], share: int) -> list[Ring]:
        """Return the serial chunks, and the rings of `recipes`, for `share` units."""
        serial = (serial_chunks(share, self._costs), 1)
        return [serial, *((recipe.chunks(share), recipe.slots) for recipe in recipes)]

    def _improved(self, ring: Ring) -> Ring:
        """Return `ring` after the moves of units that gain most, one after the other.

        Recipes can't tell chunks of few units apart. (0.05 % nearer to the bound in the mean.)
        """
        chunks, slots = ring
        room = sum(self._patterns[slots])
        seconds = float(prices([chunks], slots, self._costs, self._overlap)[0])
        while len(chunks) <= MAX_SEARCHED_CHUNKS:
            moved = _moved(np.array(chunks))
            count = moved.shape[1]
            turn = min(slots, count)
            slot_sizes = [moved[:, first::turn].max(axis=1) for first in range(turn)]
            fits = np.add.reduce(slot_sizes) <= room
            moved = moved[fits & (moved.max(axis=1) <= self._costs.largest)]
            if not len(moved):
                break
            times = prices(moved, slots, self._costs, self._overlap)
            fastest = int(np.argmin(times))
            if times[fastest] >= seconds / NEARLY:
                break
            seconds = float(times[fastest])
            chunks = tuple(moved[fastest][moved[fastest] > 0].tolist())
        return chunks, slots

    def _recipes(self) -> list[Recipe]:
        """Search recipes at the short share: the middle first, then its ramps, then its size."""
        largest = max(sizes[0] for sizes in self._patterns.values())
        reverse = PhaseCosts(*reversed(self._costs))
        up, down = (ramps(costs, largest, self._overlap) for costs in (self._costs, reverse))
        best = self._fastest(self._middles())
        best = self._fastest(best + [r._replace(up=ramp) for r in best for ramp in up])
        best = self._fastest(best + [r._replace(down=ramp) for r in best for ramp in down])
        return self._fastest(best + self._other_middles(best))

    def _middles(self) -> list[Recipe]:
        recipes = []
        for slots, sizes in self._patterns.items():
            if sizes[0] != sizes[-1]:
                rotated = [sizes[first:] + sizes[:first] for first in range(slots)]
                recipes += [Recipe(pattern, slots) for pattern in rotated]
            largest = sizes[-1]
            equal = {max(1.0, min(largest, self._short_share / count)) for count in EQUAL_CHUNKS}
            recipes += [Recipe(size, slots) for size in sorted(equal)]
            # Cheap sizes aren't changed to make chunks equal.
            recipes += [Recipe((size,), slots) for size in self._cheap_sizes(largest)]
        return recipes

    def _other_middles(self, recipes: Sequence[Recipe]) -> list[Recipe]:
        others = []
        for recipe, (slots, sizes) in itertools.product(recipes, self._patterns.items()):
            if not isinstance(recipe.middle, tuple):
                near = [
                    recipe.middle * factor for factor in (0.5, 0.7, 0.85, 1.0, 1.15, 1.5, 2.0, 4.0)
                ]
                equal = {max(1.0, min(size, sizes[-1])) for size in near}
                others += [recipe._replace(middle=size, slots=slots) for size in equal]
            elif sizes[0] != sizes[-1]:
                others.append(recipe._replace(middle=sizes, slots=slots))
        return others

    def _cheap_sizes(self, largest: int) -> Iterator[int]:
        """Yield of each octave the size of least cost per unit, where a phase isn't a line.

        A size next to it may take twice as long.
        """
        has_bends = any(
            np.abs(np.diff(phase[1:], 2)).max(initial=0.0) > (NEARLY - 1) * float(phase[-1])
            for phase in self._costs
        )
        if not has_bends:
            return
        busiest = self._costs.up_to(largest).busiest(self._overlap)
        paces = busiest[1:] / np.arange(1, largest + 1)
        for power in range(largest.bit_length()):
            low, high = 1 << power, min(1 << (power + 1), largest + 1)
            size = low + int(np.argmin(paces[low - 1 : high - 1]))
            if self._short_share <= MAX_CHEAP_CHUNKS * size:
                yield size

    def _fastest(self, recipes: Iterable[Recipe]) -> list[Recipe]:
        recipe_of: dict[Ring, Recipe] = {}
        for recipe in recipes:
            recipe_of.setdefault((recipe.chunks(self._short_share), recipe.slots), recipe)
        different = list(recipe_of.values())
        return [different[index] for index in self._order(list(recipe_of))[:KEPT]]

    def _order(self, rings: Sequence[Ring]) -> list[int]:
        chunks, slots = zip(*rings, strict=True)
        seconds = prices(chunks, slots, self._costs, self._overlap)
        order: list[int] = np.argsort(seconds, kind="stable").tolist()
        return order

    def _exact(self, ring: Ring) -> float:
        """Return the seconds of a ring whose copies slow each other, to the granule."""
        chunks, slots = ring
        sizes = tuple(size * self._granule for size in chunks)
        plan = DevicePlan((sizes,), Mode.RING, slots)
        return price(plan, self._model, self._overlap)


# ---- recipes


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
    while size < len(last) - 1 and len(sizes) < 24:
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
