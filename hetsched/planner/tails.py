"""How much of the cores' shares is left to a shared tail, and the rule by which they take it.

The pooled fraction follows the learnt variation of the cores' speed from run to run
(`DeviceModel.variation`): a core that is slower than planned must be able to give up as much of
its share as that takes, and no more, since own chunks are larger. The rule of taking is in
`device.TailPart`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from hetsched.device import ChunkTimes, TailPart
from hetsched.planner.records import Assignment

MAX_FRACTION = 0.5
"""Largest pooled fraction of the shares."""
FRACTION_PER_DEVIATION = 2.5
"""Pooled fraction per standard deviation of the logarithm of speed. Simulated: with 10 %, 25 % of
the shares are enough for 2 to 16 cores, and 10 % are not."""
MIN_DEVIATION = 0.01
"""Below that no tail pays: the split itself is no better."""
TAKE_SECONDS = 50e-6
"""Cost of taking a chunk: its calls and its message. Estimate."""
MIN_TIME_RATIO = 0.5
"""A core whose share takes less than this part of the longest isn't meant to finish with the
others, such as one that is probed, and takes no part. Arbitrary."""
MIN_CHUNK_COSTS = 20
"""A chunk takes at least as long as this many takes."""
CALLS_PER_TAKE = 4
"""A chunk's units take at least as long as this many calls cost. The cores end apart by half of
the last chunk on average; chunks half as large save a quarter of it and cost a call more."""
MIN_CALLS_LATE = 3
"""Without a tail, the last core must end later than the mean by so many calls: about as many more
calls a tail needs. Simulated with 2 and 8 cores, calls of 5 to 55 ms, 1 and 6 s."""


@dataclass(frozen=True)
class CoreShare:
    """A core's share before pooling.

    Attributes
    ----------
    name, group : str
        The device and its group of cores that share a tail.
    units : int
        The share, at least 1.
    seconds : float
        Predicted for the share, > 0.
    variation : float
        Standard deviation of the logarithm of its speed from run to run.
    most : int, units
        Limit of a chunk.
    call_seconds : float, seconds
        Cost of each call of its kernel.
    """

    name: str
    group: str
    units: int
    seconds: float
    variation: float
    most: int
    call_seconds: float = 0.0

    @property
    def speed(self) -> float:
        """Units per second."""
        return self.units / self.seconds


@dataclass(frozen=True)
class PooledShare:
    """The pooled part of a core's share, and what it must know to take units of the tail."""

    units: int
    part: TailPart


def pooled_fraction(variation: float) -> float:
    """Return the fraction of the shares to pool; `variation` as `DeviceModel.variation`."""
    if variation < MIN_DEVIATION:
        return 0.0
    return min(MAX_FRACTION, FRACTION_PER_DEVIATION * variation)


def plan_tails(shares: Sequence[CoreShare], first: int) -> Mapping[str, PooledShare]:
    """Return what each core leaves to the tail of its group; cores without a tail are omitted.

    Each core keeps at least one unit. The most variable core of a group decides: it must be
    able to give up its part, and a larger tail costs the others little.

    Parameters
    ----------
    shares : sequence of CoreShare
        Only cores that may pool a part.
    first : int
        The unit behind all shares' own parts if nothing is pooled: the end of the load. Tails lie
        there, one after the other.
    """
    groups: dict[str, list[CoreShare]] = {}
    longest = max((share.seconds for share in shares), default=0.0)
    for share in shares:
        if share.seconds >= MIN_TIME_RATIO * longest:
            groups.setdefault(share.group, []).append(share)
    pooled: dict[str, PooledShare] = {}
    for cores in groups.values():
        units = _pooled_units(cores)
        total = sum(units.values())
        first -= total
        if total:
            pooled.update(_parts(cores, units, first, total))
    return pooled


def _pooled_units(cores: Sequence[CoreShare]) -> dict[str, int]:
    """Return the units that each core pools: none if the tail would be too small to balance."""
    fraction = pooled_fraction(max(core.variation for core in cores))
    units = {core.name: min(core.units // 2, round(fraction * core.units)) for core in cores}
    is_worthwhile = (
        len(cores) > 1
        and sum(units.values()) >= sum(map(_least, cores))
        and _expected_delay(cores) >= MIN_CALLS_LATE * max(core.call_seconds for core in cores)
    )
    return units if is_worthwhile else dict.fromkeys(units, 0)


def _expected_delay(cores: Sequence[CoreShare]) -> float:
    """Return by how much the last core ends later than the mean without a tail, seconds.

    The mean of the largest of n normal numbers (Blom, Statistical Estimates, 1958).
    """
    count = len(cores)
    largest = NormalDist().inv_cdf((count - 0.375) / (count + 0.25))
    seconds = max(core.seconds for core in cores)
    return largest * seconds * max(core.variation for core in cores)


def _parts(
    cores: Sequence[CoreShare], units: Mapping[str, int], first: int, total: int
) -> dict[str, PooledShare]:
    speed = sum(core.speed for core in cores)
    return {
        core.name: PooledShare(
            units[core.name],
            TailPart(
                first=first,
                units=total,
                weight=core.speed / speed,
                least=_least(core),
                most=core.most,
            ),
        )
        for core in cores
    }


def seconds_of_planned_share(
    assignment: Assignment, chunks: Sequence[tuple[int, ChunkTimes]], seconds: float
) -> float | None:
    """Return the time of the planned share, at the pace of what the device computed in `seconds`.

    None if units moved in another way than by the tail: its times aren't those of the plan.
    """
    own = sum(units for units, times in chunks if not times.taken)
    if own != assignment.own_units:
        return None
    return seconds * assignment.plan.share / sum(units for units, _ in chunks)


def _least(core: CoreShare) -> int:
    """Return the units whose time makes the cost of taking them, and of a call, pay."""
    seconds = max(MIN_CHUNK_COSTS * TAKE_SECONDS, CALLS_PER_TAKE * core.call_seconds)
    least = math.ceil(seconds * core.speed)
    return max(1, min(core.most, least))


def expected_takes(pooled: PooledShare) -> tuple[int, ...]:
    """Return the chunks, units, in which a core takes what it pooled if all cores are on time."""
    chunks: list[int] = []
    remaining = pooled.units
    part = pooled.part
    while remaining:
        fair = round(remaining / part.weight) if part.weight else 0
        chunks.append(min(remaining, part.units_to_take(max(remaining, fair))))
        remaining -= chunks[-1]
    return tuple(chunks)
