"""All sums of one number from each of two sets, as bit sets.

A run of consecutive numbers is added by doubling shifts, so that what counts is how many runs the
simpler set has: few, wherever times mostly rise.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Bits = NDArray[np.bool_]
"""Entry x says whether x is in the set."""


def added(left: Bits, right: Bits, width: int) -> Bits:
    """The sums a + b < `width` of a in `left` and b in `right`.

    Parameters
    ----------
    left, right : (n,), (m,) bool
    width : int

    Returns
    -------
    (w,) bool
        w = min(n + m - 1, width). O(r w / 64 log(w)) for r runs in the set that has fewer.
    """
    pieces, other = _runs(left), right
    theirs = _runs(right)
    if len(theirs) < len(pieces):
        pieces, other = theirs, left
    number, smeared = _number(other), {}
    total = 0
    for start, end in pieces.tolist():
        length = end - start
        if length not in smeared:
            smeared[length] = _smeared(number, length)
        total |= smeared[length] << start
    return _bits(total, min(len(left) + len(right) - 1, width))


def _runs(bits: Bits) -> NDArray[np.int64]:
    """(runs, 2) int64: the first of each run of consecutive numbers, and the first after it."""
    edges = np.diff(bits.view(np.int8), prepend=np.int8(0), append=np.int8(0))
    return np.flatnonzero(edges).reshape(-1, 2)


def _smeared(number: int, length: int) -> int:
    """The union of `number` shifted by 0 to length - 1."""
    reach = 1
    while 2 * reach <= length:
        number |= number << reach
        reach *= 2
    return number | number << (length - reach)


def _number(bits: Bits) -> int:
    return int.from_bytes(np.packbits(bits, bitorder="little").tobytes(), "little")


def _bits(number: int, width: int) -> Bits:
    number &= (1 << width) - 1
    packed = np.frombuffer(number.to_bytes((width + 7) // 8, "little"), dtype=np.uint8)
    return np.unpackbits(packed, count=width, bitorder="little").view(np.bool_)
