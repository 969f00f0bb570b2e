"""The balancer by imbalance factor: NEC, US 9,038,088; its rule made safe.

In each repartition the device that waits least gives units to the one that waits most (the patent
swaps the two in places), or the n least to the n most. Equal compute times would need D_cmpt
units, equal transfer times D_xfer, and the patent moves the lesser. That stalls when transfers are
equal already, whatever the speeds: so a phase whose times hardly differ doesn't count, and no move
is larger than what makes the sums of both equal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hetsched.errors import UsageError
from hetsched.partition.balancing.phase import Reading

SAME = 0.02
"""Share of an iteration by which a phase's times must differ to count. Arbitrary."""
COMMON_WAIT = 0.25
"""Share of an iteration for which all devices wait: more, and moving data won't help. The patent
wants it detected and doesn't say from where on."""


def imbalance_factor(
    busy: Sequence[float], waits: Sequence[float] | None = None, *, multiplier: bool = False
) -> float:
    """IF = (W_max - W_min) / T, with T the time of the whole iteration.

    Parameters
    ----------
    busy : sequence of float, seconds
        Of each device: compute, transfer and convergence check.
    waits : sequence of float, seconds, optional
        T - busy, if they were not measured.
    multiplier : bool
        Times T / (T - mean wait): imbalance over the mean busy time. The patent has a multiplier
        to find excessive waits, but its form isn't printed.

    Returns
    -------
    float
        0 for one device.

    Raises
    ------
    UsageError
        No devices, not as many waits, or a time that is negative or no finite number; nobody is
        busy.
    """
    times = [*busy, *(waits or ())]
    if not busy or (waits is not None and len(waits) != len(busy)):
        raise UsageError(f"imbalance factor: {len(busy)} busy times, {len(waits or ())} waits")
    if not all(0 <= time < math.inf for time in times) or not max(busy) > 0:
        raise UsageError(f"imbalance factor: {times} must be finite times, not all of them 0")
    longest = max(busy)
    waits = waits if waits is not None else [longest - time for time in busy]
    total = max(time + wait for time, wait in zip(busy, waits, strict=True))
    factor = (max(waits) - min(waits)) / total
    if not multiplier:
        return factor
    return factor * total / (total - sum(waits) / len(waits))


def total_and_waits(told: Sequence[Reading], shares: Sequence[int]) -> tuple[float, list[float]]:
    """Seconds of the whole iteration, and of each device's wait: as told, or what is left.

    Devices without a share don't count.
    """
    busy = [one.busy if share else 0.0 for one, share in zip(told, shares, strict=True)]
    total = max(time + (one.wait or 0.0) for time, one in zip(busy, told, strict=True))
    return total, [
        total - time if one.wait is None else one.wait
        for time, one in zip(busy, told, strict=True)
    ]


@dataclass(frozen=True)
class Node:
    """A device, or a group of them, that trades units.

    Attributes
    ----------
    wait : float, seconds
        In the last iteration.
    times : tuple of float, seconds
        Of each phase, by the model.
    slopes : tuple of float, seconds/unit
    spare, room : int, units
        What it can give and take.
    """

    wait: float
    times: tuple[float, ...]
    slopes: tuple[float, ...]
    spare: int
    room: int


@dataclass(frozen=True)
class Trade:
    """`units` go from `giver` to `taker` (indices); the later of both is done `gain` s sooner."""

    giver: int
    taker: int
    units: int
    gain: float


def trades(nodes: Sequence[Node], total: float, pairs: int = 1) -> list[Trade]:
    """One repartition: up to `pairs` trades, none of which makes the iteration longer.

    Parameters
    ----------
    nodes : sequence of Node
    total : float, seconds
        Of the last iteration.
    pairs : int
        The k-th least wait is paired with the k-th longest.

    Returns
    -------
    list of Trade
        Ties by index: the last gives first, the first takes first.
    """
    by_wait = sorted(range(len(nodes)), key=lambda i: (nodes[i].wait, -i))
    givers = [i for i in by_wait if nodes[i].spare > 0]
    takers = [i for i in reversed(by_wait) if nodes[i].room > 0]
    found: list[Trade] = []
    busy: set[int] = set()
    for giver, taker in zip(givers, takers, strict=False):
        if giver in busy or taker in busy or giver == taker or len(found) == pairs:
            break
        busy |= {giver, taker}
        if nodes[giver].wait < nodes[taker].wait:
            trade = _trade(nodes, giver, taker, total)
            found += [trade] if trade.units else []
    return found


def _trade(nodes: Sequence[Node], giver: int, taker: int, total: float) -> Trade:
    slow, fast = nodes[giver], nodes[taker]
    late, early = sum(slow.times), sum(fast.times)
    wanted = [_equal(late - early, sum(slow.slopes) + sum(fast.slopes))]
    for phase in range(len(slow.times)):
        apart = slow.times[phase] - fast.times[phase]
        units = _equal(apart, slow.slopes[phase] + fast.slopes[phase])
        if abs(apart) > SAME * total and units >= 1:
            wanted.append(units)
    units = int(min(min(wanted) + 0.5, slow.spare, fast.room))
    rise = sum(fast.slopes)
    if rise > 0:
        # Rounded up, the taker must not end later than the giver did.
        units = min(units, int((late - early) / rise))
    if units < 1 or late <= early:
        return Trade(giver, taker, 0, 0.0)
    gain = late - max(late - units * sum(slow.slopes), early + units * rise)
    return Trade(giver, taker, units if gain > 0 else 0, gain)


def _equal(apart: float, slope: float) -> float:
    """Units to move so that times that are `apart` become equal; 0 if that can't be."""
    return max(apart, 0.0) / slope if slope > 0 else 0.0
