"""The least time, by the models, of any split of a load over a machine, with any plans. (Ours.)

A run may take less: the models may be too slow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from hetsched.errors import UsageError
from hetsched.memory import MemoryDemand
from hetsched.models import DeviceModel, SpeedFunction
from hetsched.plans.bounds import ShareBounds
from hetsched.plans.device_plan import Overlap

PRECISION = 1e-9
"""Relative error of the result, which is never too large."""

LeastSeconds = Callable[[int], float]
"""Units, 1 or more -> the least seconds that they take on a device; rising."""


def core_bound(curve: SpeedFunction) -> LeastSeconds:
    """Return the bound of a device without a link: `curve`, of whole shares, with their calls."""
    return lambda share: float(curve.time(share))


def linked_bound(
    load: int, model: DeviceModel, memory: MemoryDemand, overlap: Overlap, correction: float = 1.0
) -> LeastSeconds:
    """Return the bound of a device with a link for shares of up to `load` units, with any plan.

    `correction`: the ratio of measured times of its shares to those by its phases.
    """
    bounds = ShareBounds(load, model, memory, overlap)
    known: dict[int, float] = {}

    def seconds(share: int) -> float:
        if share not in known:
            known[share] = correction * bounds.seconds(share)
        return known[share]

    return seconds


def machine_bound(load: int, devices: Sequence[LeastSeconds]) -> float:
    """Return the least seconds of `load` whole units; equal devices are the same object.

    Raises
    ------
    UsageError
        The load is negative, or there are no devices.
    """
    if load < 0 or not devices:
        raise UsageError(f"load: {load} units for {len(devices)} devices; needs at least one")
    if load == 0:
        return 0.0
    counts = Counter(devices)
    low, high = 0.0, min(least(-(-load // count)) for least, count in counts.items())
    done_by_low, done_by_high = dict.fromkeys(counts, 0), dict.fromkeys(counts, load)
    while high - low > PRECISION * high:
        middle = (low + high) / 2
        done = {
            least: _most_units(least, middle, done_by_low[least], done_by_high[least])
            for least in counts
        }
        if sum(count * done[least] for least, count in counts.items()) >= load:
            high, done_by_high = middle, done
        else:
            low, done_by_low = middle, done
    return low


def _most_units(least: LeastSeconds, seconds: float, low: int, high: int) -> int:
    """Return the most units, `low` to `high`, that may be done in `seconds`; `low` may."""
    while low < high:
        middle = (low + high + 1) // 2
        if least(middle) <= seconds:
            low = middle
        else:
            high = middle - 1
    return low
