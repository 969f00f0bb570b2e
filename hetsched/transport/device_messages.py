"""Messages between the engine and the loop of one device, and the channel that carries them.

`attempt` numbers one attempt at a job: a job that starts over gets a new number, so that late
answers to the earlier one can be dropped. Attach carries a file descriptor (SCM_RIGHTS).

A message larger than a socket's buffer can never be sent. So a large one is in a memfd that is
passed with a short message: MARKER, which no msgpack message begins with, and the memfd as its
last descriptor.
"""

from __future__ import annotations

import mmap
import os
import select
import socket
from typing import Any, Literal

import msgspec
import numpy as np

from hetsched.device import Chunk, ChunkTimes, DeviceInfo, TailPart
from hetsched.errors import ErrorRecord, ProtocolError
from hetsched.job import IterationSeconds
from hetsched.transport import messages, sockets

MAX_INLINE = 64 << 10
"""Bytes of a message without a memfd: fits into any socket buffer, at least 208 KiB by default."""
MAX_LARGE = 1 << 30
"""Bytes of a message in a memfd. Only a bug exceeds it: 64 commands of 1 MiB have 64 MiB."""
MARKER = b"\xc1"
"""Never used in msgpack."""

# ---- what messages are about


class StoredArray(msgspec.Struct, frozen=True, kw_only=True):
    """Where an array of a job is stored; an inout array has two: an input and an output."""

    array: str
    key: int  # Of the attached object
    shape: tuple[int, ...]
    dtype: str  # NumPy's string, as stored, with its byte order
    offset: int = 0  # Bytes
    order: str = "C"  # Or "F"
    library: str = ""  # Of a file: what its format's library reads (`ArrayLayout`)
    lent: bool = False  # What is attached is the array itself
    output: bool = False  # The job writes to it

    def values(self, memory: np.ndarray | mmap.mmap) -> np.ndarray:
        if self.lent:
            assert isinstance(memory, np.ndarray)
            return memory
        order: Literal["C", "F"] = "F" if self.order == "F" else "C"
        return np.ndarray(self.shape, np.dtype(self.dtype), memory, self.offset, order=order)


class IterationRecord(msgspec.Struct, frozen=True, array_like=True):
    """`count` iterations with the same rows, up to the `last`, and their seconds together."""

    last: int
    count: int
    seconds: IterationSeconds
    residual: float  # After the last one
    rows: int


class DoneChunk(msgspec.Struct, frozen=True, array_like=True):
    """A computed chunk and its times; `chunk` is TAIL_CHUNK_ID for one of the shared tail."""

    chunk: int
    first: int
    count: int
    times: ChunkTimes


# ---- engine -> device process


class Attach(msgspec.Struct, frozen=True, tag="attach"):
    """Attach the descriptor sent along: a "segment" to map, a "file" to read and write, or the
    counter of the "tail" that several devices share. Or, without a descriptor, what was "handed"
    to a loop in the engine's own process.
    """

    key: int
    kind: str
    nbytes: int


class Detach(msgspec.Struct, frozen=True, tag="detach"):
    keys: tuple[int, ...]


class Prepare(msgspec.Struct, frozen=True, tag="prepare", kw_only=True):
    """Make the kernel and reserve memory. Answered by Prepared or CommandFailed.

    A core holds up to two prepared jobs and computes their chunks in turn; other devices hold one.
    `rivals`: variants that compute chunks of kernel 1, 2, ...; only for cores. One that has ended
    the process before is "".
    """

    attempt: int
    workload: str  # Module:qualname
    params: bytes  # JSON
    variant: str  # Computes chunks of kernel 0
    arrays: tuple[StoredArray, ...]
    chunk: int  # Units of the largest chunk
    memory: int = 0  # Bytes of device memory to reserve for slots
    slots: int = 1
    chunk_sizes: tuple[int, ...] = ()  # Units of the planned chunks on a device with a link
    window: int = 1  # Chunks that will be sent ahead
    sizes: tuple[int, ...] = ()  # Units of each slot of a ring; () if all hold `chunk`
    source: str = ""  # Stamp of the workload's module as the engine has loaded it; "": unknown
    ring: bool = True
    answer: bool = True  # False: send no Prepared, which would delay the first chunk
    rivals: tuple[str, ...] = ()
    tail: TailPart | None = None  # Shared with others, once a Run opens it


