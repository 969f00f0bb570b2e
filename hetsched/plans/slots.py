"""Device memory in slots, one for each chunk in flight: what plans may use, and who gets which.

The planner determines how many chunks may be in device memory and the size of each slot of a ring,
so a chunk that is rerun elsewhere needs no new plan. The device process allocates them. Both sides
measure slots with `slot_bytes`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace

from hetsched.device import Slot
from hetsched.errors import DataError, InternalError
from hetsched.memory import MemoryDemand
from hetsched.units import format_bytes

ALIGNMENT = 512
"""Bytes: enough for cudaMalloc and the FFT libraries."""
MAX_BUFFER_BYTES = 64 << 20
"""Bytes of all host buffers of a device: enough to keep a link busy, little for a host."""


def aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def slot_bytes(demand: MemoryDemand, units: int) -> int:
    """Return the aligned bytes of a slot for `units`: a chunk's buffers and any private work area.

    A work area shared by all chunks (work "max") and resident data are outside the slots.
    """
    work_area = demand.workspace(units) if demand.work == "sum" else 0
    return aligned(demand.data(units) + work_area)


def slotted(demand: MemoryDemand) -> MemoryDemand:
    """Return `demand` with each chunk's bytes rounded up to its slot's, for planning."""
    bytes_of_size: dict[int, int] = {}  # planning requests the same sizes again and again

    def bytes_of(units: int) -> int:
        if units not in bytes_of_size:
            bytes_of_size[units] = slot_bytes(demand, units)
        return bytes_of_size[units]

    return replace(
        demand,
        input_bytes=bytes_of,
        output_bytes=0,
        work_bytes=demand.work_bytes if demand.work == "max" else 0,
    )


@dataclass(frozen=True, kw_only=True)
class StagedDemand(MemoryDemand):
    """A demand whose chunks need host buffers too, each as large as the largest chunk's.

    `buffer`: bytes of a chunk's input and output, by its units.
    """

    buffer: Callable[[int], int]

    def fits(self, chunks: Iterable[int]) -> bool:
        """Return whether `chunks` fit. A chunk of one unit always has its buffer."""
        sizes = list(chunks)
        if not super().fits(sizes):
            return False
        return sizes in ([], [1]) or len(sizes) * self.buffer(max(sizes)) <= MAX_BUFFER_BYTES

    def in_granules(self, granule: int) -> MemoryDemand:
        scaled = super().in_granules(granule)
        assert isinstance(scaled, StagedDemand), "a changed copy of this one"
        return replace(scaled, buffer=lambda granules: self.buffer(granule * granules))


def planning_memory(demand: MemoryDemand, is_staged: bool) -> MemoryDemand:
    """`is_staged`: arrays are in files, so that chunks pass through host buffers."""
    memory = slotted(demand)
    if not is_staged:
        return memory
    values = {field.name: getattr(memory, field.name) for field in fields(memory)}
    return StagedDemand(**values, buffer=demand.data)


class SlotAllocator:
    """An allocator of slots; those of chunks in flight overlap only if they have the same index.

    `need`: bytes of a chunk's slot by its units, which should not fall (`MemoryDemand.monotone`).
    `memory`: bytes reserved for slots; 0: unlimited (a device without a link), and slots rotate,
    as in a `ring`; else they are consecutive until memory is full or at a barrier. `sizes`:
    capacity of each slot of a ring, units; () if all of `slots` hold `chunk`, the largest one.
    Fewer are used if `memory` holds fewer.
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
        self._next_index = 0
        self._next_offset = 0
        largest = aligned(need(chunk))
        if memory and largest and not sizes:
            slots = min(slots, max(memory // largest, 1))
        capacities = [aligned(need(size)) for size in sizes] or [largest] * max(1, slots)
        if (memory and sum(capacities) > memory) or max(capacities) < largest:
            raise InternalError(
                f"slots of {capacities} bytes for chunks of up to {chunk} units, {largest} bytes"
                f" each, in {memory} bytes reserved for slots"
            )
        self._largest = max(capacities)
        self._capacities = capacities
        self._offsets = [0, *itertools.accumulate(capacities[:-1])]

    def allocate(self, units: int, barrier: bool) -> tuple[Slot, bool]:
        """Return the slot of the next chunk, and whether chunks in flight must finish first."""
        if units > self._chunk:
            raise InternalError(f"a chunk of {units} units, at most {self._chunk} were announced")
        size = aligned(self._need(units))
        if size > self._largest and self._memory:
            raise DataError(
                f"a chunk of {units} units needs {format_bytes(size)} of device memory, more than"
                f" the {format_bytes(self._largest)} reserved for up to {self._chunk} units:"
                " correct the workload's demand"
            )
        if self._rotates:
            # A stolen chunk may not fit every slot, but at least one. Without a limit the device
            # makes each slot as large as needed.
            index = self._next_index
            while self._memory and self._capacities[index] < size:
                index = (index + 1) % len(self._capacities)
            self._next_index = (index + 1) % len(self._capacities)
            return Slot(index, self._offsets[index]), barrier
        starts_over = barrier or self._next_offset + size > self._memory
        if starts_over:
            self._next_index = self._next_offset = 0
        slot = Slot(self._next_index, self._next_offset)
        self._next_index += 1
        self._next_offset += size
        return slot, starts_over
