"""Messages between the engine and the loop of one device (`transport.device_channel`).

`attempt` numbers one start of a job: a job that starts over gets a new number, so that late
answers to the earlier start can be dropped. Attach carries a file descriptor (SCM_RIGHTS).
"""

from __future__ import annotations

import mmap
from typing import Literal

import msgspec
import numpy as np

from hetsched.device import Chunk, ChunkTimes, DeviceInfo, TailPart
from hetsched.errors import ErrorRecord

FailureCause = Literal["variant", "memory", "io", "kernel", "fault"]
"""Why a command failed.

variant: the variant doesn't work on this device; memory: out of device memory; io: a file can't
be read or written; kernel: any other error in the job; fault: the device is unusable and its
process ends.
"""


class StoredArray(msgspec.Struct, frozen=True, kw_only=True):
    """Where an array of a job is stored: in attached object `key`, from byte `offset` on.

    `dtype` is NumPy's dtype string as stored, with its byte order; `order` is "C" or "F".
    `output`: the job writes to it. An inout array has two records, an input and an output.
    """

    array: str
    key: int
    shape: tuple[int, ...]
    dtype: str
    offset: int = 0
    order: str = "C"
    output: bool = False

    def values(self, memory: np.ndarray | mmap.mmap) -> np.ndarray:
        """Return the array in the memory of its segment."""
        order: Literal["C", "F"] = "F" if self.order == "F" else "C"
        return np.ndarray(self.shape, np.dtype(self.dtype), memory, self.offset, order=order)


class Iterate(msgspec.Struct, frozen=True, tag="iterate", kw_only=True):
    """Compute iterations together with other devices, from iteration `first` on.

    Needs Prepare, with the state arrays, the partials of each reduction ("partials/NAME") and the
    control segment ("control") among its arrays. Answered by IterationsDone now and then, and by
    one IterationsStopped, or by CommandFailed. An epoch is the time between two such commands:
    its devices are always the same.

    Attributes
    ----------
    rank : int
        Of this device among those of the epoch.
    slots : tuple of int
        Slot of each rank in partials and control.
    bounds : tuple of int, rows
        Rank r has the rows from `bounds[r]` up to `bounds[r + 1]`, until the split changes.
    first : int
        0: the start stages come first. After the last iteration come the finish stages.
    last : int
        The last iteration, whether the method has converged or not; `first` - 1 or less: only
        the finish stages, after iteration `first` - 1.
    previous : tuple of int
        Slots with rows in iteration `first` - 1, in the order of their rows; (): its combined
        values are in the last slot of the partials.
    restores : bool
        Begin with what devices saved of iteration `first` - 1: the home arrays aren't valid.
    paced : bool
        Begin an iteration only when the engine allows it (virtual clocks). The newest proposal
        then holds for that iteration.
    """

    attempt: int
    epoch: int
    rank: int
    slots: tuple[int, ...]
    bounds: tuple[int, ...]
    first: int
    last: int
    previous: tuple[int, ...] = ()
    restores: bool = False
    paced: bool = False


class IterationTimes(msgspec.Struct, array_like=True):
    """Seconds that a device spent in one iteration or several: the phases of NEC, section 6.1.

    compute: kernels; transfer: copies between host and device; wait: for other devices; converge:
    combining reductions and testing convergence; save: saving its rows before the iteration, with
    the other devices (`IterationControl.save`).
    """

    compute: float = 0.0
    transfer: float = 0.0
    wait: float = 0.0
    converge: float = 0.0
    save: float = 0.0

    @property
    def total(self) -> float:
        return self.compute + self.transfer + self.wait + self.converge + self.save

    def plus(self, other: IterationTimes) -> IterationTimes:
        return IterationTimes(
            self.compute + other.compute,
            self.transfer + other.transfer,
            self.wait + other.wait,
            self.converge + other.converge,
            self.save + other.save,
        )

    def times(self, factor: float) -> IterationTimes:
        return IterationTimes(*(factor * seconds for seconds in msgspec.structs.astuple(self)))


class IterationRecord(msgspec.Struct, frozen=True, array_like=True):
    """`count` iterations with the same rows, up to the `last`, and their times together.

    `residual`: after the last one.
    """

    last: int
    count: int
    times: IterationTimes
    residual: float
    rows: int


class IterationsDone(msgspec.Struct, frozen=True, tag="iterations-done"):
    """The device has computed these iterations, in order. The start isn't reported."""

    attempt: int
    records: tuple[IterationRecord, ...]


StopReason = Literal["converged", "limit", "paused", "aborted"]
"""Why iterations ended: the method has converged; the last one was reached; the engine wanted a
pause; the engine gave up waiting for a device."""


class IterationsStopped(msgspec.Struct, frozen=True, tag="iterations-stopped"):
    """The device computes no more iterations; all before have been reported.

    `iteration`: the last one that is complete on every device; -1: not even the start is. After
    "converged" and "limit" the finish stages are complete, too.
    """

    attempt: int
    epoch: int
    iteration: int
    reason: StopReason


# engine -> device process


class Attach(msgspec.Struct, frozen=True, tag="attach"):
    """Attach the descriptor sent along: a "segment" to map, a "file" to read and write, or the
    counter of the "tail" that several devices share.
    """

    key: int
    kind: str
    nbytes: int


class Detach(msgspec.Struct, frozen=True, tag="detach"):
    """Drop attached objects."""

    keys: tuple[int, ...]


