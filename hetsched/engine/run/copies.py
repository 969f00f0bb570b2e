"""Copies between an iterative job's segments and files, in a thread of the pool.

An iterative job keeps its arrays in memory: inputs from files, or in another dtype, are copied to
segments before it starts, and results are written to output files at its end.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from hetsched.devices.file_array import FileArray
from hetsched.engine.threads import Step
from hetsched.errors import Cancelled, TryAgain
from hetsched.transport.device_messages import StoredArray
from hetsched.workload import ArraySpec

BLOCK_BYTES = 16 << 20
"""Bytes copied between two looks at whether the job was cancelled."""
MIN_RATE = 20e6
"""Bytes per second that a disk is expected to reach."""


class OpenFile:
    """An array in a file; the thread that uses it, which may hang, has a descriptor of its own.

    Raises TryAgain if there is none left.
    """

    def __init__(self, spec: ArraySpec, fd: int, stored: StoredArray) -> None:
        self._fd = -1
        try:
            self._fd = os.dup(fd)
        except OSError as error:
            raise TryAgain(f"{spec.name}: {error.strerror}; try again later") from error
        self.array = FileArray(
            spec, self._fd, stored.shape, stored.dtype, stored.offset, stored.order
        )

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)


@dataclass(frozen=True)
class ArrayCopy:
    """A copy of the array `spec` between `memory`, as kernels expect it, and somewhere else."""

    spec: ArraySpec
    memory: np.ndarray
    other: OpenFile | np.ndarray


@dataclass
class ArrayCopies:
    """Copies of one job; `cancel` ends them soon. Each array's blocks are converted if need be."""

    copies: Sequence[ArrayCopy]
    to_files: bool
    _cancelled: threading.Event = field(default_factory=threading.Event)

    @property
    def seconds(self) -> float:
        return sum(copy.memory.nbytes for copy in self.copies) / MIN_RATE

    def cancel(self) -> None:
        """End with Cancelled. From any thread."""
        self._cancelled.set()

    def run(self, step: Step) -> None:
        """Copy everything. Raises Cancelled after `cancel`."""
        for copy in self.copies:
            step.enter(
                f"{'writing output' if self.to_files else 'reading input'} {copy.spec.name}"
            )
            self._copy(copy)

    def _copy(self, copy: ArrayCopy) -> None:
        for first, count in self._blocks(copy):
            block = _rows(copy.memory, copy.spec, first, count)
            if isinstance(copy.other, OpenFile):
                move = copy.other.array.write if self.to_files else copy.other.array.read
                move(first, count, block)
                continue
            with np.errstate(over="ignore"):  # kernels report infinite inputs
                values = _rows(copy.other, copy.spec, first, count)
                np.copyto(block, values, casting="same_kind")

    def _blocks(self, copy: ArrayCopy) -> Iterator[tuple[int, int]]:
        """Yield first row and rows of each block; resident arrays are copied in one."""
        rows = 1 if copy.spec.is_whole else copy.memory.shape[0]
        row_bytes = copy.memory.nbytes // max(1, rows)
        step = max(1, BLOCK_BYTES // max(1, row_bytes))
        for first in range(0, rows, step):
            if self._cancelled.is_set():
                raise Cancelled("cancelled")
            yield first, min(step, rows - first)


def _rows(array: np.ndarray, spec: ArraySpec, first: int, count: int) -> np.ndarray:
    return array if spec.is_whole else array[first : first + count]
