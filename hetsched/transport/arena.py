"""Shared memory: sealed memfds, reference-counted, kept warm for the next job.

The first touch of fresh memory takes 0.3 to 2.5 s per GiB, so free segments are reused rather than
returned to the system. Segments are sealed against shrinking and growing (F_SEAL_SHRINK,
F_SEAL_GROW): no process that maps one can get SIGBUS because another truncated it.

An Arena belongs to one thread.
"""

from __future__ import annotations

import _thread
import contextlib
import errno
import fcntl
import mmap
import os
import sys
from collections.abc import Callable, Hashable
from dataclasses import dataclass

import numpy as np

from hetsched.errors import DataError, InternalError, TryAgain
from hetsched.transport.arrays import array_view
from hetsched.transport.pages import SIZE_SEALS, map_segment
from hetsched.units import format_bytes

SIZE_GRANULARITY = 64 << 10
"""Bytes that sizes are multiples of, so that small segments are interchangeable. Arbitrary."""
MAX_OVERSIZE = 1.25
"""Largest ratio of a reused segment's size to the requested size. Arbitrary."""
MAX_WARM_FRACTION = 0.5
"""Largest fraction of the limit that free segments may take. Arbitrary."""
MAX_WARM_SEGMENTS = 64
"""Largest number of free segments; each takes a descriptor in every process that maps it.
Arbitrary."""

LARGE_BYTES = 64 << 20
"""Segments from this size on are freed by another thread: it takes up to a second per GiB."""

NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)

_SEALS = SIZE_SEALS | fcntl.F_SEAL_SEAL


def _close(fd: int, nbytes: int) -> None:
    """Close a segment's descriptor, which frees its memory unless it is mapped somewhere."""
    if nbytes >= LARGE_BYTES:
        with contextlib.suppress(RuntimeError):  # no thread can be started: close it here
            # Not Thread.start(), which waits for the thread: forever, while the interpreter ends.
            _thread.start_new_thread(os.close, (fd,))
            return
    os.close(fd)


