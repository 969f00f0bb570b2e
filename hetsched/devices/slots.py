"""Where a chunk's arrays lie in its slot of device memory, and views of them.

The arrays follow each other, the ones with larger elements first, so that each is aligned to its
own elements and a slot takes no more than `MemoryDemand.data` says; where the slot has room to
spare they start on cache lines.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Mapping, Sequence

import numpy as np

from hetsched.device import Slot
from hetsched.devices.base import DeviceOutOfMemory
from hetsched.memory import MemoryDemand
from hetsched.plans.slot_allocation import aligned, slot_bytes
from hetsched.workload import ArraySpec

LINE = 64
"""Bytes of a cache line: what SIMD code likes arrays to be aligned to."""

Views = dict[str, np.ndarray]


def unit_bytes(spec: ArraySpec) -> int:
    """Bytes of one unit of an array, or of all of a resident one."""
    return math.prod(spec.unit_shape) * np.dtype(spec.dtype).itemsize


def fresh_pages(nbytes: int) -> np.ndarray:
    """Page-aligned bytes of this process alone; mmap's default counts as shared memory."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    return np.frombuffer(mmap.mmap(-1, nbytes, flags=flags), np.uint8)


class SlotMap:
    """The arrays of a chunk within a slot.

    Parameters
    ----------
    arrays : sequence of ArraySpec
        Resident ones are left out. An inout array has two buffers, one to read and one to write.
    in_place : mapping
        Output name -> input name whose buffer it reuses.
    demand : MemoryDemand
    """

    def __init__(
        self, arrays: Sequence[ArraySpec], in_place: Mapping[str, str], demand: MemoryDemand
    ) -> None:
        split = [spec for spec in arrays if spec.role != "resident"]
        self._inputs = {spec.name: spec for spec in split if spec.is_input}
        self._outputs = {spec.name: spec for spec in split if spec.is_output}
        self._in_place = dict(in_place)
        self._demand = demand
        buffers = [(spec, False) for spec in self._inputs.values()]
        buffers += [(s, True) for s in self._outputs.values() if s.name not in self._in_place]
        buffers.sort(key=lambda buffer: -np.dtype(buffer[0].dtype).itemsize)
        self._buffers = buffers

    @property
    def input_bytes(self) -> int:
        """Bytes a unit that are copied in."""
        return sum(unit_bytes(spec) for spec in self._inputs.values())

    @property
    def output_bytes(self) -> int:
        """Bytes a unit that are copied out."""
        return sum(unit_bytes(spec) for spec in self._outputs.values())

    def nbytes(self, units: int) -> int:
        """Bytes of the slot of a chunk of `units`: what the demand says, or more if it must be."""
        return max(slot_bytes(self._demand, units), aligned(self._offsets(units, 1)[1]))

    def views(self, memory: np.ndarray, slot: Slot, units: int) -> tuple[Views, Views]:
        """Inputs and outputs of a chunk of `units` in `slot` of `memory` (bytes).

        Raises
        ------
        DeviceOutOfMemory
            The slot reaches past the end of the memory.
        """
        room = self.nbytes(units)
        if slot.offset < 0 or slot.offset + room > memory.size:
            raise DeviceOutOfMemory(
                f"slot {slot.index} of {units} units ends at byte {slot.offset + room} of device"
                f" memory, {memory.size} are set aside"
            )
        offsets, end = self._offsets(units, LINE)
        if end > room:
            offsets, end = self._offsets(units, 1)
        inputs: Views = {}
        outputs: Views = {}
        for (spec, is_output), offset in zip(self._buffers, offsets, strict=True):
            start = slot.offset + offset
            raw = memory[start : start + units * unit_bytes(spec)]
            view = raw.view(spec.dtype).reshape((units, *spec.unit_shape))
            (outputs if is_output else inputs)[spec.name] = view
        for name, source in self._in_place.items():
            spec = self._outputs[name]
            outputs[name] = inputs[source].view(spec.dtype).reshape((units, *spec.unit_shape))
        return inputs, outputs

    def _offsets(self, units: int, step: int) -> tuple[list[int], int]:
        offsets = []
        at = 0
        for spec, _ in self._buffers:
            at = -(-at // step) * step
            offsets.append(at)
            at += units * unit_bytes(spec)
        return offsets, at
