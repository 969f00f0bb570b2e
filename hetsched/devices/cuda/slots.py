"""Where the arrays of a chunk lie in its slot, and what lies where in device memory. Pure.

The arrays follow each other, those with the larger elements first, so that each is aligned to its
own and a slot takes what `MemoryDemand.data` says; where the slot has room to spare they start on
boundaries that GPUs like. An output that a variant computes in place has the buffer of its input.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hetsched.devices.slots import unit_bytes
from hetsched.errors import InternalError
from hetsched.memory import MemoryDemand
from hetsched.plans.slot_allocation import aligned, slot_bytes
from hetsched.workload import ArraySpec

LINE = 256
"""Bytes: what cudaMalloc aligns to, and the widest loads of cuFFT and cuBLAS ask for less."""


@dataclass(frozen=True)
class Buffer:
    """One array in a slot. `index`: which of the slot's buffers; `unit`: bytes a unit."""

    spec: ArraySpec
    index: int
    unit: int

    def nbytes(self, count: int) -> int:
        return self.unit * count

    def shape(self, count: int) -> tuple[int, ...]:
        return (count, *self.spec.unit_shape)


@dataclass(frozen=True)
class SlotLayout:
    """`inputs`, `outputs`: name -> buffer, maybe shared. `units`: bytes a unit of each buffer."""

    inputs: Mapping[str, Buffer]
    outputs: Mapping[str, Buffer]
    units: tuple[int, ...]
    demand: MemoryDemand

    def nbytes(self, count: int) -> int:
        """Bytes of the slot of `count` units: what the demand says, or more if it must be."""
        return max(slot_bytes(self.demand, count), self._pack(count, 1)[1])

    def offsets(self, count: int) -> list[int]:
        """Where each buffer of a chunk of `count` units starts, bytes from the slot's start."""
        offsets, end = self._pack(count, LINE)
        return offsets if end <= self.nbytes(count) else self._pack(count, 1)[0]

    def _pack(self, count: int, step: int) -> tuple[list[int], int]:
        offsets, at = [], 0
        for unit in self.units:
            at = -(-at // step) * step
            offsets.append(at)
            at += unit * count
        return offsets, at


def slot_layout(
    arrays: Sequence[ArraySpec], in_place: Mapping[str, str], demand: MemoryDemand
) -> SlotLayout:
    """The layout of the split arrays among `arrays`; `in_place`: output -> input it overwrites.

    An inout array has two buffers unless it is computed in place.

    Raises
    ------
    InternalError
        An output doesn't fit the buffer that it should reuse.
    """
    split = [spec for spec in arrays if spec.role != "resident"]
    own = [(spec, False) for spec in split if spec.is_input]
    own += [(spec, True) for spec in split if spec.is_output and spec.name not in in_place]
    own.sort(key=lambda one: -np.dtype(one[0].dtype).itemsize)
    inputs: dict[str, Buffer] = {}
    outputs: dict[str, Buffer] = {}
    for index, (spec, is_output) in enumerate(own):
        (outputs if is_output else inputs)[spec.name] = Buffer(spec, index, unit_bytes(spec))
    for spec in split:
        if spec.is_output and spec.name in in_place:
            outputs[spec.name] = _shared(spec, inputs[in_place[spec.name]])
    return SlotLayout(inputs, outputs, tuple(unit_bytes(spec) for spec, _ in own), demand)


def _shared(spec: ArraySpec, buffer: Buffer) -> Buffer:
    if unit_bytes(spec) != buffer.unit:
        raise InternalError(
            f"{spec.name} can't be computed in place of {buffer.spec.name}:"
            f" {unit_bytes(spec)} bytes a unit against {buffer.unit}"
        )
    return Buffer(spec, buffer.index, buffer.unit)


@dataclass(frozen=True)
class Sections:
    """Byte offsets in one block: residents first, then `room` for slots."""

    residents: Mapping[str, int]
    slots: int
    room: int
    nbytes: int


def sections(residents: Mapping[str, int], room: int) -> Sections:
    """Where a job's `residents` (name -> bytes) and slots (`room` bytes) lie."""
    at = 0
    offsets = {}
    for name, nbytes in residents.items():
        offsets[name] = at
        at += aligned(nbytes)
    return Sections(offsets, at, room, at + aligned(room))
