"""Copies between an iterative job's segments and files, in a thread of the pool.

An iterative job keeps its arrays in memory: inputs from files, or in another dtype, are copied to
segments before it starts, and results are written to output files at its end.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from hetsched.devices.file_array import FileArray
from hetsched.engine.threads import Step
from hetsched.errors import Cancelled
from hetsched.transport.arrays import stored_values
from hetsched.transport.device_messages import StoredArray
from hetsched.transport.pages import map_unpopulated
from hetsched.workload import ArraySpec

BLOCK_BYTES = 16 << 20
"""Bytes copied between two looks at whether the job was cancelled."""
MIN_RATE = 20e6
"""Bytes per second that a disk is expected to reach."""


class OwnFd:
    """A duplicate of a descriptor, which a thread that hangs may still use."""

    def __init__(self, fd: int) -> None:
        self.fd = -1  # if there are no descriptors
        self.fd = os.dup(fd)

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)


@dataclass(frozen=True)
class MemoryPart:
    """An array in a segment of `nbytes` bytes."""

    segment: OwnFd
    nbytes: int
    stored: StoredArray

    def view(self) -> np.ndarray:
        return stored_view(self.segment.fd, self.nbytes, self.stored)


def stored_view(fd: int, nbytes: int, stored: StoredArray) -> np.ndarray:
    """Map the segment `fd` and return an array in it; the descriptor may be closed then."""
    return stored_values(stored, map_unpopulated(fd, nbytes))


@dataclass(frozen=True)
class FilePart:
    file: OwnFd
    stored: StoredArray

    def array(self, spec: ArraySpec) -> FileArray:
        stored = self.stored
        return FileArray(
            spec, self.file.fd, stored.shape, stored.dtype, stored.offset, stored.order
        )


@dataclass(frozen=True)
class ArrayCopy:
    """A copy of the array `spec`. The target's dtype is that of the kernels, its order C."""

    spec: ArraySpec
    source: MemoryPart | FilePart | np.ndarray
    target: MemoryPart | FilePart


@dataclass
class ArrayCopies:
    """Copies of one job; `cancel` ends them soon. Each array's blocks are converted if need be."""

    copies: Sequence[ArrayCopy]
    text: str
    _cancelled: threading.Event = field(default_factory=threading.Event)

    @property
    def nbytes(self) -> int:
        return sum(_nbytes(copy.target.stored) for copy in self.copies)

    @property
    def seconds(self) -> float:
        return self.nbytes / MIN_RATE

    def cancel(self) -> None:
        """End with Cancelled. From any thread."""
        self._cancelled.set()

    def run(self, step: Step) -> None:
        """Copy everything.

        Raises
        ------
        IOFailure, CantCreate, Cancelled
        """
        for copy in self.copies:
            step.enter(f"{self.text} {copy.spec.name}")
            self._copy(copy)

    def _copy(self, copy: ArrayCopy) -> None:
        if isinstance(copy.target, FilePart):
            assert isinstance(copy.source, MemoryPart), "results are in memory"
            values, file = copy.source.view(), copy.target.array(copy.spec)
            for first, count in self._blocks(copy):
                file.write(first, count, _rows(values, copy.spec, first, count))
            return
        target = copy.target.view()
        if isinstance(copy.source, FilePart):
            file = copy.source.array(copy.spec)
            for first, count in self._blocks(copy):
                file.read(first, count, _rows(target, copy.spec, first, count))
            return
        values = copy.source if isinstance(copy.source, np.ndarray) else copy.source.view()
        for first, count in self._blocks(copy):
            into = _rows(target, copy.spec, first, count)
            with np.errstate(over="ignore"):  # kernels report infinite inputs
                np.copyto(into, _rows(values, copy.spec, first, count), casting="same_kind")

    def _blocks(self, copy: ArrayCopy) -> Iterator[tuple[int, int]]:
        """Yield first row and rows of each block; resident arrays are copied in one."""
        shape = copy.target.stored.shape
        rows = 1 if _is_whole(copy.spec) else shape[0]
        row_bytes = _nbytes(copy.target.stored) // max(1, rows)
        step = max(1, BLOCK_BYTES // max(1, row_bytes))
        for first in range(0, rows, step):
            if self._cancelled.is_set():
                raise Cancelled("cancelled")
            yield first, min(step, rows - first)


def _is_whole(spec: ArraySpec) -> bool:
    return spec.is_whole


def _rows(array: np.ndarray, spec: ArraySpec, first: int, count: int) -> np.ndarray:
    return array if _is_whole(spec) else array[first : first + count]


def _nbytes(stored: StoredArray) -> int:
    return math.prod(stored.shape) * np.dtype(stored.dtype).itemsize
