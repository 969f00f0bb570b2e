"""Races: variants of a workload that took turns on equal cores within a run, and what they show.

In a race all cores of one kind compute chunk j with the same variant, and the variants take turns
by chunk: a b b a a b b a. The chunks of one round, one by each variant, ran under the same
conditions (the moment, the neighbours), so the logarithm of the ratio of two of their paces shows
the variants' difference alone; a trend cancels over two rounds, whose orders are reversed. A few
ratios may be far off, because a chunk was interrupted: they are limited to three times their usual
deviation before mean and interval are computed (winsorized; Tukey & McLaughlin, Sankhya A 25,
1963). Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Annotated

import msgspec

from hetsched.models.samples import MAX_SECONDS, MIN_SECONDS, Moment, TimedChunks, is_time
from hetsched.models.windows import CERTAIN_ERRORS, DEVIATION_PER_MAD, MIN_NOISE
from hetsched.units import NUMBER_LIMIT

MAX_RACES = 12
"""Races of one job kept; earlier ones may reflect another machine."""
MAX_LOAD_RATIO = 4.0
"""Races at shares that differ by less are comparable."""
CONFIDENCE_T = (6.31, 2.92, 2.35, 2.13, 2.02, 1.94, 1.89, 1.86, 1.83, 1.81, 1.7)
"""Student's t of a two-sided interval of 90 %, by the degrees of freedom from 1 on; the last one
for all that are more."""

Pace = Annotated[float, msgspec.Meta(ge=MIN_SECONDS / NUMBER_LIMIT, le=MAX_SECONDS)]
Paces = Mapping[str, tuple[Pace | None, ...]]
"""Variant -> seconds per unit in each round on each core; None: its chunk doesn't count."""


class Race(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One run in which variants raced. Stored like that; the limits hold for decoded ones.

    `number`: of runs before it. `units`: mean share of a core. All have equally many `paces`.
    """

    number: Annotated[int, msgspec.Meta(ge=0, le=NUMBER_LIMIT - 1)]
    units: Annotated[float, msgspec.Meta(ge=0, lt=NUMBER_LIMIT)]
    paces: Paces
    at: Moment = 0.0


@dataclass(frozen=True)
class Comparison:
    """The logarithm of one variant's time over another's, with its interval of 90 %."""

    mean: float
    low: float
    high: float
    races: int

    @property
    def ratio(self) -> float:
        return math.exp(self.mean)

    def reversed(self) -> Comparison:
        return replace(self, mean=-self.mean, low=-self.high, high=-self.low)


@dataclass(frozen=True)
class RaceRecord:
    """The races of one job on one kind of core, oldest first."""

    races: tuple[Race, ...] = ()
    _compared: dict[tuple[str, str], Comparison | None] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """Results of `compare`: a plan needs each several times, and most of its time went there."""

    def with_race(self, race: Race) -> RaceRecord:
        return RaceRecord((*self.races, race)[-MAX_RACES:])

    def renamed(self, names: Mapping[str, str]) -> RaceRecord:
        """Return the races with other names of the variants; those without a name are left out."""
        races = tuple(
            Race(
                race.number,
                race.units,
                {names[variant]: p for variant, p in race.paces.items() if variant in names},
            )
            for race in self.races
        )
        return RaceRecord(races)

    def similar(self, units: float) -> RaceRecord:
        races = tuple(
            race
            for race in self.races
            if race.units / MAX_LOAD_RATIO <= units <= race.units * MAX_LOAD_RATIO
        )
        return self if len(races) == len(self.races) else RaceRecord(races)

    def variants(self) -> set[str]:
        """Return the variants that have raced with countable results."""
        return {v for race in self.races for v, paces in race.paces.items() if any(paces)}

    def compare(self, variant: str, other: str) -> Comparison | None:
        """Return how much slower `variant` is than `other`; None if they never raced."""
        pair = (variant, other)
        if pair not in self._compared:
            found = []
            for race in self.races:
                pairs = zip(race.paces.get(variant, ()), race.paces.get(other, ()), strict=False)
                found.append([math.log(pace / rival) for pace, rival in pairs if pace and rival])
            comparison = None
            if any(found):
                mean, half_width = _interval([ratio for ratios in found for ratio in ratios])
                races = sum(map(bool, found))
                comparison = Comparison(mean, mean - half_width, mean + half_width, races)
            self._compared[pair] = comparison
            self._compared[other, variant] = comparison and comparison.reversed()
        return self._compared[pair]

    def fastest(self, names: Iterable[str]) -> str | None:
        """Return the first of `names` that raced, or one faster for certain; None if none did."""
        raced = self.variants()
        remaining = [name for name in names if name in raced]
        best = remaining.pop(0) if remaining else None
        while best is not None:
            gains = {name: self.compare(best, name) for name in remaining}
            faster = {name: gain.mean for name, gain in gains.items() if gain and gain.low > 0}
            if not faster:
                break
            # One that was left behind isn't compared again: the ratios may form a circle.
            best = max(faster, key=lambda name: faster[name])
            remaining.remove(best)
        return best


NO_RACES = RaceRecord()


def race_paces(chunks: TimedChunks, variants: Sequence[str]) -> dict[str, list[float | None]]:
    """Return the paces of one core's part of a race, by variant.

    Cold chunks don't count unless all rounds have such.
    """
    rounds = [
        chunks[start : start + len(variants)]
        for start in range(0, len(chunks) - len(variants) + 1, len(variants))
    ]
    counts_cold = all(any(times.cold for _, times in each) for each in rounds)
    paces: dict[str, list[float | None]] = {variant: [] for variant in variants}
    for each in rounds:
        by_kernel: dict[int, float] = {}
        for units, times in each:
            seconds = times.end - times.start
            if is_time(seconds) and (counts_cold or not times.cold):
                by_kernel.setdefault(times.kernel, seconds / units)
        for kernel, variant in enumerate(variants):
            paces[variant].append(by_kernel.get(kernel))
    return paces


def _interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and the half-width of its interval, of values without their outliers."""
    middle = median(values)
    usual = DEVIATION_PER_MAD * median([abs(value - middle) for value in values])
    reach = CERTAIN_ERRORS * max(usual, MIN_NOISE)
    limited = [min(max(value, middle - reach), middle + reach) for value in values]
    mean = math.fsum(limited) / len(limited)
    freedom = len(values) - 1
    if not freedom:
        return mean, math.inf
    # `statistics.stdev` computes with fractions: a hundred times as long.
    variance = math.fsum([(value - mean) ** 2 for value in limited]) / freedom
    deviation = max(math.sqrt(variance), MIN_NOISE)
    t = CONFIDENCE_T[min(freedom, len(CONFIDENCE_T)) - 1]
    return mean, t * deviation / math.sqrt(len(values))
