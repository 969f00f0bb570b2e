"""Which parts of a job's unfinished outputs are on disk, so that it goes on there after a crash.

While the job runs, its output files are synced now and then; after that the units that were
finished before are noted in a small file beside each hidden one. The next daemon opens the hidden
file again instead of a new one, if it belongs to the same job on the same inputs.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from hetsched.errors import IOFailure
from hetsched.store.publication import parts_path, replace_file, unlink

Ranges = tuple[tuple[int, int], ...]
"""Units [first, end), ascending, apart from each other."""

MAX_RECORD = 1 << 20
"""Bytes; a range takes about ten."""


class PartsRecord(msgspec.Struct, frozen=True):
    """`identity`: of the job and its inputs; `inode` and `nbytes`: of the hidden file."""

    identity: str
    inode: int
    nbytes: int
    ranges: Ranges


_decode = msgspec.msgpack.Decoder(PartsRecord).decode


def mark_finished(hidden: Iterable[tuple[str, int]], identity: str, ranges: Ranges) -> None:
    """Note that these units of all output files (hidden name, descriptor) are complete.

    Waits until their data are on disk. Raises IOFailure: nothing new is noted then.
    """
    files = list(hidden)
    for path, fd in files:
        try:
            os.fdatasync(fd)
        except OSError as error:
            raise IOFailure(f"{path}: {error.strerror}") from None
    for path, fd in files:
        status = os.fstat(fd)
        record = PartsRecord(identity, status.st_ino, status.st_size, ranges)
        replace_file(parts_path(path), msgspec.msgpack.encode(record))
        if not os.path.lexists(path):  # it was published or discarded meanwhile
            unlink(parts_path(path))


def open_finished(
    hidden: str, identity: str, nbytes: int, prefix: bytes
) -> tuple[int, Ranges] | None:
    """Open a hidden file again, and return its descriptor and what is complete in it.

    None: there is none for this job, or it isn't as noted.
    """
    fd = -1
    with contextlib.suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError):
        path = Path(parts_path(hidden))
        if path.stat().st_size > MAX_RECORD:
            return None
        record = _decode(path.read_bytes())
        fd = os.open(hidden, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        status = os.fstat(fd)
        if (
            record.identity == identity
            and stat.S_ISREG(status.st_mode)
            and status.st_nlink == 1
            and (status.st_ino, status.st_size) == (record.inode, record.nbytes)
            and status.st_size == nbytes
            and os.pread(fd, len(prefix), 0) == prefix
            and record.ranges == merged(record.ranges)
        ):
            return fd, record.ranges
    if fd >= 0:
        os.close(fd)
    return None


def merged(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Return ranges in order, those that touch as one; empty ones are left out."""
    result: list[tuple[int, int]] = []
    for first, end in sorted(ranges):
        if end <= first:
            continue
        if result and first <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((first, end))
    return tuple(result)


def common(ranges: Sequence[Ranges]) -> Ranges:
    result = ranges[0] if ranges else ()
    for other in ranges[1:]:
        result = merged(
            (max(a, c), min(b, d)) for a, b in result for c, d in other if max(a, c) < min(b, d)
        )
    return result


def without(first: int, end: int, finished: Ranges) -> list[tuple[int, int]]:
    remaining = []
    for begin, stop in finished:
        if stop <= first or begin >= end:
            continue
        if begin > first:
            remaining.append((first, begin))
        first = stop
    return [*remaining, (first, end)] if first < end else remaining
