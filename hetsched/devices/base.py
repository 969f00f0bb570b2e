"""The seam between the pipeline and the devices: six methods, the same for every kind.

A device works on one job at a time and is driven by one thread. `copy_in`, `compute`, `copy_out`
of a chunk only start an operation; they are called in this order for each chunk, one after the
other. A device orders them itself: a chunk's compute starts after its copy in, its copy out after
its compute, and its copy in after the copy out of the chunk that used the same slot before. `wait`
blocks until a chunk is through.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from hetsched.device import Chunk, ChunkTimes, DeviceInfo, Slot
from hetsched.memory import MemoryDemand
from hetsched.workload import ArraySpec, Workload


class HostArray(Protocol):
    """The host's side of one array: a part of the arena or of a file.

    `spec` says what kernels expect; what is stored in another dtype or order is converted.
    """

    spec: ArraySpec

    def direct(self, first: int, count: int) -> np.ndarray | None:
        """A view of units first.. without a copy, or None where there is none."""

    def read(self, first: int, count: int, into: np.ndarray) -> None:
        """Copy (and convert) units first.. into `into` (count, *unit_shape). IOFailure."""

    def write(self, first: int, count: int, values: np.ndarray) -> None:
        """Copy units first.. from `values`. IOFailure."""


@dataclass(frozen=True)
class DeviceJob:
    """One job as a device sees it.

    Attributes
    ----------
    inputs, outputs : mapping
        Array name -> HostArray; an inout array stands in both. Resident inputs are read with
        ``direct(0, 0)``/``read(0, 0, whole)``: first and count don't matter to them.
    chunk : int, units
        No chunk is larger.
    memory : int, bytes
        Device memory to set aside for slots (devices with a link).
    threads : int
        Threads one kernel may use.
    """

    workload: Workload
    params: Any
    variant: str
    inputs: Mapping[str, HostArray]
    outputs: Mapping[str, HostArray]
    chunk: int
    demand: MemoryDemand
    memory: int = 0
    slots: int = 1
    threads: int = 1
    cache: str = ""
    say: Any = field(default=lambda text: None)


class Device(Protocol):
    """One core, one GPU, or something that behaves like one."""

    def describe(self) -> DeviceInfo: ...

    def prepare(self, job: DeviceJob | None) -> None:
        """Make kernels, set slots aside, copy resident inputs in: all that isn't timed.

        Replaces the former job; None only forgets it, with every reference to its arrays.

        Raises
        ------
        UsageError
            The variant isn't to be had here. DeviceOutOfMemory: less memory is free than said.
        """

    def copy_in(self, chunk: Chunk, slot: Slot) -> None: ...

    def compute(self, chunk: Chunk, slot: Slot) -> None: ...

    def copy_out(self, chunk: Chunk, slot: Slot) -> None: ...

    def wait(self, chunk: Chunk) -> ChunkTimes:
        """Block until `chunk`'s copy out has ended; its phases. Chunks are waited for in order."""


class DeviceOutOfMemory(MemoryError):
    """Less device memory is free than was asked for; a smaller plan may do."""


class DeviceFault(RuntimeError):
    """The device is unusable in this process from now on (a sticky error): the process must go."""
