"""From a device's share to its Assignment: plan, chunks, slots, memory and window."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

from hetsched.device import Chunk, EvenChunks, TailPart
from hetsched.memory import MemoryDemand
from hetsched.models import DeviceModel, SpeedFunction
from hetsched.planner.chunks import (
    CHUNKS_PER_CORE,
    MIN_CHUNK_SECONDS,
    PooledShare,
    chunk_count,
    expected_takes,
    longest_chunk,
)
from hetsched.planner.races import RacePart
from hetsched.planner.records import Assignment, Candidate
from hetsched.plans.device_plan import DevicePlan, Mode, slot_sizes
from hetsched.plans.paper import factoring
from hetsched.plans.recipes import evenly
from hetsched.plans.ring_search import best_plan
from hetsched.plans.slots import slot_bytes

MIN_FIRST_CHUNKS, MIN_FIRST_UNITS = 16, 64
"""Minimum chunks in a core's first share, if it has as many units: there are no measurements yet,
and a cancel waits for the running chunk. Arbitrary."""
MAX_FIRST_CHUNK_BYTES = 64 << 20
"""Input and output of a chunk of a core's first share, for the same reason."""
MAX_FILE_CHUNK_BYTES = 16 << 20
"""Input and output of a core's chunk when the arrays are in files."""
MAX_CORE_CHUNKS = 40_000
"""Maximum chunks of a core's share in memory: over an hour at MAX_CHUNK_SECONDS. In a longer share
each chunk takes longer."""
MIN_LAZY_CHUNKS = 256
"""From this number on, equal chunks are made on demand, not kept. Arbitrary."""
CORE_WINDOW, LONG_CHUNK_WINDOW = 4, 2
"""Chunks sent ahead to a core: on a busy machine the engine may be descheduled for several
milliseconds. Fewer if a single chunk lasts longer than that: a sent chunk can't be moved to
another device."""
UNMEASURED_WINDOW = 4
"""Chunks sent ahead to a device with a link that has no model; else one more than it holds."""


def make_assignment(
    candidate: Candidate,
    variant: str,
    model: DeviceModel | None,
    curve: SpeedFunction | None,
    share: int,
    first: int,
    chunk_ids: Iterator[int],
    part: DevicePlan | PooledShare | RacePart | None = None,
    cuts: dict[Hashable, CoreCut] | None = None,
) -> Assignment:
    """Return the assignment to `candidate` of `share` units, its own ones from `first` on.

    Parameters
    ----------
    candidate : Candidate
    variant : str
    model : DeviceModel or None
        Of the phases; None: no measurements.
    curve : SpeedFunction or None
        The total by which the share was determined, for predictions.
    share, first : int, units
    chunk_ids : iterator of int
    part : DevicePlan, PooledShare or RacePart, optional
        Of a device with a link the plan that determined its share. Of a core what it leaves to the
        tail, or the race that its variant takes part in.
    cuts : dict, optional
        The shares of this job cut so far: equal cores' equal shares are cut once.
    """
    if candidate.info.link:
        plan = part if isinstance(part, DevicePlan) else _default_plan(candidate, model, share)
        sizes = slot_sizes(plan.chunks, plan.slots) if plan.slots else ()
        slots = plan.slots or max(map(len, plan.sub_distributions))
        return Assignment(
            device=candidate.info.name,
            variant=variant,
            plan=plan,
            chunks=_chunks(plan, first, chunk_ids),
            max_chunk=max(plan.chunks),
            slots=slots,
            slot_memory=_slot_memory(plan, sizes, candidate.demand),
            window=UNMEASURED_WINDOW if model is None else slots + 1,
            predicted_seconds=None if curve is None else float(curve.time(share)),
            slot_sizes=sizes,
            candidate=candidate,
            model=model,
        )
    assert not isinstance(part, DevicePlan), "cores have none"
    cuts = {} if cuts is None else cuts
    key = id(curve), id(model), id(candidate.demand), candidate.is_staged, share, part
    if key not in cuts:
        cuts[key] = _cut(candidate, model, curve, share, part)
    cut = cuts[key]
    return Assignment(
        device=candidate.info.name,
        variant=variant,
        plan=cut.plan,
        chunks=_core_chunks(cut.own, first, chunk_ids, cut.race.kernels),
        max_chunk=cut.max_chunk,
        slots=1,  # one buffer for all chunks
        slot_memory=0,
        window=cut.window,
        predicted_seconds=cut.seconds,
        candidate=candidate,
        model=model,
        tail=cut.tail,
        pooled=cut.plan.share - sum(cut.own),
        rivals=cut.race.rivals,
        purpose="race" if cut.race.rivals else "work",
    )


@dataclass(frozen=True)
class CoreCut:
    """A core's share in chunks, `own` ones first; then those expected of the tail."""

    plan: DevicePlan
    own: tuple[int, ...]
    max_chunk: int
    window: int
    seconds: float | None
    tail: TailPart | None
    race: RacePart


