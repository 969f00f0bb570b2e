"""From a device's share to its Assignment: plan, chunks, slots, memory, window and tail.

Cores' chunks are as long as their calls are worth. Cores of one process leave a quarter of their
shares to a tail (`device.TailPart`), from which they take when they are done, so that they finish
together although their speeds vary.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from hetsched.device import Chunk, EvenChunks, TailPart
from hetsched.models import DeviceModel
from hetsched.models.phases import MIN_CALL_FRACTION
from hetsched.planner.records import Assignment, Candidate, PlannedRace
from hetsched.planner.totals import CoreTotal, LinkedTotal
from hetsched.plans.device_plan import DevicePlan, Mode, evenly, slot_sizes
from hetsched.plans.paper import factoring
from hetsched.plans.ring_search import best_plan
from hetsched.plans.slots import slot_bytes

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
MIN_FIRST_CHUNKS, MAX_FIRST_CHUNK_BYTES = 16, 64 << 20
"""Of a core's first share, if it has a few units for each chunk: there are no measurements yet,
and a cancel waits for the running chunk. Bytes of its input and output."""
MAX_FILE_CHUNK_BYTES = 16 << 20
"""Input and output of a core's chunk when the arrays are in files."""
MAX_CORE_CHUNKS = 40_000
"""Maximum chunks of a core's share in memory: over an hour at MAX_CHUNK_SECONDS. In a longer share
each chunk takes longer."""
WINDOW, LONG_CHUNK_WINDOW = 4, 2
"""Chunks sent ahead to a core, or to an unmeasured device with a link: on a busy machine the
engine may be descheduled for several milliseconds. Fewer if a single chunk lasts longer than that:
a sent chunk can't be moved to another device."""


@dataclass(frozen=True)
class Participant:
    """A candidate with its variant. `total`: seconds of its share; None: no measurements."""

    candidate: Candidate
    variant: str
    model: DeviceModel | None
    total: CoreTotal | None

    @property
    def name(self) -> str:
        return self.candidate.info.name

    @property
    def call_seconds(self) -> float:
        return 0.0 if self.model is None else self.model.call_seconds

    def seconds(self, units: int) -> float | None:
        return None if self.total is None else float(self.total.curve.time(units))

    def linked_plan(self, share: int) -> DevicePlan:
        candidate, trial = self.candidate, self.candidate.size_trial
        if self.model is None:
            return factoring(share, candidate.memory)
        if not isinstance(self.total, LinkedTotal):
            return best_plan(share, self.model, candidate.memory, overlap=candidate.overlap)
        return trial if trial is not None and trial.share == share else self.total.plan(share)


# ---- devices with a link


def linked_assignment(
    participant: Participant, plan: DevicePlan, first: int, chunk_ids: Iterator[int]
) -> Assignment:
    """Return the assignment of a device with a link, whose units start at `first`."""
    candidate = participant.candidate
    sizes = slot_sizes(plan.chunks, plan.slots) if plan.slots else ()
    slots = plan.slots or max(map(len, plan.sub_distributions))
    resident = [sizes] if sizes else dict.fromkeys(plan.sub_distributions)
    return Assignment(
        device=participant.name,
        variant=participant.variant,
        plan=plan,
        chunks=_linked_chunks(plan, first, chunk_ids),
        max_chunk=max(plan.chunks),
        slots=slots,
        slot_memory=max(sum(slot_bytes(candidate.demand, n) for n in held) for held in resident),
        window=WINDOW if participant.model is None else slots + 1,
        predicted_seconds=participant.seconds(plan.share),
        slot_sizes=sizes,
        candidate=candidate,
        model=participant.model,
    )


def _linked_chunks(plan: DevicePlan, first: int, chunk_ids: Iterator[int]) -> tuple[Chunk, ...]:
    """Return the chunks, marked `last` if no copy in follows that could delay their copy out."""
    serial = plan.mode is Mode.RING and plan.slots == 1
    chunks = []
    for number, sub_distribution in enumerate(plan.sub_distributions):
        final = len(sub_distribution) - 1
        for index, count in enumerate(sub_distribution):
            barrier = number > 0 and index == 0
            chunks.append(Chunk(next(chunk_ids), first, count, barrier, serial or index == final))
            first += count
    return tuple(chunks)


# ---- cores


def core_assignment(
    participant: Participant,
    share: int,
    first: int,
    chunk_ids: Iterator[int],
    part: PooledShare | RacePart | None,
    cuts: dict[Hashable, Assignment],
) -> Assignment:
    """Return the assignment of a device without a link, whose own units start at `first`.

    `part`: what it leaves to the tail, or takes in a race. `cuts`: of this job so far, as equal
    cores' equal shares are cut once.
    """
    candidate = participant.candidate
    key = (
        *(id(participant.total), participant.variant, participant.call_seconds),
        *(_largest_chunk(participant, share), share, part),
    )
    if key not in cuts:
        cuts[key] = _cut(participant, share, part)
    cut = cuts[key]
    own = cut.chunks
    assert isinstance(own, EvenChunks), "as _cut makes them"
    first_id, *_ = itertools.islice(chunk_ids, len(own))
    return replace(
        cut,
        device=participant.name,
        chunks=EvenChunks(first_id, first, own.units, len(own), own.kernels),
        candidate=candidate,
        model=participant.model,
    )


