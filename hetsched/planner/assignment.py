"""From a device's share to what it is told: its plan, chunks, slots, memory and window."""

from __future__ import annotations

import math
from collections.abc import Iterator

from hetsched.device import Chunk
from hetsched.memory import MemoryDemand
from hetsched.models import DeviceModel, SpeedFunction
from hetsched.planner.device_totals import Planned
from hetsched.planner.records import Assignment, Candidate
from hetsched.planner.staging_memory import planning_memory
from hetsched.plans.best_plan import even_plan
from hetsched.plans.device_plan import DevicePlan, Mode, Overlap, slot_sizes
from hetsched.plans.paper.factoring import factoring
from hetsched.plans.search.recipes import evenly
from hetsched.plans.slot_allocation import slot_bytes

CHUNKS = 4
"""Chunks that a core's share is cut into where their times allow it. More cost more: a matrix
product packs its right side anew for each."""
SHORTEST, LONGEST = 0.020, 0.100
"""Seconds that a core's chunk should last: dispatch costs well under 1 % of the one, and a cancel
or a lost device never costs more than the other."""
FIRST_CHUNKS, MANY = 16, 64
"""Chunks at least of a core's first share, if that has so many units: what a unit costs is not
known yet, and a cancel waits for a chunk. Arbitrary."""
FIRST_BYTES = 64 << 20
"""Bytes of input and output of a chunk of a core's first share, for the same reason."""
BUFFERED = 16 << 20
"""Bytes of input and output of a core's chunk when the arrays live in files."""
CORE_WINDOW, FEW = 4, 2
"""Chunks that a core is sent ahead: on a busy machine the engine may not get to run for several
milliseconds. Fewer where chunks last so long that one is enough: what was sent can't be given to
another device any more."""
FACTORING_WINDOW = 4
"""Chunks that a device is sent ahead that was never measured."""


def assign(
    candidate: Candidate,
    variant: str,
    model: DeviceModel | None,
    curve: SpeedFunction | None,
    share: int,
    first: int,
    ids: Iterator[int],
    planned: Planned | None = None,
) -> Assignment:
    """What `candidate` does with units `first` to `first` + `share`.

    Parameters
    ----------
    model : DeviceModel or None
        Of the phases; None: never measured.
    curve : SpeedFunction or None
        What the share was found with; it predicts.
    share : int, units, >= 1
    first : int, units
    ids : iterator of int
        Ids for chunks.
    planned : Planned, optional
        Of a device with a link, its plans.
    """
    link = candidate.info.link
    plan = (
        _with_link(candidate, model, planned, share) if link else _without(candidate, curve, share)
    )
    sizes = slot_sizes(plan.chunks, plan.slots) if link and plan.slots else ()
    return Assignment(
        device=candidate.info.name,
        variant=variant,
        plan=plan,
        chunks=_chunks(plan, first, ids),
        chunk=max(plan.chunks),
        slots=_slots(plan, link),
        memory=_slot_memory(plan, sizes, candidate.demand) if link else 0,
        window=_window(plan, link, model, curve),
        predicted_seconds=None if curve is None else float(curve.time(share)),
        sizes=sizes,
        candidate=candidate,
        model=model,
    )


def _with_link(
    candidate: Candidate, model: DeviceModel | None, planned: Planned | None, share: int
) -> DevicePlan:
    memory = planning_memory(candidate)
    if model is None:
        return factoring(share, memory)
    if planned is None:
        return even_plan(share, model, memory, Overlap.of(candidate.info.engines))
    return planned.plan(share)


def _without(candidate: Candidate, curve: SpeedFunction | None, share: int) -> DevicePlan:
    count = min(share, CHUNKS)
    if curve is not None:
        seconds = float(curve.time(share))
        target = min(max(seconds / CHUNKS, SHORTEST), LONGEST)
        count = min(share, max(1, round(seconds / target)))
    largest = max(1, _largest(candidate, curve is None, share))
    return DevicePlan((evenly(share, max(count, math.ceil(share / largest))),))


def _largest(candidate: Candidate, first: bool, share: int) -> int:
    """The most units of a core's chunk that bytes allow, and in its first run the unknown."""
    unit = max(candidate.demand.data(1), 1)
    largest = share
    if first:
        largest = min(largest, FIRST_BYTES // unit)
        if share >= MANY:
            largest = min(largest, share // FIRST_CHUNKS)
    return min(largest, BUFFERED // unit) if candidate.staged else largest


def _chunks(plan: DevicePlan, first: int, ids: Iterator[int]) -> tuple[Chunk, ...]:
    """`last` where nothing follows that a single copy engine could copy in before the copy out."""
    serial = plan.mode is Mode.RING and plan.slots == 1
    chunks = []
    for number, sub_distribution in enumerate(plan.sub_distributions):
        final = len(sub_distribution) - 1
        for index, count in enumerate(sub_distribution):
            barrier = number > 0 and index == 0
            chunks.append(Chunk(next(ids), first, count, barrier, serial or index == final))
            first += count
    return tuple(chunks)


def _slots(plan: DevicePlan, link: bool) -> int:
    """A device without a link works through its chunks one after the other, in one buffer."""
    if not link:
        return 1
    return plan.slots or max(len(chunks) for chunks in plan.sub_distributions)


def _window(
    plan: DevicePlan, link: bool, model: DeviceModel | None, curve: SpeedFunction | None
) -> int:
    """With a model no chunk comes later than planned: one more than are on the device at once."""
    if not link:
        long = curve is not None and float(curve.time(min(plan.chunks))) >= SHORTEST
        return FEW if long else CORE_WINDOW
    return FACTORING_WINDOW if model is None else _slots(plan, link) + 1


def _slot_memory(plan: DevicePlan, sizes: tuple[int, ...], demand: MemoryDemand) -> int:
    """Bytes of all slots that the plan needs at once."""
    together = [sizes] if sizes else dict.fromkeys(plan.sub_distributions)
    return max(sum(slot_bytes(demand, count) for count in chunks) for chunks in together)
