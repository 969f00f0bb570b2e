"""Rows and the units in which a Balancer counts them; rows that change their device."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise


class RowUnits:
    """Units of a granule each; the last one may be smaller.

    Parameters
    ----------
    rows : int
    granule : int, rows
        Never divided between devices.
    """

    def __init__(self, rows: int, granule: int = 1) -> None:
        self.rows = rows
        self.unit = granule
        self.count = -(-rows // granule)

    def to_rows(self, shares: Sequence[int]) -> tuple[int, ...]:
        """Return the rows of each device, in the order of `shares`, which sum to `count`."""
        bounds = [min(self.unit * end, self.rows) for end in accumulate(shares, initial=0)]
        return tuple(stop - first for first, stop in pairwise(bounds))

    def to_shares(self, rows: Sequence[int]) -> tuple[int, ...]:
        """Return the units of each device; exact for a result of `to_rows`."""
        ends = list(accumulate(rows, initial=0))
        bounds = [round(end / self.unit) for end in ends]
        bounds = [
            self.count if end == self.rows else bound
            for end, bound in zip(ends, bounds, strict=True)
        ]
        return tuple(stop - first for first, stop in pairwise(bounds))


def received(before: Sequence[int], after: Sequence[int]) -> tuple[int, ...]:
    """Return the rows that each device gets from others: shares are contiguous, in this order."""
    old, new = list(accumulate(before, initial=0)), list(accumulate(after, initial=0))
    return tuple(
        new[i + 1] - new[i] - max(0, min(old[i + 1], new[i + 1]) - max(old[i], new[i]))
        for i in range(len(after))
    )
