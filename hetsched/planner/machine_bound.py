"""The least time, by the models, of any split of a load over a machine, with any plans. (Ours.)

A run may take less: the models may be too slow.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence

from hetsched.memory import MemoryDemand
from hetsched.models import DeviceModel, SpeedFunction
from hetsched.plans.bounds import ShareBounds
from hetsched.plans.device_plan import Overlap

PRECISION = 1e-6
"""Relative error of the result, which is never too large."""

LeastSeconds = Callable[[int], float]
"""Units, 1 or more -> the least seconds that they take on a device; rising."""


def core_bound(curve: SpeedFunction) -> LeastSeconds:
    return lambda share: float(curve.time(share))


def linked_bound(
    load: int, model: DeviceModel, memory: MemoryDemand, overlap: Overlap, correction: float = 1.0
) -> LeastSeconds:
    """`correction`: measured times of its shares over those by its phases."""
    bounds = ShareBounds(load, model, memory, overlap)
    known: dict[int, float] = {}

    def seconds(share: int) -> float:
        if share not in known:
            known[share] = correction * bounds.seconds(share)
        return known[share]

    return seconds


def machine_bound(load: int, devices: Sequence[LeastSeconds]) -> float:
    """Return the least seconds of `load` whole units, 1 or more; equal devices are one object."""
    counts = Counter(devices)
    low, done = 0.0, dict.fromkeys(counts, 0)
    high = min(least(-(-load // count)) for least, count in counts.items())
    beyond = dict.fromkeys(counts, load)
    while high - low > PRECISION * high:
        middle = (low + high) / 2
        most = {
            least: bisect_right(range(1, beyond[least] + 1), middle, lo=done[least], key=least)
            for least in counts
        }
        if sum(count * most[least] for least, count in counts.items()) < load:
            low, done = middle, most
        else:
            high, beyond = middle, most
    return low
