"""The interface between an accelerator and a vendor's runtime, and how errors are reported.

Thin on purpose: `simulated.SimulatedRuntime` replaces it where there is no device, so that the
accelerator's code (waits, slots, pinning, faults) runs everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, Protocol

import numpy as np

from hetsched.devices.base import DeviceFault, DeviceOutOfMemory
from hetsched.errors import HetschedError, JobFailed, Unavailable

ALLOCATION_BYTES = 512
"""What cudaMalloc, for one, rounds the size of an array up to."""


@dataclass(frozen=True)
class DeviceFacts:
    """What the runtime reports."""

    identity: str
    reserve: int = 0  # Bytes to leave free for the runtime and other processes
    engines: int = 2  # Copy engines: 2, 1 or 0
    can_pin: bool = True  # Host memory can be registered; else it is copied as it is
    version: str = ""
    needs_warm_up: bool = True  # Kernels compile or plan when they are first called


@dataclass(frozen=True)
class Memory:
    """Of the device, in bytes. `reusable`: kept unused by the allocator of temporaries."""

    free: int
    total: int
    reusable: int = 0


class Block(Protocol):
    """Raw device memory, freed with its last reference."""

    nbytes: int

    def pointer(self) -> Any:
        """Return what `KernelContext.allocate` passes to a vendor library."""


class Copy(NamedTuple):
    """Bytes of `block` from `offset` on, and contiguous host memory of the same size.

    The caller keeps the host memory until the copy has ended.
    """

    block: Any
    offset: int
    host: np.ndarray


class Event(Protocol):
    """A mark in a queue. All methods raise the fault that has stopped the queue."""

    def is_done(self) -> bool: ...

    def wait(self) -> None:
        """Sleep until it has passed: spinning would take a core from the CPU."""

    def seconds_after(self, earlier: Any) -> float: ...


class Queue(Protocol):
    """Operations that run in order; only `wait` orders two queues.

    `units`: of the load, from which simulated devices determine how long an operation takes; 0
    before a job begins.
    """

    def copy_in(self, copies: Iterable[Copy], units: int) -> None: ...

    def copy_out(self, copies: Iterable[Copy], units: int) -> None: ...

    def clear(self, block: Any, offset: int, nbytes: int) -> None:
        """Fill device memory with zeros."""

    def array(self, block: Any, offset: int, shape: tuple[int, ...], dtype: str) -> Any:
        """Return an array in `block`, for kernels in this queue."""

    def launch(self, call: Callable[[], None], units: int) -> None:
        """Run `call`, whose kernels go into this queue."""

    def record(self, event: Any) -> None: ...

    def wait(self, event: Any) -> None:
        """Wait for the last record of `event`, if there was one."""


class Runtime(Protocol):
    """One device with its context. `kernels`: the kind of variants that run on its arrays."""

    xp: Any
    kernels: str

    @property
    def facts(self) -> DeviceFacts: ...

    def memory(self) -> Memory: ...

    def allocate(self, nbytes: int) -> Block: ...

    def trim(self) -> None:
        """Free the memory that the allocator of temporaries keeps."""

    def pin(self, host: np.ndarray) -> None: ...

    def unpin(self, host: np.ndarray) -> None: ...

    def queue(self) -> Queue: ...

    def event(self) -> Event: ...

    def synchronize(self) -> None:
        """Wait until the device is idle; never between the chunks of a job."""

    def host_seconds(self) -> float | None:
        """Return the present on the clock of the times to report; None: the host takes no time."""

    def classify(self, error: BaseException) -> Fault: ...


class PhaseEvents:
    """Events that mark one chunk's phases."""

    def __init__(self, runtime: Runtime) -> None:
        self.in_start, self.in_end = runtime.event(), runtime.event()
        self.compute_start, self.compute_end = runtime.event(), runtime.event()
        self.out_start, self.out_end = runtime.event(), runtime.event()


# ---- errors


class Fault(Enum):
    """Kinds of errors, by the required reaction."""

    ABSENT = "no usable device, as it can't be opened: work without it"
    MEMORY = "out of memory: a smaller plan may fit"
    USAGE = "a bug or a bad request: fail the job, keep the process"
    STICKY = "the context is lost: end the process"
    PLAN = "the context is suspect; while a kernel is made, memory may be low"


@contextmanager
def translated(device: str, classify: Callable[[BaseException], Fault]) -> Iterator[None]:
    """Translate vendors' exceptions raised in the body: one line with the device and their text.

    Others pass unchanged.
    """
    try:
        yield
    except (HetschedError, DeviceFault, DeviceOutOfMemory):
        raise
    except Exception as error:
        text = " ".join(f"{error}".split()) or type(error).__name__
        match classify(error):
            case Fault.ABSENT:
                raise Unavailable(f"{device} can't be used: {text}") from error
            case Fault.MEMORY:
                raise DeviceOutOfMemory(f"{device}: out of device memory: {text}") from error
            case Fault.STICKY | Fault.PLAN:
                raise DeviceFault(f"{device}: unusable after a fault: {text}") from error
        raise JobFailed(f"{device}: {type(error).__name__}: {text}") from error
