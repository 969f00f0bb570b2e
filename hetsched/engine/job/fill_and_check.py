"""Who fills and who checks which units: orders for the device processes beside the load itself."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from hetsched.device import DeviceInfo
from hetsched.engine.job.unit_ranges import ranges, sample_units
from hetsched.engine.resolve import Resolved
from hetsched.planner.job_planner import Assignment


@dataclass(frozen=True)
class FillOrder:
    """Units first.. of `array`, generated from `seed`, or spoilt."""

    device: str
    array: str
    first: int
    count: int
    seed: int
    poison: bool


@dataclass(frozen=True)
class CheckOrder:
    device: str
    first: int
    count: int
    samples: tuple[int, ...]


def helpers(there: Sequence[DeviceInfo]) -> list[str]:
    """Devices that fill and check: the cores if there are any, they have the most threads."""
    cores = [info.name for info in there if info.is_core]
    return cores or [info.name for info in there]


def fill_orders(
    job: Resolved, helpers: Sequence[str], seed: int, poisoned: Collection[str]
) -> list[FillOrder]:
    """Generate what the user didn't give; spoil the outputs `poisoned`, that are to be verified.

    A segment is used again for the next job: what a device forgot to compute could be the right
    answer of the job before.
    """
    whole = [(array, seed, False) for array in job.generate]
    whole += [
        (array, 0, True) for array in job.specs if array.is_output and array.name in poisoned
    ]
    return [
        FillOrder(helpers[part], array.name, first, count, from_seed, poison)
        for array, from_seed, poison in whole
        for part, (first, count) in enumerate(
            ranges(1 if array.role == "resident" else job.load, len(helpers))
        )
    ]


def check_orders(
    load: int, helpers: Sequence[str], assigned: Iterable[Assignment], seed: int
) -> list[CheckOrder]:
    """Every unit once; among the samples the first and the last unit of each device's share."""
    edges = [
        unit
        for one in assigned
        for unit in (one.chunks[0].first, one.chunks[-1].first + one.chunks[-1].count - 1)
    ]
    samples = sample_units(load, edges, seed)
    return [
        CheckOrder(
            device, first, count, tuple(unit for unit in samples if first <= unit < first + count)
        )
        for device, (first, count) in zip(helpers, ranges(load, len(helpers)), strict=False)
    ]