def _cut(participant: Participant, share: int, part: PooledShare | RacePart | None) -> Assignment:
    seconds = participant.seconds(share)
    tail = part.part if isinstance(part, PooledShare) else None
    takes = expected_takes(part) if isinstance(part, PooledShare) else ()
    race = part if isinstance(part, RacePart) else RacePart()
    pooled = sum(takes)
    chunks = race.chunks or _chunk_count(participant, share, share - pooled, seconds)
    own = evenly(share - pooled, chunks)
    plan = DevicePlan(((*own, *takes),))
    is_long = seconds is not None and seconds * own[-1] >= MIN_CHUNK_SECONDS * share
    return Assignment(
        device=participant.name,
        variant=participant.variant,
        plan=plan,
        chunks=EvenChunks(0, 0, share - pooled, len(own), race.kernels),
        max_chunk=max(*plan.chunks, 0 if tail is None else tail.largest_take),
        slots=1,  # one buffer for all chunks
        slot_memory=0,
        window=LONG_CHUNK_WINDOW if is_long else WINDOW,
        predicted_seconds=seconds,
        tail=tail,
        pooled=pooled,
        rivals=race.rivals,
        purpose="race" if race.rivals else "work",
    )


@dataclass(frozen=True)
class RacePart:
    """A core's part of a race; none by default.

    `kernels`: of its first chunks. `chunks`: into how many all cores cut their shares.
    """

    rivals: tuple[str, ...] = ()
    kernels: tuple[int, ...] = ()
    chunks: int = 0


def race_part(race: PlannedRace, cores: Sequence[tuple[Participant, int]]) -> RacePart:
    """Return the part of each of equal cores, with their shares, in a race.

    Of fewer rounds if shares have too few units.
    """
    variants = 1 + len(race.rivals)
    smallest = min(share for _, share in cores)
    possible = min(race.rounds, smallest // variants)
    counts = [_chunk_count(core, share, share, core.seconds(share)) for core, share in cores]
    # Every second round is reversed, against trends.
    forward = tuple(range(variants))
    order = (k for number in range(possible) for k in (forward, forward[::-1])[number % 2])
    return RacePart(race.rivals, tuple(order), min(smallest, max(possible * variants, *counts)))


def _chunk_count(participant: Participant, share: int, own: int, seconds: float | None) -> int:
    """Return the number of chunks of a core's `own` part, units, of its share of `seconds`."""
    count = min(own, CHUNKS_PER_CORE)
    if seconds is not None:
        chunks = chunk_count(seconds * own / share, participant.call_seconds, has_tail=own < share)
        count = min(own, chunks, MAX_CORE_CHUNKS)
    return max(count, math.ceil(own / _largest_chunk(participant, share)))


def _largest_chunk(participant: Participant, share: int) -> int:
    """Return units, at least 1: limited by bytes, and in a first share by the number of chunks."""
    candidate, is_first_share = participant.candidate, participant.total is None
    if not (is_first_share or candidate.is_staged):
        return share
    unit_bytes = max(candidate.demand.data(1), 1)
    largest = share
    if is_first_share and share >= CHUNKS_PER_CORE * MIN_FIRST_CHUNKS:
        largest = share // MIN_FIRST_CHUNKS
    nbytes = MAX_FILE_CHUNK_BYTES if candidate.is_staged else MAX_FIRST_CHUNK_BYTES
    return max(1, min(largest, nbytes // unit_bytes))


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
class PooledShare:
    """The pooled part of a core's share, and what it must know to take units of the tail."""

    units: int
    part: TailPart


def plan_tails(pairs: Sequence[tuple[Participant, int]], first: int) -> Mapping[str, PooledShare]:
    """Return what each core leaves to the tail of its group, by its share; few units leave none.

    Tails lie one after the other before `first`, the end of the load.
    """
    timed = [
        (part, share, seconds)
        for part, share in pairs
        if part.candidate.info.tail_group and not part.candidate.race
        if (seconds := part.seconds(share)) is not None
    ]
    longest = max((seconds for *_, seconds in timed), default=0.0)
    groups: dict[str, list[tuple[Participant, int, float]]] = {}
    for core in timed:
        if core[2] >= MIN_TIME_RATIO * longest:
            groups.setdefault(core[0].candidate.info.tail_group, []).append(core)
    pooled: dict[str, PooledShare] = {}
    for cores in groups.values():
        units = [round(POOLED_FRACTION * share) for _, share, _ in cores]
        takes = [_take_bounds(*core) for core in cores]
        calls = CALLS_PER_TAKE * max(part.call_seconds for part, _, _ in cores)
        is_dear = calls > MIN_CALL_FRACTION * max(seconds for *_, seconds in cores)
        total = sum(units)
        if len(cores) < 2 or total < sum(least for least, _ in takes) or is_dear:
            continue
        first -= total
        speed = sum(share / seconds for _, share, seconds in cores)
        for (part, share, seconds), count, bounds in zip(cores, units, takes, strict=True):
            tail = TailPart(first, total, share / seconds / speed, *bounds)
            pooled[part.name] = PooledShare(count, tail)
    return pooled


def _take_bounds(participant: Participant, share: int, seconds: float) -> tuple[int, int]:
    """Return the least and most units of a core's chunks of a tail, which pay for their calls."""
    call = participant.call_seconds
    usual = int(longest_chunk(call) * share / seconds)
    most = max(1, min(_largest_chunk(participant, share), max(usual, share // MAX_CORE_CHUNKS)))
    least = math.ceil(max(MIN_TAKE_SECONDS, CALLS_PER_TAKE * call) * share / seconds)
    return max(1, min(most, least)), most


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
