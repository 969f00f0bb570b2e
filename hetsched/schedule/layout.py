"""Which bytes of device memory a chunk gets: pure, and decided in the device process.

The planner says how many chunks may be in device memory and how large; a chunk that runs again
elsewhere therefore needs no new plan. Both sides measure a chunk with `slot_bytes`.
"""

from __future__ import annotations

from collections.abc import Callable
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
    return replace(
        demand,
        input_bytes=lambda units: slot_bytes(demand, units),
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
        Of a ring. Fewer are used if `memory` holds fewer.
    ring : bool
        Slots rotate; else a pointer is bumped until memory is full or a barrier comes.
    chunk : int, units
        No chunk is larger.

    Raises
    ------
    InternalError
        `memory` doesn't hold one such chunk.
    """

    def __init__(
        self, need: Callable[[int], int], memory: int, slots: int, ring: bool, chunk: int
    ) -> None:
        self._need = need
        self._memory = memory
        self._chunk = chunk
        self._stride = aligned(need(chunk))
        self._rotates = ring or memory == 0
        self._slots = max(1, slots)
        self._next = 0
        self._top = 0
        if memory == 0:
            return
        if self._stride > memory:
            raise InternalError(
                f"a chunk of {chunk} units needs {self._stride} bytes of device memory,"
                f" only {memory} are set aside"
            )
        if self._stride:
            self._slots = min(self._slots, memory // self._stride)

    def place(self, units: int, barrier: bool) -> tuple[Slot, bool]:
        """The slot of the next chunk, and whether all in flight must be through before it is used.

        Raises
        ------
        InternalError
            The chunk is larger than was announced.
        """
        if units > self._chunk:
            raise InternalError(f"a chunk of {units} units, at most {self._chunk} were announced")
        return self._rotate(barrier) if self._rotates else self._bump(units, barrier)

    def _rotate(self, barrier: bool) -> tuple[Slot, bool]:
        index = self._next
        self._next = (index + 1) % self._slots
        return Slot(index, index * self._stride), barrier

    def _bump(self, units: int, barrier: bool) -> tuple[Slot, bool]:
        size = aligned(self._need(units))
        empty = barrier or self._top + size > self._memory
        if empty:
            self._next = self._top = 0
        slot = Slot(self._next, self._top)
        self._next += 1
        self._top += size
        return slot, empty
