"""Messages between the engine and a device process, over a SOCK_SEQPACKET pair.

`device` is the index of a device within its process: a CPU process hosts one device per core.
`job` numbers one start of a job; a job that starts over gets a new number, so that late answers
to the earlier start can be dropped. Attach carries a file descriptor (SCM_RIGHTS).
"""

from __future__ import annotations

from typing import Literal

import msgspec

from hetsched.device import Chunk, ChunkTimes, DeviceInfo, TailPart
from hetsched.errors import ErrorRecord
from hetsched.transport.iterations.messages import Iterate, IterationsDone, IterationsStopped

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


# engine -> device process


class Attach(msgspec.Struct, frozen=True, tag="attach"):
    """Attach the descriptor sent along: a "segment" to map, or a "file" to read and write."""

    key: int
    kind: str
    nbytes: int


class Detach(msgspec.Struct, frozen=True, tag="detach"):
    """Drop attached objects."""

    keys: tuple[int, ...]


class Prepare(msgspec.Struct, frozen=True, tag="prepare", kw_only=True):
    """Make the kernel and reserve memory. Answered by Prepared or CommandFailed.

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
    side : bool
        The job runs beside a larger one, in a thread for side jobs. Only for cores, which hold
        one side job besides the other job. A job replaces the previous one of its thread.
    tail : TailPart or None
        The tail that the device shares with others of this process, once a `Run` opens it.
    gathers : bool
        Chunks may be reported together, by TailChunksDone, while others wait at the device.
    """

    job: int
    device: int
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
    side: bool = False
    rivals: tuple[str, ...] = ()
    tail: TailPart | None = None
    gathers: bool = False


class Run(msgspec.Struct, frozen=True, tag="run"):
    """Compute chunks. Answered by a ChunkDone for each, in order, or by CommandFailed; or for
    several together by TailChunksDone, if `Prepare.gathers`.

    `opens_tail`: after them, take chunks of the shared tail until nothing remains, answered by
    TailChunksDone, the last of which says that the device has left the tail. These may also
    answer for the chunks that were sent: there are no others to send.
    """

    job: int
    device: int
    chunks: tuple[Chunk, ...]
    opens_tail: bool = False


class Fill(msgspec.Struct, frozen=True, tag="fill"):
    """Generate `count` units of `array` from `seed`, or fill them with NaN (`poison`).

    Needs Prepare; runs after the chunks sent before it. Answered by Filled.
    """

    job: int
    device: int
    array: str
    first: int
    count: int
    seed: int
    poison: bool = False


class Check(msgspec.Struct, frozen=True, tag="check"):
    """Verify `count` units by residual, and the `samples` by reference. Answered by Checked.

    Needs Prepare.
    """

    job: int
    device: int
    first: int
    count: int
    samples: tuple[int, ...]
    seed: int


class Release(msgspec.Struct, frozen=True, tag="release"):
    """Drop everything that belongs to the job, which has ended. No answer."""

    job: int
    device: int


class Fence(msgspec.Struct, frozen=True, tag="fence"):
    """Drop chunks that haven't started, finish the others, release the job. Answered by Fenced.

    After that the device doesn't write to the job's arrays.
    """

    job: int
    device: int


class Ping(msgspec.Struct, frozen=True, tag="ping"):
    """Answered by Pong, by the main thread, whatever the devices do."""


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """End the process cleanly; the end of file on its socket does the same."""


DeviceCommand = Prepare | Run | Iterate | Fill | Check | Release | Fence
"""Commands to one device."""


class CommandBatch(msgspec.Struct, frozen=True, tag="batch"):
    """Commands to several devices of a process, in order, in one message.

    If they were sent separately, the first could start computing on the engine's core before the
    engine sends the next.
    """

    commands: tuple[DeviceCommand, ...]


Command = Attach | Detach | DeviceCommand | CommandBatch | Ping | Stop


# device process -> engine


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """All devices of the process are open. `threads`: the identifiers of each one's threads."""

    pid: int
    devices: tuple[DeviceInfo, ...]
    threads: tuple[tuple[int, ...], ...] = ()


class Prepared(msgspec.Struct, frozen=True, tag="prepared"):
    job: int
    device: int


class ChunkDone(msgspec.Struct, frozen=True, tag="chunk-done"):
    job: int
    device: int
    chunk: int
    times: ChunkTimes


class TakenChunk(msgspec.Struct, frozen=True):
    """`count` units of a shared tail from unit `first` on, and their times."""

    first: int
    count: int
    times: ChunkTimes


class OwnChunk(msgspec.Struct, frozen=True):
    """A chunk that the engine has sent, by its id, and its times."""

    chunk: int
    times: ChunkTimes


class TailChunksDone(msgspec.Struct, frozen=True, tag="tail-chunks-done"):
    """The device has computed these chunks of the shared tail, in this order.

    Several in one message, since each costs the engine time on a core that computes. `has_left`:
    nothing of the tail remains for the device, which is idle. `own`: chunks that it was sent and
    has computed before, for which there is no ChunkDone; also without a tail (`Prepare.gathers`).
    """

    job: int
    device: int
    chunks: tuple[TakenChunk, ...]
    has_left: bool = False
    own: tuple[OwnChunk, ...] = ()


class Filled(msgspec.Struct, frozen=True, tag="filled"):
    job: int
    device: int


class Fenced(msgspec.Struct, frozen=True, tag="fenced"):
    job: int
    device: int


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

    job: int
    device: int
    worst: float
    unit: int
    max_error: float
    sample_error: float


class CommandFailed(msgspec.Struct, frozen=True, tag="failed"):
    """A command failed, or `chunk` did."""

    job: int
    device: int
    cause: FailureCause
    error: ErrorRecord
    chunk: int | None = None


class VariantFailed(msgspec.Struct, frozen=True, tag="variant-failed"):
    """One of several variants couldn't be prepared or failed; another one computes its chunks."""

    job: int
    device: int
    variant: str
    error: ErrorRecord


class MemoryReading(msgspec.Struct, frozen=True, tag="memory"):
    """The memory that a job may use, sent when a job has ended.

    `released`: the device keeps nothing of earlier jobs any more, neither memory nor kernels.
    """

    device: int
    nbytes: int
    released: bool = False


class DeviceNote(msgspec.Struct, frozen=True, tag="note"):
    """Text for the user, such as a slow step in progress."""

    job: int
    device: int
    text: str


class Pong(msgspec.Struct, frozen=True, tag="pong"):
    """The process runs."""


Event = (
    Hello
    | Pong
    | Prepared
    | ChunkDone
    | TailChunksDone
    | IterationsDone
    | IterationsStopped
    | Filled
    | Fenced
    | Checked
    | CommandFailed
    | VariantFailed
    | DeviceNote
    | MemoryReading
)
ProcessEvent = Hello | Pong | MemoryReading
"""Those that are about no job."""
