"""The plan of a measuring job: every device gets the same number of units. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence

from hetsched.device import Chunk, DeviceInfo
from hetsched.errors import Unavailable, UsageError
from hetsched.memory import MemoryDemand
from hetsched.planner.records import Assignment, JobPlan
from hetsched.plans.device_plan import DevicePlan
from hetsched.plans.search.recipes import evenly
from hetsched.plans.slot_allocation import slot_bytes, slotted

WINDOW = 2
"""Chunks sent ahead of a share that doesn't fit in memory as a whole."""


def equal_plan(
    load: int,
    devices: Sequence[tuple[DeviceInfo, MemoryDemand]],
    variants: Mapping[str, str],
    usable_variants: Callable[[DeviceInfo], Sequence[str]],
) -> JobPlan:
    """Give every device an equal share of `load`, in as few chunks as its memory allows.

    Parameters
    ----------
    load : int, units
        A multiple of the number of measured devices.
    devices : sequence of (DeviceInfo, MemoryDemand)
        The devices that are available.
    variants : mapping
        Device to measure -> its variant.
    usable_variants : callable
        DeviceInfo -> names of its usable variants.

    Raises
    ------
    Unavailable
        A device of `variants` isn't available, or can't run its variant.
    DataError
        Not even one unit fits.
    UsageError
        The load can't be divided equally, or a team shares cores with another device.
    """
    if load % len(variants):
        raise UsageError(f"{load} units can't be divided equally among {len(variants)} devices")
    available = {info.name: (info, demand) for info, demand in devices}
    _check_teams([info for info, _ in devices], variants)
    for device, variant in variants.items():
        if device not in available:
            raise Unavailable(f"{device} can't be measured: it is no longer available")
        if variant not in usable_variants(available[device][0]):
            raise Unavailable(f"{device} can't be measured with {variant}: it doesn't work there")
    share = load // len(variants)
    chunk_ids = itertools.count()
    assignments = tuple(
        _assignment(*available[device], variant, share, number * share, chunk_ids)
        for number, (device, variant) in enumerate(variants.items())
    )
    return JobPlan(assignments, None, (f"measured: {share} units on each device",))


def _check_teams(infos: Sequence[DeviceInfo], variants: Mapping[str, str]) -> None:
    for info in infos:
        if info.name in variants and not variants.keys().isdisjoint(info.members):
            raise UsageError(f"{info.name} can't be measured together with its own cores")


def _assignment(
    info: DeviceInfo,
    demand: MemoryDemand,
    variant: str,
    share: int,
    first: int,
    chunk_ids: itertools.count[int],
) -> Assignment:
    max_chunk = slotted(demand).max_chunk(share) if info.link else share
    sizes = evenly(share, math.ceil(share / max_chunk))
    starts = itertools.accumulate(sizes, initial=first)
    return Assignment(
        device=info.name,
        variant=variant,
        plan=DevicePlan(tuple((size,) for size in sizes)),
        chunks=tuple(
            Chunk(next(chunk_ids), start, size, barrier=start > first, last=True)
            for start, size in zip(starts, sizes, strict=False)
        ),
        max_chunk=max(sizes),
        slots=1,
        slot_memory=slot_bytes(demand, max(sizes)) if info.link else 0,
        window=WINDOW,
        predicted_seconds=None,
    )