class Run(msgspec.Struct, frozen=True, tag="run"):
    """Compute chunks. Answered by ChunksDone, in order, or by CommandFailed.

    `opens_tail`: after them, take chunks of the shared tail until nothing remains.
    """

    attempt: int
    chunks: tuple[Chunk, ...]
    opens_tail: bool = False


class Iterate(msgspec.Struct, frozen=True, tag="iterate", kw_only=True):
    """Compute iterations together with other devices, from iteration `first` on.

    Needs Prepare, with the state arrays, the partials of each reduction ("partials/NAME") and the
    control segment ("control") among its arrays. Answered by IterationsDone now and then, and by
    one IterationsStopped, or by CommandFailed. An epoch is the time between two such commands:
    its devices are always the same.
    """

    attempt: int
    epoch: int
    rank: int  # Of this device among those of the epoch
    slots: tuple[int, ...]  # Of each rank in partials and control
    # Rank r has the rows from `bounds[r]` up to `bounds[r + 1]`, until the split changes.
    bounds: tuple[int, ...]
    first: int  # 0: the start stages come first. After the last iteration come the finish stages.
    # The last iteration, whether the method has converged or not; `first` - 1 or less: only the
    # finish stages, after iteration `first` - 1
    last: int
    # Pause after this iteration, which isn't the last one; 0: don't. Others may change the rows
    # until the next epoch begins.
    hold: int = 0
    # Slots with rows in iteration `first` - 1, in the order of their rows; (): its combined values
    # are in the last slot of the partials.
    previous: tuple[int, ...] = ()
    # Begin with what devices saved of iteration `first` - 1: the home arrays aren't valid.
    restores: bool = False
    # Begin an iteration only when the engine allows it (virtual clocks). The newest proposal then
    # holds for that iteration.
    paced: bool = False


class Fill(msgspec.Struct, frozen=True, tag="fill"):
    """Generate `count` units of `array` from `seed`, or fill them with NaN (`poison`).

    Runs after the chunks sent before it. Answered by Filled.
    """

    attempt: int
    array: str
    first: int
    count: int
    seed: int
    poison: bool = False


class Check(msgspec.Struct, frozen=True, tag="check"):
    """Verify `count` units by residual, and the `samples` by reference. Answered by Checked."""

    attempt: int
    first: int
    count: int
    samples: tuple[int, ...]
    seed: int


class Release(msgspec.Struct, frozen=True, tag="release"):
    """Drop chunks that haven't started, finish the others, and drop all that belongs to the job.

    After that the device doesn't write to the job's arrays. `answer`: say so by Released.
    """

    attempt: int
    answer: bool = False


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """End the process cleanly; the end of file on its socket does the same."""


AttemptCommand = Prepare | Run | Iterate | Fill | Check | Release
"""Those about an attempt."""
Command = Attach | Detach | AttemptCommand | Stop


# ---- device process -> engine


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """The device is open and takes commands. `info.memory`: what jobs may use now."""

    info: DeviceInfo


class Prepared(msgspec.Struct, frozen=True, tag="prepared"):
    attempt: int


class ChunksDone(msgspec.Struct, frozen=True, tag="chunks-done"):
    """The device has computed these chunks, in this order.

    Each message costs the engine a third of a millisecond on a core that computes, so chunks for
    which nothing waits share one. `has_left`: nothing of the shared tail remains: it is idle.
    """

    attempt: int
    chunks: tuple[DoneChunk, ...]
    has_left: bool = False


class IterationsDone(msgspec.Struct, frozen=True, tag="iterations-done"):
    """The device has computed these iterations, in order. The start isn't reported."""

    attempt: int
    records: tuple[IterationRecord, ...]


StopReason = Literal["converged", "limit", "paused", "aborted"]
"""Why iterations ended: the method has converged; the last one was reached; the engine wanted a
pause; the engine gave up waiting for a device."""


class IterationsStopped(msgspec.Struct, frozen=True, tag="iterations-stopped"):
    """The device computes no more iterations; all before have been reported.

    After "converged" and "limit" the finish stages are complete, too.
    """

    attempt: int
    epoch: int
    iteration: int  # The last one complete on every device; -1: not even the start is
    reason: StopReason


