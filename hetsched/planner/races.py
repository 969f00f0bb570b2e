"""Races: which variants take turns on equal cores in a run, by which chunks, and the results.

All cores of one kind compute chunk j with the same variant, so that neighbours and moment are the
same. Pure.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from hetsched.models.races import Race, RaceRecord, race_paces
from hetsched.models.samples import Sample, TimedChunks, run_samples
from hetsched.planner.records import Assignment, PlannedRace
from hetsched.planner.variants import MIN_RACE_UNITS
from hetsched.units import counted

FIRST_ROUNDS = 3
"""Rounds of a first race, and of one against a slow variant: in the first of them kernels are
cold, two count."""
MAX_RACE_CHUNKS = 16
"""Chunks of a core in a race, if the variants are close: more rounds decide sooner."""


def first_race(devices: Sequence[Assignment]) -> PlannedRace | None:
    """Return a race of all variants, on cores that measured none."""
    candidate = devices[0].candidate
    share = min(each.plan.share for each in devices)
    if candidate is None or not candidate.can_race or share < MIN_RACE_UNITS:
        return None
    if any(each.model is not None for each in devices):
        return None
    rivals = [name for name in candidate.models if name != devices[0].variant][: share - 1]
    return PlannedRace(tuple(rivals), FIRST_ROUNDS) if rivals else None


def rounds_of(ratios: Sequence[float], *, is_first: bool) -> int:
    """`ratios`: times of the rivals over that of the best."""
    if is_first or max(ratios) > 1.25:
        return FIRST_ROUNDS
    return max(FIRST_ROUNDS, MAX_RACE_CHUNKS // (1 + len(ratios)))


@dataclass(frozen=True)
class RacePart:
    """A core's part of a race; none by default.

    `kernels`: of its first chunks. `chunks`: into how many all cores cut their shares.
    """

    rivals: tuple[str, ...] = ()
    kernels: tuple[int, ...] = ()
    chunks: int = 0


def race_part(race: PlannedRace, shares: Sequence[int], chunks: Sequence[int]) -> RacePart:
    """Return the part of each core in a race, of fewer rounds if shares have too few units.

    `chunks`: into how many each share is cut without it.
    """
    variants = 1 + len(race.rivals)
    smallest = min(shares)
    possible = min(race.rounds, smallest // variants)
    count = min(smallest, max(possible * variants, *chunks))
    # Every second round is reversed, against trends.
    forward = tuple(range(variants))
    order = (k for number in range(possible) for k in (forward, forward[::-1])[number % 2])
    return RacePart(race.rivals, tuple(order), count)


# ---- what a run shows


def variant_samples(assignment: Assignment, chunks: TimedChunks) -> dict[str, list[Sample]]:
    """Return the samples of each variant; its total is that of the share, by its median pace."""
    samples: dict[str, list[Sample]] = {}
    for kernel, variant in enumerate(assignment.variants):
        own = [(units, times) for units, times in chunks if times.kernel == kernel]
        if own:
            seconds = sum(times.end - times.start for _, times in own)
            found = run_samples(own, (), sum(units for units, _ in own), seconds, link=False)
            warm = [chunk for chunk in own if not chunk[1].cold] or own
            pace = statistics.median((times.end - times.start) / units for units, times in warm)
            share = assignment.plan.share
            samples[variant] = [
                replace(each, units=share, seconds=pace * share) if each.curve == "total" else each
                for each in found
            ]
    return samples


def race_of(
    number: int, assignments: Sequence[Assignment], chunks: Mapping[str, TimedChunks]
) -> Race | None:
    """Return the race of equal cores, after `number` runs; None if nothing can be compared."""
    variants = assignments[0].variants
    paces: dict[str, list[float | None]] = {variant: [] for variant in variants}
    for assignment in assignments:
        own = chunks[assignment.device]
        timed = [(u, t.end - t.start, t.kernel, t.cold) for u, t in own]
        for variant, found in race_paces(timed, variants).items():
            paces[variant] += found
    raced = {v: tuple(found) for v, found in paces.items() if any(found)}
    if len(raced) < 2:
        return None
    shares = [assignment.plan.share for assignment in assignments]
    return Race(number, statistics.fmean(shares), raced)


def standing(record: RaceRecord, best: str, names: Sequence[str]) -> str:
    behind = {name: c for name in names if name != best and (c := record.compare(name, best))}
    if not behind:
        return ""
    parts = [
        f"{name} takes {behind[name].ratio:.2f} times as long"
        for name in sorted(behind, key=lambda name: behind[name].mean)
    ]
    races = counted(max(comparison.races for comparison in behind.values()), "race")
    return f"{best} is the fastest in {races}: {', '.join(parts)}"
