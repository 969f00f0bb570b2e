"""How many of a device's rows stay in device memory, and how large the pieces are that the others
pass through it in. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from hetsched.errors import DataError
from hetsched.iterations.row_transfers import row_bytes
from hetsched.memory import MemoryDemand
from hetsched.workload import Iterative, Rows

MAX_SLOTS = 3
"""Pieces in device memory at once: one is copied in, one computed, one copied out. Two lose 3 to
5 % in a model of the pipeline, and four gain nothing."""
STREAMED_FRACTION = 8
"""Pieces may take this part of the memory for rows, if not all rows fit. Arbitrary: smaller ones
cost more launches, larger ones leave fewer rows in device memory."""

SPARE_FRACTION = 4
"""Memory for further rows is allocated at either side of all rows, for this part of them: a new
split rarely moves more of them. Arbitrary."""
ALLOCATION_BYTES = 512
"""What cudaMalloc, for one, rounds the size of an array up to."""


@dataclass(frozen=True)
class PieceSizes:
    held: int
    """Rows that stay in device memory, the first of the device's."""
    room: int = 0
    """Rows of a piece; 0: all rows stay."""
    slots: int = 0
    """Pieces that may be in device memory at once."""


def piece_overhead(workload: Iterative, params: Any) -> int:
    """Return the bytes of one piece besides its rows: halos, and what arrays are rounded up to."""
    states = workload.state(params)
    halos = sum(
        (2 if state.has_two_buffers else 1)
        * (2 * state.halo * row_bytes(state.unit_shape, state.dtype))
        for state in states
    )
    return halos + ALLOCATION_BYTES * (len(workload.arrays(params)) + len(states))


def piece_sizes(count: int, granule: int, demand: MemoryDemand, overhead: int) -> PieceSizes:
    """Return the sizes for `count` rows, so that everything takes at most `demand.limit`.

    Rows are multiples of the granule where that many fit, so that kernels round alike whether
    rows stay or not. Raises DataError if not even one row fits.
    """
    if _limited(demand, overhead, 1).fits([count]):
        return PieceSizes(count)
    for slots in range(MAX_SLOTS, 1, -1):
        rows = _limited(demand, overhead, slots + 1)
        if rows.fits([1] * slots):
            return _divided(rows.max_chunk(count), slots, granule)
    rows = _limited(demand, overhead, 1)
    if not rows.fits([1]):
        need = demand.need([1]) + overhead
        raise DataError(
            f"one row needs {need} bytes of device memory, the limit is {demand.limit}"
        )
    return PieceSizes(0, rows.max_chunk(count), 1)


def spare_rows(rows: Rows, demand: MemoryDemand, overhead: int) -> tuple[int, int]:
    """Return for how many rows before and after `rows`, which all stay, there is memory.

    So that rows that come later needn't move the others. At most a part of the rows.
    """
    fitting = _limited(demand, overhead, 1)
    if not fitting.fits([rows.count]):  # rows nearby have more entries
        return 0, 0
    extra = fitting.max_chunk(rows.load) - rows.count
    most = rows.count // SPARE_FRACTION
    before = min(rows.first, most, extra)
    return before, min(rows.load - rows.stop, most, extra - before)


def _divided(rows: int, slots: int, granule: int) -> PieceSizes:
    room = rows // STREAMED_FRACTION // slots // granule * granule
    room = room or min(granule, max(1, rows // slots))
    held = max(0, rows - slots * room)
    return PieceSizes(held // granule * granule, room, slots)


def _limited(demand: MemoryDemand, overhead: int, pieces: int) -> MemoryDemand:
    assert demand.limit is not None
    return replace(demand, limit=max(0, demand.limit - pieces * overhead))
