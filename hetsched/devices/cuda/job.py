"""A job that is ready to run on a CUDA device: addresses of its chunks, routes of its arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hetsched.device import Chunk, Slot
from hetsched.devices.base import DeviceJob, HostArray
from hetsched.devices.cuda.memory.device_memory import BlockLayout
from hetsched.devices.cuda.memory.pinned_memory import Pinned, Pins
from hetsched.devices.cuda.runtime import TO_DEVICE, TO_HOST, Block, Stream
from hetsched.devices.slot_layout import Buffer, SlotLayout
from hetsched.errors import InternalError
from hetsched.workload import Kernel


@dataclass(frozen=True)
class Route:
    """How one split array is copied.

    Attributes
    ----------
    host : HostArray
    buffer : Buffer
        Its location in a slot.
    pinned : Pinned or None
        The registration of the host's memory; None: all of it passes through staging buffers.
    staged : int or None
        Its number among the arrays of which some chunks do.
    """

    host: HostArray
    buffer: Buffer
    pinned: Pinned | None
    staged: int | None

    def direct_address(self, chunk: Chunk) -> int | None:
        """Return the host address that a chunk is copied from or to; None: it is staged."""
        if self.pinned is None:
            return None
        view = self.host.direct(chunk.first, chunk.count)
        if view is None:
            raise InternalError("an array that could be copied directly no longer can")
        address = view.ctypes.data
        return address if self.pinned.covers(address, view.nbytes) else None


@dataclass
class CudaJob:
    """The result of `prepare`, used by the chunks of a job."""

    job: DeviceJob
    block: Block
    block_layout: BlockLayout
    layout: SlotLayout
    kernel: Kernel
    residents: dict[str, Any] = field(default_factory=dict)
    input_routes: list[Route] = field(default_factory=list)
    output_routes: list[Route] = field(default_factory=list)
    mappings: set[int] = field(default_factory=set)
    """Addresses of the pinned mappings that the job uses."""
    _offsets: dict[int, list[int]] = field(default_factory=dict)
    _arrays: dict[tuple[int, int], tuple[dict[str, Any], dict[str, Any]]] = field(
        default_factory=dict
    )

    def address(self, buffer: Buffer, chunk: Chunk, slot: Slot) -> int:
        """Return the address of a chunk's part of an array in device memory."""
        return self.block.address + self._offset(buffer, chunk.count, slot)

    def arrays(self, units: int, slot: Slot) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the kernel's inputs and outputs for `units` in `slot`. Raises InternalError."""
        key = (slot.offset, units)
        if key not in self._arrays:
            self._check(units, slot)
            inputs = self._views(self.layout.inputs, units, slot)
            outputs = self._views(self.layout.outputs, units, slot)
            self._arrays[key] = (inputs | self.residents, outputs)
        return self._arrays[key]

    def _views(self, buffers: Mapping[str, Buffer], units: int, slot: Slot) -> dict[str, Any]:
        return {
            name: self.block.array(
                self._offset(buffer, units, slot), buffer.shape(units), buffer.spec.dtype
            )
            for name, buffer in buffers.items()
        }

    def _offset(self, buffer: Buffer, units: int, slot: Slot) -> int:
        if units not in self._offsets:
            self._offsets[units] = self.layout.offsets(units)
        return self.block_layout.slots + slot.offset + self._offsets[units][buffer.index]

    def _check(self, units: int, slot: Slot) -> None:
        """Raise InternalError if the slot ends past the job's memory, which would be corrupted."""
        end = slot.offset + self.layout.nbytes(units)
        limit = self.block_layout.slots_bytes
        if slot.offset < 0 or end > limit or units > self.job.chunk:
            raise InternalError(
                f"slot {slot.index} at {slot.offset} with {units} units ends at {end} of"
                f" {limit} bytes; a chunk has at most {self.job.chunk} units"
            )


def copy_to_device(stream: Stream, target: int, source: int, nbytes: int, pins: Pins) -> None:
    """Start a copy in, split where registrations end."""
    for start, length in pins.pieces(source, nbytes):
        stream.copy(target + start - source, start, length, TO_DEVICE)


def copy_to_host(stream: Stream, target: int, source: int, nbytes: int, pins: Pins) -> None:
    """Start a copy out, split where registrations end."""
    for start, length in pins.pieces(target, nbytes):
        stream.copy(start, source + start - target, length, TO_HOST)
