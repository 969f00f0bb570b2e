"""The interface of devices: six methods for chunks, and what some kinds also have.

A device works on one job at a time and is driven by one thread. `copy_in`, `compute` and
`copy_out` only start an operation; they are called in this order for each chunk, chunk after
chunk. The device orders the operations: a chunk's compute starts after its copy in, its copy out
after its compute, and its copy in after the copy out of the previous chunk in the same slot.
`wait` blocks until a chunk is done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from hetsched.device import Chunk, ChunkTimes, DeviceInfo, Slot
from hetsched.iterations.home import Home, Part
from hetsched.memory import MemoryDemand
from hetsched.workload import ArraySpec, BaseWorkload, Iterative, Rows, Stage, Values


class HostArray(Protocol):
    """The host's side of one array: in the arena or in a file.

    `spec` is what kernels expect; arrays stored in another dtype or order are converted.
    """

    spec: ArraySpec

    def direct(self, first: int, count: int) -> np.ndarray | None:
        """Return a view of `count` units from `first`; None if they must be converted or read.

        Of a resident array it is the whole one, as kernels expect it, and never None.
        """

    def read(self, first: int, count: int, into: np.ndarray) -> None:
        """Copy (and convert) units into `into` (count, *unit_shape). Raises IOFailure."""

    def write(self, first: int, count: int, values: np.ndarray) -> None:
        """Copy units from `values` (count, *unit_shape). Raises IOFailure, CantCreate."""


@dataclass(frozen=True)
class DeviceJob:
    """The description of a job that a device receives.

    Attributes
    ----------
    inputs, outputs : mapping
        Array name -> HostArray; an inout array is in both.
    chunk : int, units
        Size of the largest chunk.
    chunk_sizes : tuple of int, units
        Sizes of the planned chunks (devices with a link); others may come.
    memory : int, bytes
        Device memory to reserve for slots (devices with a link).
    threads : int
        Threads that one kernel may use.
    cache : str
        Folder for FFT wisdom and the like.
    say : callable
        Reports a slow step to the user.
    rivals : tuple of str
        Further variants: chunk kernels 1, 2, ... (`Chunk.kernel`); "" for one that has failed
        before. Only for cores.
    reject : callable
        Called with the name of a variant that doesn't work, and the error, if another computes
        its chunks.
    """

    workload: BaseWorkload
    params: Any
    variant: str
    inputs: Mapping[str, HostArray]
    outputs: Mapping[str, HostArray]
    chunk: int
    demand: MemoryDemand
    memory: int = 0
    slots: int = 1
    chunk_sizes: tuple[int, ...] = ()
    threads: int = 1
    cache: str = ""
    say: Callable[[str], None] = field(default=lambda text: None)
    rivals: tuple[str, ...] = ()
    reject: Callable[[str, Exception], None] = field(default=lambda variant, error: None)


class Device(Protocol):
    """One core, one team of cores, one GPU, or an emulation of one."""

    def describe(self) -> DeviceInfo: ...

    def prepare(self, job: DeviceJob | None) -> None:
        """Make the kernel, reserve slots, copy resident inputs in: everything that isn't timed.

        Replaces the previous job; None only drops it and every reference to its arrays.

        Raises
        ------
        UsageError
            The variant isn't installed here, or making it failed.
        DeviceOutOfMemory
            Less memory is free than the job was planned with.
        """

    def copy_in(self, chunk: Chunk, slot: Slot) -> None: ...

    def compute(self, chunk: Chunk, slot: Slot) -> None: ...

    def copy_out(self, chunk: Chunk, slot: Slot) -> None: ...

    def wait(self, chunk: Chunk) -> ChunkTimes:
        """Block until the chunk's copy out has ended. Chunks are waited for in order."""


@runtime_checkable
class ShareableDevice(Protocol):
    """What a device also has that can hold two jobs and compute their chunks in turn: a core."""

    def beside(self) -> Device:
        """Return a device on the same core for a second job, which the same thread drives."""


@runtime_checkable
class MemoryKeeper(Protocol):
    """What a device also has that keeps memory between jobs, and shares it with other processes.

    Called between jobs, by the thread that drives the device. Raises DeviceFault.
    """

    def usable_memory(self) -> int:
        """Return the bytes that a job may use now, including what is kept."""

    def keeps_memory(self) -> bool:
        """Return whether there is anything to release."""

    def is_memory_short(self) -> bool:
        """Return whether other processes need memory."""

    def release_memory(self) -> None:
        """Release what is kept for the next job, which will be prepared more slowly."""

    def forget_host_memory(self) -> None:
        """Drop what refers to host memory that nothing else uses."""


class DeviceOutOfMemory(MemoryError):
    """Less device memory is free than requested; a smaller plan may fit."""


class DeviceFault(RuntimeError):
    """A sticky error: the device is unusable in this process, which must end."""


# ---- iterative jobs; `device_process.epochs` keeps step with others and combines reductions


class StageSeconds(NamedTuple):
    """Seconds of one stage on the device's clock."""

    compute: float
    transfer: float = 0.0


@dataclass(frozen=True)
class IterativeJob:
    """The description of an iterative job that a device receives.

    `job.chunk` is the load. `home`: the arrays, in memory that all devices share.
    """

    job: DeviceJob
    home: Home

    @property
    def workload(self) -> Iterative:
        workload = self.job.workload
        assert isinstance(workload, Iterative)
        return workload

    @property
    def load(self) -> int:
        return self.job.chunk


class StageExecutor(Protocol):
    """Computes stages on one device. Driven by one thread.

    Its rows are in the home arrays after each iteration, unless it has been asked to defer that.
    """

    has_own_core: bool
    """The device may look for other devices for a moment before it sleeps."""
    has_own_memory: bool
    """Storing its rows in the home arrays takes time, and may be deferred."""

    def begin(self) -> None:
        """Begin an epoch: what is in the home arrays is valid, and nothing is deferred."""

    def defer(self) -> None:
        """Store all rows in the home arrays only on `write_back`, until the next `begin`.

        What other devices read is still there after each stage.
        """

    def adopt(self, rows: Rows, iteration: int) -> float:
        """Take over `rows` for the time after `iteration`; return seconds of copies.

        The rows before are in the home arrays when this returns. Rows may be none.
        """

    def compute(
        self,
        part: Part,
        stage: Stage,
        iteration: int,
        values: Values,
        partials: Mapping[str, Any],
    ) -> StageSeconds:
        """Compute a stage on the device's rows, of which it has some.

        When this returns, what other devices read of the results is in the home arrays. Raises
        whatever the kernel raises.
        """

    def write_back(self, iteration: int) -> float:
        """Have all results after `iteration` in the home arrays; return seconds of copies."""


@runtime_checkable
class IteratingDevice(Protocol):
    """What a device also has that can take part in iterative jobs."""

    def prepare_iterations(self, job: IterativeJob) -> StageExecutor:
        """Make the kernels of all stages. Replaces the previous job; `prepare(None)` drops it.

        Raises UsageError and DeviceOutOfMemory as `Device.prepare` does.
        """
