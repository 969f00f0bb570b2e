"""The best plan known for a machine of one device with a link and equal cores.

The product's planner with exactly known curves comes first. It isn't optimal, so for the shares
of the device around the one at which it and the cores finish together, the best plan of the
product's search and the fastest equal chunks of any size are improved by local search: units move
between chunks, chunks are split, joined and exchanged, until no such change is faster.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from functools import cache

import numpy as np

from hetsched.plans import best_plan
from hetsched.plans.costs import PhaseCosts, costs_of
from hetsched.plans.recipes import evenly
from hetsched.plans.recurrence import prices
from hetsched.simulate.learning import ideal_plan
from hetsched.simulate.machine import SimulatedDevice, SimulatedMachine, makespan

STARTS = 2
"""Plans from which the local search starts, for each share."""
MAX_STEPS = 20
MOVES = (1, 4, 16)
"""Units that one change moves."""

Chunks = tuple[int, ...]


def best_known_seconds(machine: SimulatedMachine) -> float:
    """Return the seconds of the best plan known; memory must not limit the chunks.

    Parameters
    ----------
    machine : SimulatedMachine
        One device with a link; the others equal cores.
    """
    (linked,) = (device for device in machine.devices if device.info.link)
    cores = [device for device in machine.devices if not device.info.link]
    best = makespan(machine.play(ideal_plan(machine)))
    planned = cache(lambda share: linked_seconds(share, linked))
    low, high = 0, machine.load
    while high - low > 1:  # both times rise, or nearly so, with their shares
        share = (low + high) // 2
        if planned(share) < core_seconds(machine.load - share, cores):
            low = share
        else:
            high = share
    shares = range(max(1, high - 2), min(machine.load, high + 1) + 1)
    return min(best, *(max(planned(s), core_seconds(machine.load - s, cores)) for s in shares))


def core_seconds(units: int, cores: list[SimulatedDevice]) -> float:
    """Return the seconds of `units` on equal cores."""
    if not units:
        return 0.0
    return float(cores[0].model.total.time(-(-units // len(cores)))) if cores else math.inf


def linked_seconds(share: int, device: SimulatedDevice) -> float:
    """Return the seconds of the best plan known for one share of a device with a link."""
    costs = costs_of(device.model, share, device.overlap)
    plan = best_plan(share, device.model, device.demand, overlap=device.overlap)
    equal = [evenly(share, count) for count in sorted({-(-share // s) for s in range(1, share)})]
    fastest = np.argsort(_seconds(equal, costs, device)) if equal else []
    starts = [plan.chunks, *(equal[index] for index in fastest[:STARTS])]
    return min(_improved(start, costs, device) for start in dict.fromkeys(starts))


def _improved(chunks: Chunks, costs: PhaseCosts, device: SimulatedDevice) -> float:
    seconds = float(_seconds([chunks], costs, device)[0])
    for _ in range(MAX_STEPS):
        changed = list(dict.fromkeys(_changes(chunks)))
        if not changed:
            break
        times = _seconds(changed, costs, device)
        fastest = int(np.argmin(times))
        if times[fastest] >= seconds * (1 - 1e-9):
            break
        chunks, seconds = changed[fastest], float(times[fastest])
    return seconds


def _seconds(
    plans: list[Chunks], costs: PhaseCosts, device: SimulatedDevice
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return prices(plans, 0, costs, device.overlap)


def _changes(chunks: Chunks) -> Iterator[Chunks]:
    """Yield plans that differ from `chunks` by one change."""
    for i, j in itertools.permutations(range(len(chunks)), 2):
        for units in MOVES:
            if chunks[i] > units:
                moved = list(chunks)
                moved[i] -= units
                moved[j] += units
                yield tuple(moved)
        if chunks[i] < chunks[j]:
            exchanged = list(chunks)
            exchanged[i], exchanged[j] = chunks[j], chunks[i]
            yield tuple(exchanged)
    for i, size in enumerate(chunks):
        if i + 1 < len(chunks):
            yield (*chunks[:i], size + chunks[i + 1], *chunks[i + 2 :])
        for first in {1, size // 4, size // 2, size - 1} - {0, size}:
            yield (*chunks[:i], first, size - first, *chunks[i + 1 :])