class Segment:
    """One sealed memfd, mapped when its first array is made.

    Attributes
    ----------
    id : int
        Unique within an arena, also over time.
    fd : int
    nbytes : int, bytes
        At least the requested size.
    owner : hashable
        Whose data it has.
    uses : int
        How often it was allocated.
    """

    def __init__(self, segment_id: int, fd: int, nbytes: int) -> None:
        self.id = segment_id
        self.fd = fd
        self.nbytes = nbytes
        self.owner: Hashable = None
        self.uses = 0
        self._mapping: mmap.mmap | None = None

    def mapping(self) -> mmap.mmap:
        """Return the mapping. Raises TryAgain if the system refuses it."""
        if self._mapping is None:
            try:
                self._mapping = map_segment(self.fd, self.nbytes)
            except OSError as error:
                size = format_bytes(self.nbytes)
                raise TryAgain(f"can't map {size} of shared memory: {error.strerror}") from None
        return self._mapping

    def array(
        self,
        shape: tuple[int, ...],
        dtype: str,
        offset: int = 0,
        on_release: Callable[[], None] | None = None,
    ) -> np.ndarray:
        return array_view(self, self.mapping(), shape, dtype, offset, on_release)

    def release_fd(self) -> None:
        """Close the descriptor; a mapping stays."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            _close(fd, self.nbytes)

    def __del__(self) -> None:
        self.release_fd()

    def close(self) -> None:
        """Close the descriptor; the memory is freed with its last array. Idempotent."""
        if self._mapping is not None:
            with contextlib.suppress(BufferError):  # arrays exist: freeing the last one unmaps
                self._mapping.close()
            self._mapping = None
        self.release_fd()


@dataclass
class _Lease:
    """A segment in use, with its number of references."""

    segment: Segment
    references: int


class Arena:
    """Owns all segments: allocates them, counts references, keeps free ones warm.

    Parameters
    ----------
    limit : int, bytes
        Of all segments together, including free ones.
    first_id : int
        Of the segments; another one for each daemon, so that a client can't mistake a segment for
        that of an earlier daemon.
    """

    def __init__(self, limit: int, first_id: int = 1) -> None:
        self.limit = limit
        self.max_descriptor = sys.maxsize
        """Descriptors from this one on are left to connections and device processes."""
        self._leases: dict[int, _Lease] = {}
        self._free: list[Segment] = []  # least recently used first
        self._adopted: dict[tuple[int, int], Segment] = {}
        self._adopted_files: dict[int, tuple[int, int]] = {}
        self._next_id = first_id
        self._discard_callbacks: list[Callable[[int], None]] = []
        self._pressure_callbacks: list[Callable[[int], None]] = []

    @property
    def used(self) -> int:
        """Bytes of the segments that have references."""
        return sum(lease.segment.nbytes for lease in self._leases.values())

    @property
    def warm(self) -> int:
        """Bytes of the free segments."""
        return sum(segment.nbytes for segment in self._free)

    def on_discard(self, callback: Callable[[int], None]) -> None:
        """Call ``callback(id)`` before a segment is freed, so that processes can unmap it."""
        self._discard_callbacks.append(callback)

    def on_pressure(self, callback: Callable[[int], None]) -> None:
        """Call ``callback(nbytes)`` when that much memory is missing, to release results."""
        self._pressure_callbacks.append(callback)

    def allocate(self, nbytes: int, owner: Hashable = None, *, zero: bool = False) -> Segment:
        """Return a segment of at least `nbytes` with one reference; its contents are undefined.

        They may be those of an earlier segment of `owner`, but of nobody else; or `zero`.

        Raises
        ------
        DataError
            More than the limit.
        TryAgain
            Too much is in use at present.
        """
        size = max(SIZE_GRANULARITY, -(-nbytes // SIZE_GRANULARITY) * SIZE_GRANULARITY)
        if nbytes < 0 or size > self.limit:
            raise DataError(
                f"{format_bytes(nbytes)} of shared memory: the limit is"
                f" {format_bytes(self.limit)} in all (arena.limit in the config);"
                " use files for the input and the output"
            )
        warm = None if zero else self._take_warm(size, owner)
        segment = warm or self._create(size)
        segment.owner = owner
        segment.uses += 1
        self._leases[segment.id] = _Lease(segment, 1)
        return segment

    def adopt(self, fd: int, segment_id: int | None = None) -> Segment:
        """Take over a segment of an earlier arena, with one reference; `fd` is closed on error.

        It gets a new id, or keeps `segment_id`, which it had there. Adopting the same memory again
        gives the same segment, with one more reference. It is never recycled, since clients that
        this arena doesn't know may still have arrays there.

        Raises
        ------
        DataError
            Not a memfd of hetsched, sealed against any change of its size; the id is taken.
        TryAgain
            Too much is in use at present.
        """
        try:
            file = _check_sealed(fd)
            segment = self._adopted.get(file)
            if segment is not None:
                os.close(fd)
                self.retain(segment.id)
                return segment
            if segment_id in self._leases:
                raise DataError(f"segment {segment_id} exists already")
            size = os.fstat(fd).st_size
            self._make_room(size)
        except BaseException:
            os.close(fd)
            raise
        segment = self._new_segment(fd, size, segment_id)
        self._adopted[file] = segment
        self._adopted_files[segment.id] = file
        self._leases[segment.id] = _Lease(segment, 1)
        return segment

    def retain(self, segment_id: int) -> None:
        """Add a reference. Raises InternalError for a segment without any."""
        self._lease(segment_id).references += 1

    def release(self, segment_id: int) -> None:
        """Drop a reference; the segment becomes free with the last one."""
        lease = self._lease(segment_id)
        lease.references -= 1
        if lease.references == 0:
            del self._leases[segment_id]
            file = self._adopted_files.pop(segment_id, None)
            if file is not None:
                del self._adopted[file]
                self._discard(lease.segment)
                return
            self._free.append(lease.segment)
            self._trim(int(self.limit * MAX_WARM_FRACTION))

    def take_back(self, segment_id: int, uses: int) -> bool:
        """Add a reference to a free segment; return whether it is free since so many `uses`."""
        for segment in self._free:
            if (segment.id, segment.uses) == (segment_id, uses):
                self._free.remove(segment)
                self._leases[segment_id] = _Lease(segment, 1)
                return True
        return False

    def segment(self, segment_id: int) -> Segment:
        """Return a segment in use. Raises InternalError."""
        return self._lease(segment_id).segment

    def holds(self, segment_id: int) -> bool:
        """Return whether the segment is in use."""
        return segment_id in self._leases

    def owns(self, segment: Segment) -> bool:
        """Return whether `segment` is in use and of this arena: two arenas may use the same id."""
        lease = self._leases.get(segment.id)
        return lease is not None and lease.segment is segment

    def trim(self) -> None:
        """Free all segments that aren't in use."""
        self._trim(0)

    def close(self) -> None:
        """Close all segments, including those in use."""
        for lease in self._leases.values():
            lease.segment.close()
        self._leases.clear()
        self._discard_callbacks.clear()
        self._trim(0)

    def _lease(self, segment_id: int) -> _Lease:
        lease = self._leases.get(segment_id)
        if lease is None:
            raise InternalError(f"segment {segment_id} is not in use")
        return lease

    def _take_warm(self, size: int, owner: Hashable) -> Segment | None:
        """Take the smallest free segment that fits; of equal ones the last used (warm cache)."""
        own = (segment for segment in self._free if segment.owner == owner)
        fitting = [segment for segment in own if size <= segment.nbytes <= size * MAX_OVERSIZE]
        if not fitting:
            return None
        best = min(reversed(fitting), key=lambda segment: segment.nbytes)
        self._free.remove(best)
        return best

    def _create(self, size: int) -> Segment:
        self._make_room(size)
        try:
            fd = self._memfd(size)
        except OSError as error:
            if error.errno not in NO_DESCRIPTORS:
                raise TryAgain(
                    f"{format_bytes(size)} of shared memory: {error.strerror}"
                ) from None
            self._request_results(1)
            self.trim()
            fd = self._last_memfd(size)
        return self._new_segment(fd, size)

    def _last_memfd(self, size: int) -> int:
        try:
            return self._memfd(size)
        except OSError as error:
            raise TryAgain(
                f"{format_bytes(size)} of shared memory: {error.strerror} (RLIMIT_NOFILE);"
                " release arrays and results, or raise the limit"
            ) from None

    def _memfd(self, size: int) -> int:
        fd = os.memfd_create("hetsched", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            if fd >= self.max_descriptor:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            os.ftruncate(fd, size)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
        except OSError:
            os.close(fd)
            raise
        return fd

    def _new_segment(self, fd: int, size: int, segment_id: int | None = None) -> Segment:
        if segment_id is None:
            segment_id = self._next_id
        self._next_id = max(self._next_id, segment_id + 1)
        return Segment(segment_id, fd, size)

    def _make_room(self, size: int) -> None:
        missing = self.used + size - self.limit
        if missing > 0:
            self._request_results(missing)
        self._trim(max(0, self.limit - self.used - size))
        if self.used + size > self.limit:
            raise TryAgain(
                f"{format_bytes(size)} of shared memory: {format_bytes(self.used)} of"
                f" {format_bytes(self.limit)} are in use; try again later, or use files"
            )

    def _request_results(self, nbytes: int) -> None:
        for callback in self._pressure_callbacks:
            callback(nbytes)

    def _trim(self, max_bytes: int, max_segments: int = MAX_WARM_SEGMENTS) -> None:
        """Discard the least recently used free segments beyond these limits."""
        warm = self.warm
        while warm > max_bytes or len(self._free) > max_segments:
            segment = self._free.pop(0)
            warm -= segment.nbytes
            self._discard(segment)

    def _discard(self, segment: Segment) -> None:
        for callback in self._discard_callbacks:
            callback(segment.id)
        segment.close()


def _check_sealed(fd: int) -> tuple[int, int]:
    """Return device and inode of a sealed memfd. Raises DataError if `fd` isn't one."""
    try:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError:  # not a memfd
        seals = 0
    status = os.fstat(fd)
    if seals != _SEALS or status.st_size == 0 or status.st_size % SIZE_GRANULARITY:
        raise DataError("the memory passed isn't a sealed segment of hetsched")
    return status.st_dev, status.st_ino
