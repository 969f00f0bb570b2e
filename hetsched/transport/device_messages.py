"""Messages between the engine and a device process: a SOCK_SEQPACKET pair, with fds beside them.

`device` is the index of a device within its process (a CPU process hosts one a core). A message
whose type says so carries one fd by SCM_RIGHTS.
"""

from __future__ import annotations

import msgspec

from hetsched.device import Chunk, ChunkTimes, DeviceInfo
from hetsched.errors import ErrorRecord


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """Where one array of a job is stored: in attached object `key`, from byte `offset` on.

    `dtype` is NumPy's dtype string as stored (byte order included); `order` "C" or "F".
    `output`: the job writes it. An inout array has two Stored: one input, one output.
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
    """Carries an fd: a segment to map (kept until Detach) or a file to read and write."""

    key: int
    kind: str
    nbytes: int


class Detach(msgspec.Struct, frozen=True, tag="detach"):
    keys: tuple[int, ...]


class Prepare(msgspec.Struct, frozen=True, tag="prepare", kw_only=True):
    """`workload` is module:qualname, `params` its JSON. Answered by Prepared or Trouble.

    `window`: chunks that will be sent ahead, so that nobody waits for one more.

    `sizes`: units that each slot of a ring holds, () if all hold `chunk`.
    Without `answer` only by Trouble: a message that nobody waits for delays the first chunk.
    """

    job: int
    device: int
    workload: str
    params: bytes
    variant: str
    arrays: tuple[Stored, ...]
    chunk: int
    memory: int = 0
    slots: int = 1
    window: int = 1
    sizes: tuple[int, ...] = ()
    ring: bool = True
    answer: bool = True


class Run(msgspec.Struct, frozen=True, tag="run"):
    """Answered by one ChunkDone a chunk, in order, or by Trouble."""

    job: int
    device: int
    chunks: tuple[Chunk, ...]


class Fill(msgspec.Struct, frozen=True, tag="fill"):
    """Generate units first.. of `array` from `seed`; `poison`: fill with NaN instead.

    Needs Prepare, and waits for the chunks before it.
    """

    job: int
    device: int
    array: str
    first: int
    count: int
    seed: int
    poison: bool = False


class Check(msgspec.Struct, frozen=True, tag="check"):
    """Residual of units first.., and the reference of the `samples` among them. Needs Prepare."""

    job: int
    device: int
    first: int
    count: int
    samples: tuple[int, ...]
    seed: int


class Release(msgspec.Struct, frozen=True, tag="release"):
    """The job is over: forget it. Not answered."""

    job: int
    device: int


class Fence(msgspec.Struct, frozen=True, tag="fence"):
    """Drop what of the job hasn't started, let the rest end, forget the job; then say Fenced.

    After that the device writes to none of the job's arrays.
    """

    job: int
    device: int
    number: int


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """End the process in good order; so does the end of file of its socket."""


Addressed = Prepare | Run | Fill | Check | Release | Fence
"""The commands that name a device."""


class Several(msgspec.Struct, frozen=True, tag="several"):
    """Commands for several devices of one process, in order, at once.

    Sent one by one, the first would start computing on the engine's own core before the engine
    could send the next.
    """

    commands: tuple[Addressed, ...]


Command = Attach | Detach | Addressed | Several | Stop


# device process -> engine


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    pid: int
    devices: tuple[DeviceInfo, ...]


class Prepared(msgspec.Struct, frozen=True, tag="prepared"):
    job: int
    device: int


class ChunkDone(msgspec.Struct, frozen=True, tag="chunk-done"):
    job: int
    device: int
    chunk: int
    times: ChunkTimes


class Filled(msgspec.Struct, frozen=True, tag="filled"):
    job: int
    device: int


class Fenced(msgspec.Struct, frozen=True, tag="fenced"):
    job: int
    device: int
    number: int


class Checked(msgspec.Struct, frozen=True, tag="checked"):
    """`worst` residual and its unit; `max_error` = max|y - ref| / max|ref| over the samples;
    `sample_error` = max|y - ref| / rms(ref less its largest value), divided by the tolerance.
    """

    job: int
    device: int
    worst: float
    unit: int
    max_error: float
    sample_error: float


class Trouble(msgspec.Struct, frozen=True, tag="trouble"):
    """`kind`: "variant" (not to be had), "memory", "kernel", "io", "fault" (the process ends)."""

    job: int
    device: int
    kind: str
    error: ErrorRecord
    chunk: int | None = None


class Said(msgspec.Struct, frozen=True, tag="said"):
    """What takes long, for the user to read."""

    job: int
    device: int
    text: str


Event = Hello | Prepared | ChunkDone | Filled | Fenced | Checked | Trouble | Said
