"""The split of a load: shares such that all devices finish together.

The curve of each device with a link starts as a closed-form estimate. Plans are made only for the
shares of the resulting split; the curves are refined with their times, and the load is split
again, until the split repeats or stops improving. (Ours; the partitioner is that of
Lastovetsky & Reddy.)
"""

from __future__ import annotations

from collections.abc import Sequence

from hetsched.models import SpeedFunction
from hetsched.partition import geometric
from hetsched.planner.totals import CoreTotal, PlanCache

MAX_ROUNDS = 3
"""Maximum number of splits for which plans are made."""
MIN_RELATIVE_GAIN = 2e-4
"""A smaller gain isn't worth another round of plans. Arbitrary."""


def split_load(load: int, totals: Sequence[CoreTotal], cache: PlanCache) -> tuple[int, ...]:
    """Return shares that sum to `load`, with the shortest makespan.

    Parameters
    ----------
    load : int, units, >= 1
    totals : sequence of CoreTotal
        One per device, at least one. Refinable ones are refined at the shares returned.
    cache : PlanCache
    """
    if not any(total.is_refinable for total in totals):
        return _search(load, totals)
    fingerprints = tuple(total.fingerprint for total in totals)

    def compute() -> tuple[tuple[int, ...], tuple[SpeedFunction, ...]]:
        shares = _search(load, totals)
        return shares, tuple(total.curve for total in totals)

    key = None if None in fingerprints else (load, fingerprints)
    shares, curves = cache.get("splits", key, compute)
    for total, curve in zip(totals, curves, strict=True):
        total.curve = curve
    return shares


def _search(load: int, totals: Sequence[CoreTotal]) -> tuple[int, ...]:
    if load == 1:
        return _fastest_device(totals)
    makespans: dict[tuple[int, ...], float] = {}
    for _ in range(MAX_ROUNDS):
        split = geometric([total.curve for total in totals], load)
        if not any(total.is_refinable for total in totals):
            return split.shares
        if split.shares in makespans:
            break
        if makespans and split.makespan > (1 - MIN_RELATIVE_GAIN) * min(makespans.values()):
            break
        makespans[split.shares] = _refined_makespan(totals, split.shares)
    return min(makespans, key=lambda shares: makespans[shares])


def _refined_makespan(totals: Sequence[CoreTotal], shares: Sequence[int]) -> float:
    for total, share in zip(totals, shares, strict=True):
        if share:
            total.refine(share)
    return makespan(totals, shares)


def _fastest_device(totals: Sequence[CoreTotal]) -> tuple[int, ...]:
    """Return shares of a single unit, for the device that finishes it first."""
    times = [float(total.curve.time(1.0)) for total in totals]
    fastest = times.index(min(times))
    totals[fastest].refine(1)
    return tuple(int(index == fastest) for index in range(len(totals)))


def makespan(totals: Sequence[CoreTotal], shares: Sequence[int]) -> float:
    """Return the seconds until the last device finishes."""
    return max(
        float(total.curve.time(share))
        for total, share in zip(totals, shares, strict=True)
        if share
    )
