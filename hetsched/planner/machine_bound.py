"""The least time, by the models, of any split of a load over a machine, with any plans. (Ours.)

A run may take less: the models may be too slow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from hetsched.memory import MemoryDemand
from hetsched.models import DeviceModel, SpeedFunction
from hetsched.plans.bounds import ShareBounds
from hetsched.plans.device_plan import Overlap

PRECISION = 1e-6
"""Relative error of the result, which is never too large; of loads of few units it is exact."""
MAX_STEPS = 32
"""Units that are given to the first device to finish, one after the other."""
MARGIN = 0.02
"""Part of a range by which an interpolation goes further."""

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
    """Return the least seconds of `load` whole units, 1 or more; equal devices are one object."""
    counts = Counter(devices)

    def units(done: dict[LeastSeconds, int]) -> int:
        return sum(count * done[least] for least, count in counts.items())

    low, done = 0.0, dict.fromkeys(counts, 0)
    high = min(least(-(-load // count)) for least, count in counts.items())
    beyond = {least: _most_units(least, high, 0, load) for least in counts}
    was_low = True
    while high - low > PRECISION * high and load - units(done) > MAX_STEPS:
        # Units are nearly in proportion to seconds; a bit further, so that both ends come nearer.
        part = (load - units(done)) / max(1, units(beyond) - units(done))
        part += MARGIN if was_low else -MARGIN
        middle = low + min(max(part, MARGIN), 1 - MARGIN) * (high - low)
        most = {least: _most_units(least, middle, done[least], beyond[least]) for least in counts}
        was_low = units(most) < load
        if was_low:
            low, done = middle, most
        else:
            high, beyond = middle, most
    if load - units(done) > MAX_STEPS:
        return low
    while units(done) < load:
        first = min(counts, key=lambda least: least(done[least] + 1))
        done[first] += 1
        low = first(done[first])
    return low


def _most_units(least: LeastSeconds, seconds: float, low: int, high: int) -> int:
    """Return the most units, `low` to `high`, that may be done in `seconds`, or slightly more."""
    start, end = least(low) if low else 0.0, least(high)
    if end <= seconds:
        return high
    was_low = True
    while high - low > 1 + PRECISION * low:
        part = (seconds - start) / (end - start) + (MARGIN if was_low else -MARGIN)
        middle = min(max(low + int(part * (high - low)), low + 1), high - 1)
        taken = least(middle)
        was_low = taken <= seconds
        if was_low:
            low, start = middle, taken
        else:
            high, end = middle, taken
    return low if high - low == 1 else high
