"""From a device's share to its Assignment: plan, chunks, slots, memory and window."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace

from hetsched.device import Chunk, EvenChunks
from hetsched.models import DeviceModel
from hetsched.planner.chunks import (
    CHUNKS_PER_CORE,
    MIN_CHUNK_SECONDS,
    CoreShare,
    PooledShare,
    chunk_count,
    expected_takes,
    longest_chunk,
)
from hetsched.planner.records import Assignment, Candidate, PlannedRace
from hetsched.planner.totals import CoreTotal, LinkedTotal
from hetsched.planner.variants import RacePart, race_part
from hetsched.plans.device_plan import DevicePlan, Mode, slot_sizes
from hetsched.plans.paper import factoring
from hetsched.plans.recipes import evenly
from hetsched.plans.ring_search import best_plan
from hetsched.plans.slots import slot_bytes

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
        """Return the plan of a device with a link."""
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


def race_part_of(race: PlannedRace, cores: Sequence[tuple[Participant, int]]) -> RacePart:
    """Return the part of each of equal cores, with their shares, in a race."""
    counts = [_chunk_count(core, share, share, core.seconds(share)) for core, share in cores]
    return race_part(race, [share for _, share in cores], counts)


def _chunk_count(participant: Participant, share: int, own: int, seconds: float | None) -> int:
    """Return the number of chunks of a core's `own` part, units, of its share of `seconds`."""
    count = min(own, CHUNKS_PER_CORE)
    if seconds is not None:
        chunks = chunk_count(seconds * own / share, participant.call_seconds, has_tail=own < share)
        count = min(own, chunks, MAX_CORE_CHUNKS)
    return max(count, math.ceil(own / _largest_chunk(participant, share)))


def core_share(participant: Participant, share: int) -> CoreShare | None:
    """Return a core that may leave a part of its share to a tail; None: it may not."""
    candidate, seconds = participant.candidate, participant.seconds(share)
    if not candidate.info.tail_group or candidate.race or seconds is None:
        return None
    call = participant.call_seconds
    usual = int(longest_chunk(call) * share / seconds)
    most = max(1, min(_largest_chunk(participant, share), max(usual, share // MAX_CORE_CHUNKS)))
    return CoreShare(participant.name, candidate.info.tail_group, share, seconds, most, call)


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
