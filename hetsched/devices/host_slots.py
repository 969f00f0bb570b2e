"""Slots in host memory: for cores with buffered chunks, and for emulated devices."""

from __future__ import annotations

import mmap
from collections.abc import Mapping

import numpy as np

from hetsched.device import Slot
from hetsched.devices.base import DeviceOutOfMemory
from hetsched.devices.slot_layout import Buffer, SlotLayout

CACHE_LINE = 64
"""Alignment preferred by SIMD code, bytes."""

Views = dict[str, np.ndarray]


def fresh_pages(nbytes: int) -> np.ndarray:
    """Return private page-aligned bytes; mmap's default counts as shared memory."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    return np.frombuffer(mmap.mmap(-1, nbytes, flags=flags), np.uint8)


def touched_pages(memory: np.ndarray, nbytes: int) -> np.ndarray:
    """Return `memory` if it has `nbytes`, else fresh pages, touched here, where it isn't timed."""
    if memory.size >= nbytes:
        return memory
    fresh = fresh_pages(nbytes)
    fresh.fill(0)
    return fresh


def slot_views(
    layout: SlotLayout, memory: np.ndarray, slot: Slot, units: int
) -> tuple[Views, Views]:
    """Return the inputs and outputs of a chunk of `units` in `slot` of `memory` (bytes).

    Raises
    ------
    DeviceOutOfMemory
        The slot reaches past the end of the memory.
    """
    end = slot.offset + layout.nbytes(units)
    if slot.offset < 0 or end > memory.size:
        raise DeviceOutOfMemory(
            f"slot {slot.index} of {units} units ends at byte {end} of device memory,"
            f" which has {memory.size} bytes"
        )
    starts = [slot.offset + offset for offset in layout.offsets(units)]
    return (
        _views(layout.inputs, memory, starts, units),
        _views(layout.outputs, memory, starts, units),
    )


def _views(
    buffers: Mapping[str, Buffer], memory: np.ndarray, starts: list[int], units: int
) -> Views:
    views: Views = {}
    for name, buffer in buffers.items():
        start = starts[buffer.index]
        raw = memory[start : start + buffer.nbytes(units)]
        views[name] = raw.view(buffer.spec.dtype).reshape(buffer.shape(units))
    return views
