"""Trades by imbalance factor: NEC, US 9,038,088, with a rule that can't stall.

Each repartition moves units from the device with the shortest wait to the one with the longest
(the patent swaps the two in places), or from the n shortest to the n longest. Equal compute times
would need D_cmpt units, equal transfer times D_xfer, and the patent moves the smaller number. That
stalls if transfers are already equal, regardless of the speeds. So a phase whose times hardly
differ is ignored, and no move is larger than the one that equalises the sums.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hetsched.errors import UsageError
from hetsched.partition.balancing.phase import Reading

MIN_PHASE_DIFFERENCE = 0.02
"""Fraction of an iteration; phases whose times differ by less are ignored. Arbitrary."""
COMMON_WAIT = 0.25
"""Fraction of an iteration: if all devices wait longer, moving data won't help. The patent asks
for this test but gives no threshold."""


def imbalance_factor(
    busy: Sequence[float], waits: Sequence[float] | None = None, *, multiplier: bool = False
) -> float:
    """Compute IF = (W_max - W_min) / T, with T the time of the whole iteration.

    Parameters
    ----------
    busy : sequence of float, seconds
        Compute, transfer and convergence check of each device.
    waits : sequence of float, seconds, optional
        Default: T - busy.
    multiplier : bool
        Whether to multiply by T / (T - mean wait), which gives imbalance over the mean busy time.
        The patent has a multiplier that detects excessive waits, but doesn't print its formula.

    Returns
    -------
    float
        0 for one device.

    Raises
    ------
    UsageError
        No devices, a different number of waits, a time that is negative or not finite, or all
        times 0.
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


def total_and_waits(
    readings: Sequence[Reading], shares: Sequence[int]
) -> tuple[float, list[float]]:
    """Return the seconds of the iteration and of each device's wait, reported or the remainder.

    Devices without a share are ignored.
    """
    busy = [
        reading.busy if share else 0.0 for reading, share in zip(readings, shares, strict=True)
    ]
    pairs = list(zip(busy, readings, strict=True))
    total = max(time + (reading.wait or 0.0) for time, reading in pairs)
    waits = [total - time if reading.wait is None else reading.wait for time, reading in pairs]
    return total, waits


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
        Maximum that it can give and take.
    tie_break : float
        Orders nodes with equal waits: the patent chooses at random.
    """

    wait: float
    times: tuple[float, ...]
    slopes: tuple[float, ...]
    spare: int
    room: int
    tie_break: float = 0.0


@dataclass(frozen=True)
class Trade:
    """`units` move from `giver` to `taker` (indices); the later of both ends `gain` s sooner."""

    giver: int
    taker: int
    units: int
    gain: float


def choose_trades(nodes: Sequence[Node], total: float, pairs: int = 1) -> list[Trade]:
    """Choose up to `pairs` trades, none of which makes the iteration longer.

    Parameters
    ----------
    nodes : sequence of Node
    total : float, seconds
        Of the last iteration.
    pairs : int
        The k-th shortest wait is paired with the k-th longest.

    Returns
    -------
    list of Trade
        Ties by `tie_break`, then by index: the last gives first, the first takes first.
    """
    by_wait = sorted(range(len(nodes)), key=lambda i: (nodes[i].wait, nodes[i].tie_break, -i))
    givers = [i for i in by_wait if nodes[i].spare > 0]
    takers = [i for i in reversed(by_wait) if nodes[i].room > 0]
    trades: list[Trade] = []
    busy: set[int] = set()
    for giver, taker in zip(givers, takers, strict=False):
        if giver in busy or taker in busy or giver == taker or len(trades) == pairs:
            break
        busy |= {giver, taker}
        if nodes[giver].wait < nodes[taker].wait:
            trade = _trade(nodes, giver, taker, total)
            trades += [trade] if trade.units else []
    return trades


def _trade(nodes: Sequence[Node], giver: int, taker: int, total: float) -> Trade:
    slow, fast = nodes[giver], nodes[taker]
    late, early = sum(slow.times), sum(fast.times)
    candidates = [_units_to_equal(late - early, sum(slow.slopes) + sum(fast.slopes))]
    for phase in range(len(slow.times)):
        difference = slow.times[phase] - fast.times[phase]
        units = _units_to_equal(difference, slow.slopes[phase] + fast.slopes[phase])
        if abs(difference) > MIN_PHASE_DIFFERENCE * total and units >= 1:
            candidates.append(units)
    units = int(min(min(candidates) + 0.5, slow.spare, fast.room))
    rise = sum(fast.slopes)
    if rise > 0:
        # After rounding up, the taker must not end later than the giver did.
        units = min(units, int((late - early) / rise))
    if units < 1 or late <= early:
        return Trade(giver, taker, 0, 0.0)
    gain = late - max(late - units * sum(slow.slopes), early + units * rise)
    return Trade(giver, taker, units if gain > 0 else 0, gain)


def _units_to_equal(difference: float, slope: float) -> float:
    """Return the units to move to equalise two times; 0 if impossible."""
    return max(difference, 0.0) / slope if slope > 0 else 0.0