def _cut(
    candidate: Candidate,
    model: DeviceModel | None,
    curve: SpeedFunction | None,
    share: int,
    part: PooledShare | RacePart | None,
) -> CoreCut:
    seconds = None if curve is None else float(curve.time(share))
    pooled, race = _tail_and_race(part)
    takes = () if pooled is None else expected_takes(pooled)
    own = _own_chunks(candidate, seconds, share, sum(takes), race.chunks, model)
    plan = DevicePlan(((*own, *takes),))
    tail = None if pooled is None else pooled.part
    largest = max(*plan.chunks, 0 if tail is None else tail.largest_take)
    shortest = None if curve is None else float(curve.time(min(own)))
    is_long = shortest is not None and shortest >= MIN_CHUNK_SECONDS
    window = LONG_CHUNK_WINDOW if is_long else CORE_WINDOW
    return CoreCut(plan, own, largest, window, seconds, tail, race)


def _tail_and_race(
    part: PooledShare | RacePart | None,
) -> tuple[PooledShare | None, RacePart]:
    if isinstance(part, RacePart):
        return None, part
    return part, RacePart()


def _default_plan(candidate: Candidate, model: DeviceModel | None, share: int) -> DevicePlan:
    if model is None:
        return factoring(share, candidate.memory)
    return best_plan(share, model, candidate.memory, overlap=candidate.overlap)


def _own_chunks(
    candidate: Candidate,
    seconds: float | None,
    share: int,
    pooled: int,
    race_chunks: int,
    model: DeviceModel | None,
) -> tuple[int, ...]:
    """Return the chunks, units, of a core's share without its `pooled` units.

    `seconds`: of the whole share. `race_chunks`: their number in a race; else 0.
    """
    own = share - pooled
    if race_chunks:
        return evenly(own, race_chunks)
    return evenly(own, _chunk_count(candidate, seconds, share, own, model))


def core_chunk_count(
    candidate: Candidate, curve: SpeedFunction | None, share: int, model: DeviceModel | None
) -> int:
    """Return the number of chunks into which a core's share is cut without a race."""
    seconds = None if curve is None else float(curve.time(share))
    return _chunk_count(candidate, seconds, share, share, model)


def _chunk_count(
    candidate: Candidate,
    seconds: float | None,
    share: int,
    own: int,
    model: DeviceModel | None,
) -> int:
    """Return the number of chunks of the `own` part, units, of a core's share.

    `seconds`: of the whole share; None: no measurements.
    """
    count = min(own, CHUNKS_PER_CORE)
    if seconds is not None:
        call = 0.0 if model is None else model.call_seconds
        chunks = chunk_count(seconds * own / share, call, has_tail=own < share)
        count = min(own, chunks, MAX_CORE_CHUNKS)
    largest = _largest_core_chunk(candidate, seconds is None, share)
    return max(count, math.ceil(own / largest))


def largest_take(candidate: Candidate, seconds: float, share: int, call: float) -> int:
    """Return the limit, units, of a chunk that a core takes from a tail.

    Parameters
    ----------
    seconds : float
        Predicted for `share` units.
    call : float, seconds
        The cost of a call.
    """
    largest = _largest_core_chunk(candidate, False, share)
    usual = int(longest_chunk(call) * share / seconds)
    return max(1, min(largest, max(usual, share // MAX_CORE_CHUNKS)))


def _largest_core_chunk(candidate: Candidate, is_first_share: bool, share: int) -> int:
    """Return units, at least 1: limited by bytes, and in a first share by the number of chunks."""
    if not (is_first_share or candidate.is_staged):
        return share
    unit_bytes = max(candidate.demand.data(1), 1)
    largest = share
    if is_first_share:
        largest = min(largest, MAX_FIRST_CHUNK_BYTES // unit_bytes)
        if share >= MIN_FIRST_UNITS:
            largest = min(largest, share // MIN_FIRST_CHUNKS)
    if candidate.is_staged:
        largest = min(largest, MAX_FILE_CHUNK_BYTES // unit_bytes)
    return max(1, largest)


def _core_chunks(
    sizes: Sequence[int], first: int, chunk_ids: Iterator[int], kernels: tuple[int, ...]
) -> Sequence[Chunk]:
    """Return a core's chunks. `kernels`: of the first ones, which are even then."""
    count = len(sizes)
    first_id, *_ = itertools.islice(chunk_ids, count)
    chunks = EvenChunks(first_id, first, sum(sizes), count, kernels)
    return tuple(chunks) if count < MIN_LAZY_CHUNKS else chunks


def _chunks(plan: DevicePlan, first: int, chunk_ids: Iterator[int]) -> tuple[Chunk, ...]:
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


def _slot_memory(plan: DevicePlan, sizes: tuple[int, ...], demand: MemoryDemand) -> int:
    """Return the bytes of all slots that the plan needs at once."""
    resident = [sizes] if sizes else dict.fromkeys(plan.sub_distributions)
    return max(sum(slot_bytes(demand, count) for count in chunks) for chunks in resident)
