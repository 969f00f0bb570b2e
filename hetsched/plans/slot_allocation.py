"""Which bytes of device memory a chunk gets: pure, and decided in the device process.

The planner says how many chunks may be in device memory and how large each of a ring's slots is; a
chunk that runs again elsewhere therefore needs no new plan. Both sides measure with `slot_bytes`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace

from hetsched.device import Slot
from hetsched.errors import InternalError
from hetsched.memory import MemoryDemand

ALIGNMENT = 512
"""Bytes: what cudaMalloc and the FFT libraries are happy with."""


def aligned(nbytes: int) -> int:
    """`nbytes` rounded up to the alignment of slots."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def slot_bytes(demand: MemoryDemand, units: int) -> int:
    """Bytes of the slot of a chunk of `units`, aligned: its buffers, and a work area of its own.

    A work area that all chunks share (work "max") and resident data lie outside the slots.
    """
    own = demand.workspace(units) if demand.work == "sum" else 0
    return aligned(demand.data(units) + own)


def slotted(demand: MemoryDemand) -> MemoryDemand:
    """`demand` with each chunk's bytes rounded up to what its slot takes, for planning."""
    known: dict[int, int] = {}  # plans ask for the same sizes again and again

    def bytes_of(units: int) -> int:
        if units not in known:
            known[units] = slot_bytes(demand, units)
        return known[units]

    return replace(
        demand,
        input_bytes=bytes_of,
        output_bytes=0,
        work_bytes=demand.work_bytes if demand.work == "max" else 0,
    )


class Layout:
    """Hands out slots; two chunks in flight never overlap unless they have the same slot index.

    Parameters
    ----------
    need : callable, units -> bytes
        Of the slot of one chunk.
    memory : int, bytes
        Set aside for slots; 0: no limit (a device without a link), slots rotate.
    slots : int
        Of a ring without `sizes`. Fewer are used if `memory` holds fewer.
    ring : bool
        Slots rotate; else a pointer is bumped until memory is full or a barrier comes.
    chunk : int, units
        No chunk is larger.
    sizes : sequence of int, units
        What each slot of a ring holds; () if all hold `chunk`.

    Raises
    ------
    InternalError
        `memory` doesn't hold one such chunk, or not all of `sizes`; none of them is `chunk`.
    """

    def __init__(
        self,
        need: Callable[[int], int],
        memory: int,
        slots: int,
        ring: bool,
        chunk: int,
        sizes: Sequence[int] = (),
    ) -> None:
        self._need = need
        self._memory = memory
        self._chunk = chunk
        self._rotates = ring or memory == 0
        self._next = 0
        self._top = 0
        largest = aligned(need(chunk))
        if memory and largest and not sizes:
            slots = min(slots, max(memory // largest, 1))
        rooms = [aligned(need(size)) for size in sizes] or [largest] * max(1, slots)
        if (memory and sum(rooms) > memory) or max(rooms) < largest:
            raise InternalError(
                f"slots of {rooms} bytes for chunks of up to {chunk} units, {largest} bytes each,"
                f" in {memory} bytes of device memory that are set aside"
            )
        starts = itertools.accumulate(rooms, initial=0)
        self._places = list(zip(rooms, starts, strict=False))

    def place(self, units: int, barrier: bool) -> tuple[Slot, bool]:
        """The slot of the next chunk, and whether all in flight must be through before it is used.

        Raises
        ------
        InternalError
            The chunk is larger than was announced.
        """
        if units > self._chunk:
            raise InternalError(f"a chunk of {units} units, at most {self._chunk} were announced")
        size = aligned(self._need(units))
        return self._rotate(size, barrier) if self._rotates else self._bump(size, barrier)

    def _rotate(self, size: int, barrier: bool) -> tuple[Slot, bool]:
        """The next slot that is large enough: a chunk of another device may not fit the next."""
        index = self._next
        while self._places[index][0] < size:
            index = (index + 1) % len(self._places)
        self._next = (index + 1) % len(self._places)
        return Slot(index, self._places[index][1]), barrier

    def _bump(self, size: int, barrier: bool) -> tuple[Slot, bool]:
        empty = barrier or self._top + size > self._memory
        if empty:
            self._next = self._top = 0
        slot = Slot(self._next, self._top)
        self._next += 1
        self._top += size
        return slot, empty