class Filled(msgspec.Struct, frozen=True, tag="filled"):
    attempt: int


class Checked(msgspec.Struct, frozen=True, tag="checked"):
    """Errors of the verified units; above 1 `worst` and `sample_error` exceed the tolerance."""

    attempt: int
    worst: float  # The largest residual
    unit: int  # With that residual, or the sample that failed where only a sample did
    max_error: float  # max|y - ref| / max|ref| over the samples
    sample_error: float  # max|y - ref| / rms(ref without its largest value) / tolerance


class Released(msgspec.Struct, frozen=True, tag="released"):
    attempt: int


FailureCause = Literal["variant", "memory", "io", "kernel", "fault"]
"""Why a command failed.

variant: the variant doesn't work on this device; memory: out of device memory; io: a file can't
be read or written; kernel: any other error in the job; fault: the device is unusable and its
process ends.
"""


class CommandFailed(msgspec.Struct, frozen=True, tag="failed"):
    """A command failed, or `chunk` did; or only `variant`, and another one computes its chunks."""

    attempt: int
    cause: FailureCause
    error: ErrorRecord
    chunk: int | None = None
    variant: str = ""


class MemoryReading(msgspec.Struct, frozen=True, tag="memory"):
    """The memory that a job may use, sent whenever a job has ended.

    `released`: the device keeps nothing of earlier jobs any more.
    """

    nbytes: int
    released: bool = False


class DeviceNote(msgspec.Struct, frozen=True, tag="note"):
    """Text for the user, such as a slow step in progress."""

    attempt: int
    text: str


AttemptEvent = (
    Prepared | ChunksDone | IterationsDone | IterationsStopped | Filled | Checked | Released
    | CommandFailed | DeviceNote
)  # fmt: skip
"""Those about an attempt."""
DeviceEvent = Hello | MemoryReading | AttemptEvent


# ---- the channel


class ChannelClosed(Exception):
    """The peer has ended."""


class Channel:
    """One end of a SOCK_SEQPACKET socket; decodes `message_type`. The caller owns received fds."""

    def __init__(self, sock: socket.socket, message_type: Any) -> None:
        self._sock = sock
        self._decode: messages.Decoder[Any] = messages.Decoder(message_type)
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)

    def send(self, message: Any) -> None:
        """Send, and block while the peer doesn't read. Raises ChannelClosed, OSError."""
        payload, fds = packed(message)
        try:
            sockets.send_message(self._sock, payload, fds)
        except OSError as error:
            raise ChannelClosed from error
        finally:
            sockets.close_all(fds)

    def poll(self, seconds: float | None) -> bool:
        return bool(self._poll.poll(None if seconds is None else seconds * 1e3))

    def receive(self) -> tuple[Any, list[int]]:
        """Wait for the next message. Raises ChannelClosed, ProtocolError.

        BlockingIOError where a non-blocking socket has no message.
        """
        try:
            payload, fds = sockets.receive_message(self._sock, MAX_INLINE)
        except BlockingIOError:
            raise
        except OSError as error:
            raise ChannelClosed from error
        try:
            if payload == MARKER:
                if not fds:
                    raise ProtocolError("a large message without its descriptor")
                with open(fds.pop(), "rb") as file:
                    nbytes = os.fstat(file.fileno()).st_size
                    if nbytes > MAX_LARGE:
                        raise ProtocolError(
                            f"a message of {nbytes} bytes; the limit is {MAX_LARGE}"
                        )
                    file.seek(0)
                    payload = file.read()
            if not payload:
                raise ChannelClosed
            return self._decode(payload), fds
        except Exception:
            sockets.close_all(fds)
            raise


def packed(message: Any) -> tuple[bytes, list[int]]:
    """Return what to send for `message`: a payload, and the memfd of a large one, to be closed.

    Raises OSError without descriptors.
    """
    payload = messages.encode(message)
    if len(payload) <= MAX_INLINE:
        return payload, []
    fd = os.memfd_create("hetsched message", os.MFD_CLOEXEC)
    try:
        with open(fd, "wb", closefd=False) as file:
            file.write(payload)
    except BaseException:
        os.close(fd)
        raise
    return MARKER, [fd]
