"""How cores' shares are cut: chunks as long as their calls are worth, and a shared tail.

Cores of one process leave a quarter of their shares to a tail (`device.TailPart`), from which they
take when they are done, so that they finish together although their speeds vary.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hetsched.device import TailPart
from hetsched.models.phases import MIN_CALL_FRACTION
from hetsched.planner.records import Assignment

CHUNKS_PER_CORE = 4
"""Chunks of a core's share if their times allow, so that other devices may steal some; but not
where a tail balances: there own chunks are as long as they may be, since each report costs the
engine a third of a millisecond on cores that compute."""
MIN_CHUNK_SECONDS, MAX_CHUNK_SECONDS = 0.020, 0.080
"""Bounds on a core's chunk: dispatch costs well under 1 % of the minimum, and a cancel or a lost
device at most the maximum."""
MAX_COSTLY_CHUNK_SECONDS = 1.0
"""Bound on a core's chunk where calls are expensive: as long as a cancel may take. A fifth of the
twelfth of the default of ``deadlines.stop``, after which a device that doesn't stop is killed."""
POOLED_FRACTION = 0.25
"""Of the shares, left to a tail. Simulated with speeds that vary by 10 % from run to run: enough
for 2 to 16 cores, a tenth isn't; it costs 0.3 % where nothing varies."""
MIN_TAKE_SECONDS, CALLS_PER_TAKE = 1e-3, 4
"""A chunk of a tail takes at least so long, twenty times what its message costs, and as so many
calls cost. The cores end apart by half of the last chunk; half as large ones save a quarter of it
and cost a call."""
MIN_TIME_RATIO = 0.5
"""A core whose share takes less than this part of the longest isn't meant to finish with the
others, such as one that is probed, and takes no part in a tail."""


def longest_chunk(call: float) -> float:
    """Return the bound on a core's chunk, seconds, given those of a call."""
    return max(MAX_CHUNK_SECONDS, min(call / MIN_CALL_FRACTION, MAX_COSTLY_CHUNK_SECONDS))


def chunk_count(seconds: float, call: float, *, has_tail: bool = False) -> int:
    """Return the chunks of a core's part of some `seconds`; `has_tail`: the rest is in a tail."""
    longest = longest_chunk(call)
    usual = min(max(seconds / CHUNKS_PER_CORE, MIN_CHUNK_SECONDS), MAX_CHUNK_SECONDS)
    is_costly = call > MIN_CALL_FRACTION * usual
    return max(1, round(seconds / (longest if has_tail or is_costly else usual)))


# ---- the shared tail


@dataclass(frozen=True)
class CoreShare:
    """A core's share of 1 unit or more, with its predicted seconds. `most`: of a chunk, units."""

    name: str
    group: str
    units: int
    seconds: float
    most: int
    call_seconds: float = 0.0

    @property
    def speed(self) -> float:
        return self.units / self.seconds

    @property
    def least(self) -> int:
        """Units whose time makes the cost of taking them, and of a call, pay."""
        seconds = max(MIN_TAKE_SECONDS, CALLS_PER_TAKE * self.call_seconds)
        return max(1, min(self.most, math.ceil(seconds * self.speed)))


@dataclass(frozen=True)
class PooledShare:
    """The pooled part of a core's share, and what it must know to take units of the tail."""

    units: int
    part: TailPart


def plan_tails(shares: Sequence[CoreShare], first: int) -> Mapping[str, PooledShare]:
    """Return what each core leaves to the tail of its group, all but one unit at most.

    Tails lie one after the other before `first`, the end of the load.
    """
    groups: dict[str, list[CoreShare]] = {}
    longest = max((share.seconds for share in shares), default=0.0)
    for share in shares:
        if share.seconds >= MIN_TIME_RATIO * longest:
            groups.setdefault(share.group, []).append(share)
    pooled: dict[str, PooledShare] = {}
    for cores in groups.values():
        units = [min(core.units // 2, round(POOLED_FRACTION * core.units)) for core in cores]
        total = sum(units)
        calls = CALLS_PER_TAKE * max(core.call_seconds for core in cores)
        is_dear = calls > MIN_CALL_FRACTION * max(core.seconds for core in cores)
        if len(cores) < 2 or total < sum(core.least for core in cores) or is_dear:
            continue
        first -= total
        speed = sum(core.speed for core in cores)
        for core, count in zip(cores, units, strict=True):
            part = TailPart(first, total, core.speed / speed, core.least, core.most)
            pooled[core.name] = PooledShare(count, part)
    return pooled


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


# ---- short shares


def sent_at_once(assignments: Sequence[Assignment]) -> tuple[Assignment, ...]:
    """Return a job's assignments, to be sent as a whole if all are short ones of one tail group.

    Then each core reports once. Chunks of others wait in the engine, so that they may be stolen.
    Nor if variants race: if one ends the process, the last report shows which.
    """
    groups = set()
    for each in assignments:
        info = None if each.candidate is None else each.candidate.info
        if info is None or not (info.is_plain_core and info.tail_group and _is_short(each)):
            return tuple(assignments)
        groups.add(info.tail_group)
    if len(groups) != 1:
        return tuple(assignments)
    return tuple(replace(each, window=max(each.window, len(each.chunks))) for each in assignments)


def _is_short(assignment: Assignment) -> bool:
    seconds = assignment.predicted_seconds
    if seconds is None or seconds > 1.0 or assignment.rivals:
        return False
    # Its own chunks end a quarter of a second late at most on a core at half its speed.
    share, own = assignment.plan.share, assignment.own_units
    return (2 * own - share) * seconds <= 0.25 * share
