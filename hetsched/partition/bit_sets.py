"""Sums of two sets of numbers, as bit sets.

A run of consecutive numbers is added by doubling shifts, so the cost depends on the number of runs
in the simpler set: few if times mostly rise.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Bits = NDArray[np.bool_]
"""Entry x: whether x is in the set."""


def sumset(first: Bits, second: Bits, width: int) -> Bits:
    """Compute all sums a + b < `width` of a in `first` and b in `second`.

    Parameters
    ----------
    first, second : (n,), (m,) bool
    width : int

    Returns
    -------
    (w,) bool
        w = min(n + m - 1, width). O(r w / 64 log(w)) for r runs in the set with fewer.
    """
    runs, addend = _runs(first), second
    second_runs = _runs(second)
    if len(second_runs) < len(runs):
        runs, addend = second_runs, first
    number, unions = _number(addend), {}
    total = 0
    for start, end in runs.tolist():
        length = end - start
        if length not in unions:
            unions[length] = _union_of_shifts(number, length)
        total |= unions[length] << start
    return _bits(total, min(len(first) + len(second) - 1, width))


def _runs(bits: Bits) -> NDArray[np.int64]:
    """Return (runs, 2) int64: start and end (exclusive) of each run of consecutive numbers."""
    edges = np.diff(bits.view(np.int8), prepend=np.int8(0), append=np.int8(0))
    return np.flatnonzero(edges).reshape(-1, 2)


def _union_of_shifts(number: int, length: int) -> int:
    """Return the union of `number` shifted by 0 to length - 1."""
    shifts = 1
    while 2 * shifts <= length:
        number |= number << shifts
        shifts *= 2
    return number | number << (length - shifts)


def _number(bits: Bits) -> int:
    return int.from_bytes(np.packbits(bits, bitorder="little").tobytes(), "little")


def _bits(number: int, width: int) -> Bits:
    number &= (1 << width) - 1
    packed = np.frombuffer(number.to_bytes((width + 7) // 8, "little"), dtype=np.uint8)
    return np.unpackbits(packed, count=width, bitorder="little").view(np.bool_)
