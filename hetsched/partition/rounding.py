"""From real shares to whole units, without losing the optimum (ALGORITHMS 2.4)."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from hetsched.partition.distribution import Models


def round_greedy(
    models: Models, parts: Sequence[float], load: int, most: Sequence[int]
) -> list[int]:
    """Floor `parts`, then hand out what is left, each unit to the device that ends first with it.

    Exactly optimal for nondecreasing times if every device's part takes it at most some common
    time and the parts sum to the load at most: greedy from zero would pass through these shares.

    Parameters
    ----------
    models : sequence of SpeedFunction
    parts : sequence of float, units
    load : int, units
    most : sequence of int, units
        The most that each device takes; summing to the load at least.

    Returns
    -------
    list of int, units
        Summing to the load. O((p + r) log p) for r units left after flooring.
    """
    shares = [min(int(part), limit) for part, limit in zip(parts, most, strict=True)]
    left = load - sum(shares)
    if left < 0:
        _take_back(models, shares, -left)
    elif left > 0:
        _hand_out(models, shares, left, most)
    return shares


def _hand_out(models: Models, shares: list[int], left: int, most: Sequence[int]) -> None:
    ends = [
        (float(models[i].time(share + 1)), i) for i, share in enumerate(shares) if share < most[i]
    ]
    heapq.heapify(ends)
    for _ in range(left):
        i = ends[0][1]
        shares[i] += 1
        if shares[i] < most[i]:
            heapq.heapreplace(ends, (float(models[i].time(shares[i] + 1)), i))
        else:
            heapq.heappop(ends)


def _take_back(models: Models, shares: list[int], surplus: int) -> None:
    # Only rounding errors of the inverse can lead here, by a unit or so.
    ends = [(-float(models[i].time(share)), i) for i, share in enumerate(shares) if share]
    heapq.heapify(ends)
    for _ in range(surplus):
        i = ends[0][1]
        shares[i] -= 1
        if shares[i]:
            heapq.heapreplace(ends, (-float(models[i].time(shares[i])), i))
        else:
            heapq.heappop(ends)