class Prepare(msgspec.Struct, frozen=True, tag="prepare", kw_only=True):
    """Make the kernel and reserve memory. Answered by Prepared or CommandFailed.

    A core holds up to two prepared jobs and computes their chunks in turn; other devices hold one.

    Attributes
    ----------
    workload : str
        module:qualname.
    params : bytes
        JSON.
    source : str
        Stamp of the workload's module as the engine has loaded it; "": unknown.
    variant : str
        Computes chunks of kernel 0.
    rivals : tuple of str
        Variants that compute chunks of kernel 1, 2, ...; only for cores. One that has ended the
        process before is "".
    chunk : int, units
        The largest chunk.
    memory : int, bytes
        Device memory to reserve for slots.
    window : int
        Chunks that will be sent ahead.
    sizes : tuple of int, units
        Capacity of each slot of a ring; () if all hold `chunk`.
    answer : bool
        False: send no Prepared, which would delay the first chunk and isn't needed.
    tail : TailPart or None
        The tail that the device shares with others, once a `Run` opens it.
    """

    attempt: int
    workload: str
    params: bytes
    variant: str
    arrays: tuple[StoredArray, ...]
    chunk: int
    memory: int = 0
    slots: int = 1
    window: int = 1
    sizes: tuple[int, ...] = ()
    source: str = ""
    ring: bool = True
    answer: bool = True
    rivals: tuple[str, ...] = ()
    tail: TailPart | None = None


class Run(msgspec.Struct, frozen=True, tag="run"):
    """Compute chunks. Answered by ChunksDone, in order, or by CommandFailed.

    `opens_tail`: after them, take chunks of the shared tail until nothing remains.
    """

    attempt: int
    chunks: tuple[Chunk, ...]
    opens_tail: bool = False


class Fill(msgspec.Struct, frozen=True, tag="fill"):
    """Generate `count` units of `array` from `seed`, or fill them with NaN (`poison`).

    Needs Prepare; runs after the chunks sent before it. Answered by Filled.
    """

    attempt: int
    array: str
    first: int
    count: int
    seed: int
    poison: bool = False


class Check(msgspec.Struct, frozen=True, tag="check"):
    """Verify `count` units by residual, and the `samples` by reference. Answered by Checked.

    Needs Prepare.
    """

    attempt: int
    first: int
    count: int
    samples: tuple[int, ...]
    seed: int


class Release(msgspec.Struct, frozen=True, tag="release"):
    """Drop everything that belongs to the job, which has ended. No answer."""

    attempt: int


class Fence(msgspec.Struct, frozen=True, tag="fence"):
    """Drop chunks that haven't started, finish the others, release the job. Answered by Fenced.

    After that the device doesn't write to the job's arrays.
    """

    attempt: int


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """End the process cleanly; the end of file on its socket does the same."""


AttemptCommand = Prepare | Run | Iterate | Fill | Check | Release | Fence
"""Those about an attempt."""
Command = Attach | Detach | AttemptCommand | Stop


# device process -> engine


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """The device is open and takes commands. `info.memory`: what jobs may use now."""

    info: DeviceInfo


class Prepared(msgspec.Struct, frozen=True, tag="prepared"):
    attempt: int


class DoneChunk(msgspec.Struct, frozen=True, array_like=True):
    """A computed chunk and its times; `chunk` is TAIL_CHUNK_ID for one of the shared tail."""

    chunk: int
    first: int
    count: int
    times: ChunkTimes


class ChunksDone(msgspec.Struct, frozen=True, tag="chunks-done"):
    """The device has computed these chunks, in this order.

    Several in one message where nothing waits for the first: each message costs the engine a
    third of a millisecond on a core that computes. `has_left`: nothing of the shared tail remains
    for the device, which is idle.
    """

    attempt: int
    chunks: tuple[DoneChunk, ...]
    has_left: bool = False


class Filled(msgspec.Struct, frozen=True, tag="filled"):
    attempt: int


class Fenced(msgspec.Struct, frozen=True, tag="fenced"):
    attempt: int


class Checked(msgspec.Struct, frozen=True, tag="checked"):
    """Errors of the verified units; above 1 `worst` and `sample_error` exceed the tolerance.

    Attributes
    ----------
    worst : float
        The largest residual.
    unit : int
        The unit with that residual, or the sample that failed where only a sample did.
    max_error : float
        max|y - ref| / max|ref| over the samples.
    sample_error : float
        max|y - ref| / rms(ref without its largest value), divided by the tolerance.
    """

    attempt: int
    worst: float
    unit: int
    max_error: float
    sample_error: float


class CommandFailed(msgspec.Struct, frozen=True, tag="failed"):
    """A command failed, or `chunk` did."""

    attempt: int
    cause: FailureCause
    error: ErrorRecord
    chunk: int | None = None


class VariantFailed(msgspec.Struct, frozen=True, tag="variant-failed"):
    """One of several variants couldn't be prepared or failed; another one computes its chunks."""

    attempt: int
    variant: str
    error: ErrorRecord


class MemoryReading(msgspec.Struct, frozen=True, tag="memory"):
    """The memory that a job may use, sent whenever a job has ended.

    `released`: the device keeps nothing of earlier jobs any more, neither memory nor kernels.
    """

    nbytes: int
    released: bool = False


class DeviceNote(msgspec.Struct, frozen=True, tag="note"):
    """Text for the user, such as a slow step in progress."""

    attempt: int
    text: str


AttemptEvent = (
    Prepared
    | ChunksDone
    | IterationsDone
    | IterationsStopped
    | Filled
    | Fenced
    | Checked
    | CommandFailed
    | VariantFailed
    | DeviceNote
)
"""Those about an attempt."""
Event = Hello | MemoryReading | AttemptEvent
