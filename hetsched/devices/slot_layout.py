"""Layout of a chunk's arrays in its slot of device memory, and buffers in host memory.

The arrays are packed in order of decreasing element size, so that each is aligned to its elements
and a slot takes no more than `MemoryDemand.data`. In a larger slot, they start at multiples of
`ALIGNMENT`.
"""

from __future__ import annotations

import mmap
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hetsched.memory import MemoryDemand
from hetsched.plans.slots import slot_bytes
from hetsched.workload import ArraySpec
from hetsched.workload.protocol import array_bytes

ALIGNMENT = 256
"""Of arrays in device memory, bytes: the widest loads of cuFFT and cuBLAS need less."""


@dataclass(frozen=True)
class Buffer:
    """The part of a slot that holds one array. An output computed in place has its input's."""

    spec: ArraySpec
    index: int


@dataclass(frozen=True)
class SlotLayout:
    """The buffers of a slot, by array; made by `slot_layout`."""

    inputs: Mapping[str, Buffer]
    outputs: Mapping[str, Buffer]
    unit_sizes: tuple[int, ...]
    """Bytes of one unit in each buffer."""
    demand: MemoryDemand

    def nbytes(self, units: int) -> int:
        """Return the bytes of a slot of `units`: the demand, or more if the arrays need more."""
        return max(slot_bytes(self.demand, units), self._pack(units, 1)[1])

    def offsets(self, units: int) -> list[int]:
        """Return the start of each buffer of a chunk of `units`, bytes from the slot's start."""
        offsets, end = self._pack(units, ALIGNMENT)
        return offsets if end <= self.nbytes(units) else self._pack(units, 1)[0]

    def _pack(self, units: int, alignment: int) -> tuple[list[int], int]:
        offsets, end = [], 0
        for size in self.unit_sizes:
            start = -(-end // alignment) * alignment
            offsets.append(start)
            end = start + size * units
        return offsets, end


def slot_layout(
    arrays: Sequence[ArraySpec], in_place: Mapping[str, str], demand: MemoryDemand
) -> SlotLayout:
    """Lay out the split arrays of a chunk; an inout one has two buffers unless it is in place.

    `in_place`: output name -> name of the input whose buffer it reuses, if that has its size.
    """
    split = [spec for spec in arrays if not spec.is_whole]
    size = {spec.name: array_bytes(spec) for spec in split}
    in_place = {y: x for y, x in in_place.items() if size[y] == size[x]}
    buffered = [(spec, False) for spec in split if spec.is_input]
    buffered += [(spec, True) for spec in split if spec.is_output and spec.name not in in_place]
    buffered.sort(key=lambda entry: -np.dtype(entry[0].dtype).itemsize)
    inputs: dict[str, Buffer] = {}
    outputs: dict[str, Buffer] = {}
    for index, (spec, is_output) in enumerate(buffered):
        (outputs if is_output else inputs)[spec.name] = Buffer(spec, index)
    for spec in split:
        if spec.is_output and spec.name in in_place:
            outputs[spec.name] = Buffer(spec, inputs[in_place[spec.name]].index)
    unit_sizes = tuple(array_bytes(spec) for spec, _ in buffered)
    return SlotLayout(inputs, outputs, unit_sizes, demand)


# ---- in host memory


def fresh_pages(nbytes: int) -> np.ndarray:
    """Return private page-aligned bytes; mmap's default counts as shared memory."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    return np.frombuffer(mmap.mmap(-1, nbytes, flags=flags), np.uint8)


class HostBuffers:
    """Memory of this process that chunks pass through, one buffer for each key; kept warm."""

    def __init__(self) -> None:
        self._buffers: dict[Hashable, np.ndarray] = {}

    @property
    def nbytes(self) -> int:
        return sum(memory.nbytes for memory in self._buffers.values())

    def clear(self) -> None:
        self._buffers.clear()

    def array(self, key: Hashable, spec: ArraySpec, units: int) -> np.ndarray:
        """Return memory for `units`. A new buffer is touched here: later, it would be timed."""
        nbytes = array_bytes(spec) * units
        memory = self._buffers.get(key)
        if memory is None or memory.nbytes < nbytes:
            memory = None
            self._buffers.pop(key, None)
            memory = self._buffers[key] = self.allocate(nbytes)
        return memory[:nbytes].view(spec.dtype).reshape(units, *spec.unit_shape)

    def allocate(self, nbytes: int) -> np.ndarray:
        memory = fresh_pages(nbytes)
        memory.fill(0)
        return memory
