"""Shared memory: sealed memfds, reference-counted, kept warm for the next job.

The first touch of fresh memory takes 0.3 to 2.5 s per GiB, so free segments are reused, and pages
are put in place before a kernel runs, block by block: one call for a segment of several GiB
couldn't be interrupted. The size of segments is sealed: no process that maps one can get SIGBUS
because another truncated it.

Most systems have `shmem_enabled` = `never`: memfds get pages of 4 KiB, whatever is advised.
`MADV_COLLAPSE` (Linux 6.1) makes huge ones of them at once, if the mapping's addresses and the
file's offsets agree modulo their size. 256 MiB are in place in 19 ms instead of 290, and kernels
that read several arrays at once gain most: processors don't prefetch across the end of a page.
"""

from __future__ import annotations

import _thread
import contextlib
import ctypes
import errno
import fcntl
import itertools
import math
import mmap
import os
import sys
import time
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any

import numpy as np

from hetsched import errors
from hetsched.units import format_bytes

SIZE_GRANULARITY = 64 << 10
"""Bytes that sizes are multiples of, so that small segments are interchangeable."""
MAX_OVERSIZE = 1.25
"""Largest ratio of a reused segment's size to the requested size."""
MAX_WARM_FRACTION = 0.5
"""Largest fraction of the limit that free segments may take."""
MAX_WARM_SEGMENTS = 64
"""Largest number of free segments; each takes a descriptor in every process that maps it."""

LARGE_BYTES = 64 << 20
"""Segments from this size on are freed by another thread: it takes up to a second per GiB."""

NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)

SIZE_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
_SEALS = SIZE_SEALS | fcntl.F_SEAL_SEAL
BLOCK_BYTES = 64 << 20
"""Bytes put in place by one call: at most 0.2 s on slow machines. A multiple of huge pages."""
HUGE_BYTES = 2 << 20
"""A huge page, of x86-64 and of aarch64 with pages of 4 KiB."""
# From linux/mman.h, since 5.14, 6.1 and 4.17; the `mmap` module lacks them. Of shared memory
# MADV_POPULATE_READ allocates the pages, too: a later write faults no more.
MADV_POPULATE_READ, MADV_COLLAPSE, MAP_FIXED_NOREPLACE, PROT_NONE = 22, 25, 0x100000, 0
TOUCHED_STRIDE = 9
"""Plus the small pages of a huge one, 512, this is a prime number: successive huge pages are on
different nodes, however many there are."""
PIECE_BYTES = 8 << 20
"""Of one attempt; the next one follows only if this wasn't slow."""
SLOW_SECONDS, SLOW_WALL_SECONDS = 0.1, 1.0
"""Processor time of a slow attempt, several times what small pages would take: the kernel moves
others' pages to make room. By the wall clock more, since the machine may be busy."""
PAUSE_SECONDS = 60.0
"""After such an attempt or a failed one, none is made for this time."""
LOCK_ATTEMPTS, LOCK_PAUSE = 1000, 0.001
"""To have a piece for this process alone, and seconds between two: a piece takes some 3 ms."""


class Segment:
    """One sealed memfd, mapped when its first array is made. Its id is never used again."""

    def __init__(self, segment_id: int, fd: int, nbytes: int) -> None:
        self.id = segment_id
        self.fd = fd
        self.nbytes = nbytes
        self.owner: Hashable = None  # Whose data it has
        self.uses = 0  # How often it was allocated
        self.references = 0
        self.file: tuple[int, int] | None = None  # Device and inode, if it was adopted
        self.lent: np.ndarray | None = None  # The array that it is, in memory of this process
        self._mapping: mmap.mmap | None = None

    def memory(self) -> np.ndarray:
        return np.frombuffer(self.mapping(), np.uint8) if self.lent is None else self.lent

    def mapping(self) -> mmap.mmap:
        """Map the segment, once. Raises TryAgain if the system refuses it."""
        if self._mapping is None:
            try:
                self._mapping = map_segment(self.fd, self.nbytes)
            except OSError as error:
                size = format_bytes(self.nbytes)
                raise errors.TryAgain(
                    f"can't map {size} of shared memory: {error.strerror}"
                ) from None
        return self._mapping

    def array(
        self,
        shape: tuple[int, ...],
        dtype: str,
        offset: int = 0,
        on_release: Callable[[], None] | None = None,
    ) -> np.ndarray:
        """Return a C-contiguous array at byte `offset`; it keeps the mapping alive.

        `on_release` is called once, on any thread, after the last array on this memory is freed.
        Raises DataError for an array that can't be there, TryAgain as `mapping`.
        """
        kind, mapping = np.dtype(dtype), self.mapping()
        if kind.hasobject or min(shape, default=0) < 0:
            raise errors.DataError(
                f"shape {shape}, dtype {dtype}: can't be stored in shared memory"
            )
        nbytes = kind.itemsize * math.prod(shape)
        if offset < 0 or offset + nbytes > len(mapping):
            raise errors.DataError(
                f"an array of {nbytes} bytes at {offset} extends past its segment"
                f" of {len(mapping)} bytes"
            )
        exporter = MappingExporter(self, mapping, tuple(shape), kind, offset)
        array = np.asarray(exporter)
        if on_release is not None:  # last, so that an error leaves the reference with the caller
            weakref.finalize(exporter, on_release).atexit = False
        return array

    def release_fd(self) -> None:
        fd, self.fd = self.fd, -1
        if fd < 0:
            return
        if self.nbytes >= LARGE_BYTES:
            with contextlib.suppress(RuntimeError):  # no thread can be started: close it here
                # Not Thread.start(), which waits for the thread: forever, while the interpreter
                # ends.
                _thread.start_new_thread(os.close, (fd,))
                return
        os.close(fd)

    def __del__(self) -> None:
        self.release_fd()

    def close(self) -> None:
        self.lent = None
        if self._mapping is not None:
            with contextlib.suppress(BufferError):  # arrays exist: freeing the last one unmaps
                self._mapping.close()
            self._mapping = None
        self.release_fd()


class MappingExporter:
    """The base of the arrays on a mapping: it exists exactly as long as any of them.

    A slice can outlive the array that it was taken from, but NumPy keeps the base of both alive.
    The memoryview prevents the mapping from being closed meanwhile.
    """

    def __init__(
        self, segment: Segment, mapping: mmap.mmap, shape: tuple[int, ...], dtype: Any, offset: int
    ) -> None:
        self.segment = segment
        self._buffer = memoryview(mapping)
        self.start: int = np.frombuffer(self._buffer, np.uint8).__array_interface__["data"][0]
        self.__array_interface__ = {
            "version": 3,
            "shape": shape,
            "typestr": dtype.str,
            "data": (self.start + offset, False),
        }


def locate_in_segment(array: np.ndarray) -> tuple[Segment, int] | None:
    """Return the segment of `array` and its offset there in bytes; None for other memory."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    if not isinstance(base, MappingExporter):
        return None
    return base.segment, array.__array_interface__["data"][0] - base.start


class Arena:
    """Owns all segments: allocates them, counts references, keeps free ones warm. On one thread.

    `limit`: bytes, including free segments. `first_id`: another one for each daemon, so that a
    client can't mistake a segment for that of an earlier daemon.
    """

    def __init__(self, limit: int, first_id: int = 1) -> None:
        self.limit = limit
        # Descriptors from this one on are left to connections and device processes.
        self.max_descriptor = sys.maxsize
        # Called with the id before a segment is freed, so that processes can unmap it
        self.on_discard: list[Callable[[int], None]] = []
        # Called when so many bytes, or a descriptor, are missing, to release results
        self.on_pressure: Callable[[int], None] = lambda nbytes: None
        self._in_use: dict[int, Segment] = {}
        self._free: list[Segment] = []  # least recently used first
        self.numbers = itertools.count(first_id)  # Of segments; any thread may take one

    @property
    def used(self) -> int:
        return sum(segment.nbytes for segment in self._in_use.values())

    @property
    def warm(self) -> int:
        return sum(segment.nbytes for segment in self._free)

    def allocate(self, nbytes: int, owner: Hashable = None, *, zero: bool = False) -> Segment:
        """Return a segment of at least `nbytes` with one reference; its contents are undefined.

        They may be those of an earlier segment of `owner`, but of nobody else; or `zero`. Raises
        DataError beyond the limit, TryAgain if too much is in use at present.
        """
        size = max(SIZE_GRANULARITY, -(-nbytes // SIZE_GRANULARITY) * SIZE_GRANULARITY)
        if nbytes < 0 or size > self.limit:
            raise errors.DataError(
                f"{format_bytes(nbytes)} of shared memory: the limit is"
                f" {format_bytes(self.limit)} in all (arena.limit in the config);"
                " use files for the input and the output"
            )
        fitting = [
            segment
            for segment in reversed(self._free)
            if not zero
            and segment.owner == owner
            and size <= segment.nbytes <= size * MAX_OVERSIZE
        ]
        # The smallest one; of equal ones the last used, whose memory may be in a cache
        segment = min(fitting, key=lambda segment: segment.nbytes, default=None)
        if segment is not None:
            self._free.remove(segment)
        else:
            self._make_room(size)
            segment = Segment(next(self.numbers), self._create(size), size)
        segment.owner = owner
        segment.uses += 1
        return self._begin_use(segment)

    def adopt(self, fd: int) -> Segment:
        """Take over a segment of an earlier arena, with one reference; `fd` is closed on error.

        Adopting the same memory again gives the same segment, with one more reference. It is never
        recycled, since clients that this arena doesn't know may still have arrays there. Raises
        DataError for anything but a sealed memfd, TryAgain as `allocate`.
        """
        try:
            status = os.fstat(fd)
            size, file = status.st_size, (status.st_dev, status.st_ino)
            if seals_of(fd) != _SEALS or size == 0 or size % SIZE_GRANULARITY:
                raise errors.DataError("the memory passed isn't a sealed segment of hetsched")
            for segment in self._in_use.values():
                if segment.file == file:
                    os.close(fd)
                    segment.references += 1
                    return segment
            self._make_room(size)
        except BaseException:
            os.close(fd)
            raise
        segment = Segment(next(self.numbers), fd, size)
        segment.file = file
        return self._begin_use(segment)

    def lend(self, segment_id: int, array: np.ndarray) -> None:
        """Begin to use an array in this process's own memory, with one reference.

        Only loops in threads can use it. It counts as no shared memory.
        """
        segment = Segment(segment_id, -1, 0)
        segment.lent = array
        self._begin_use(segment)

    def retain(self, segment_id: int) -> None:
        self._in_use[segment_id].references += 1

    def hold(self, segments: Iterable[int]) -> Callable[[], None]:
        """Retain those of `segments` that are in use; return what releases them, once."""
        held = [segment for segment in segments if segment in self._in_use]
        for segment in held:
            self.retain(segment)

        def release() -> None:
            while held:
                self.release(held.pop())

        return release

    def release(self, segment_id: int) -> None:
        segment = self._in_use[segment_id]
        segment.references -= 1
        if segment.references > 0:
            return
        del self._in_use[segment_id]
        if segment.file is not None or segment.lent is not None:
            self._discard(segment)
        else:
            self._free.append(segment)
            self.trim(int(self.limit * MAX_WARM_FRACTION))

    def take_back(self, segment_id: int, uses: int) -> bool:
        """Add a reference to a segment, if it has been free since so many `uses`."""
        for segment in self._free:
            if (segment.id, segment.uses) == (segment_id, uses):
                self._free.remove(segment)
                self._begin_use(segment)
                return True
        return False

    def segment(self, segment_id: int) -> Segment:
        try:
            return self._in_use[segment_id]
        except KeyError:
            raise errors.InternalError(f"segment {segment_id} is not in use") from None

    def holds(self, segment_id: int) -> bool:
        return segment_id in self._in_use

    def owns(self, segment: Segment) -> bool:
        """Return whether `segment` is in use and of this arena: two arenas may use the same id."""
        return self._in_use.get(segment.id) is segment

    def trim(self, max_bytes: int = 0) -> None:
        """Discard the least recently used free segments beyond the limits; by default all."""
        warm = self.warm
        while warm > max_bytes or len(self._free) > MAX_WARM_SEGMENTS:
            segment = self._free.pop(0)
            warm -= segment.nbytes
            self._discard(segment)

    def close(self) -> None:
        for segment in self._in_use.values():
            segment.close()
        self._in_use.clear()
        self.on_discard.clear()
        self.trim()

    def _create(self, size: int, *, may_free: bool = True) -> int:
        """Return a new memfd; results and free segments make room for a missing descriptor."""
        fd = -1
        try:
            fd = os.memfd_create("hetsched", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            if fd >= self.max_descriptor:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            os.ftruncate(fd, size)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
        except OSError as error:
            if fd >= 0:
                os.close(fd)
            are_descriptors_missing = error.errno in NO_DESCRIPTORS
            if are_descriptors_missing and may_free:
                self.on_pressure(1)
                self.trim()
                return self._create(size, may_free=False)
            hint = " (RLIMIT_NOFILE); release arrays and results, or raise the limit"
            raise errors.TryAgain(
                f"{format_bytes(size)} of shared memory: {error.strerror}"
                f"{hint if are_descriptors_missing else ''}"
            ) from None
        return fd

    def _begin_use(self, segment: Segment) -> Segment:
        segment.references = 1
        self._in_use[segment.id] = segment
        return segment

    def _make_room(self, size: int) -> None:
        missing = self.used + size - self.limit
        if missing > 0:
            self.on_pressure(missing)
        self.trim(max(0, self.limit - self.used - size))
        if self.used + size > self.limit:
            raise errors.TryAgain(
                f"{format_bytes(size)} of shared memory: {format_bytes(self.used)} of"
                f" {format_bytes(self.limit)} are in use; try again later, or use files"
            )

    def _discard(self, segment: Segment) -> None:
        for callback in self.on_discard:
            callback(segment.id)
        segment.close()


# ---- mapping, with pages in place


def map_segment(fd: int, nbytes: int) -> mmap.mmap:
    """Map all of a segment, with its pages in place. Raises as `map_unpopulated`."""
    mapping = map_unpopulated(fd, nbytes)
    for _ in populate(mapping, fd):
        pass
    return mapping


def map_unpopulated(fd: int, nbytes: int) -> mmap.mmap:
    """Map all of a segment, at a multiple of huge pages, if that is possible.

    The descriptor may come from another process, so its seals are checked: without them that
    process could end this one with SIGBUS, by truncating the file.

    Raises ProtocolError unless it is a sealed memfd of at least `nbytes`; OSError.
    """
    is_sealed, size = seals_of(fd) & SIZE_SEALS == SIZE_SEALS, os.fstat(fd).st_size
    if not is_sealed or not 0 < nbytes <= size:
        raise errors.ProtocolError(
            f"a segment of {nbytes} bytes: received a file of {size} bytes"
            f" {'with' if is_sealed else 'without'} a sealed size"
        )
    mapping = mmap.mmap(fd, nbytes, mmap.MAP_SHARED)
    start = mapping_address(mapping)
    excess = start % HUGE_BYTES
    if excess and nbytes >= HUGE_BYTES:
        # The `mmap` module takes no address. The kernel goes from high to low ones, so what this
        # attempt has too much is reserved for a moment at its end, which shifts the second.
        mapping.close()
        pages = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        with _reserved(start + pages - excess, excess):
            mapping = mmap.mmap(fd, nbytes, mmap.MAP_SHARED)
    with contextlib.suppress(OSError):  # a kernel without huge pages
        mapping.madvise(mmap.MADV_HUGEPAGE)
    return mapping


def populate(mapping: mmap.mmap, fd: int) -> Iterator[int]:
    """Put the pages of `fd` in place, one block for each value: the bytes in place so far.

    Where memory is short, pages are left to be allocated at their first use.
    """
    size = len(mapping)
    for start in range(0, size, BLOCK_BYTES):
        end = min(start + BLOCK_BYTES, size)
        _huge_pages.collapse(mapping, fd, start, end)
        try:
            mapping.madvise(MADV_POPULATE_READ, start, end - start)
        except OSError as error:
            if error.errno == errno.EINVAL:  # an older kernel: read a byte of each page
                with memoryview(mapping) as view:
                    view[start : end : mmap.PAGESIZE].tobytes()
        yield end


def seals_of(fd: int) -> int:
    try:
        return fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError:  # not a memfd
        return 0


class HugePages:
    """Makes huge pages; where memory is fragmented, or the kernel older, only now and then."""

    def __init__(self) -> None:
        self._next_attempt = 0.0

    def collapse(self, mapping: mmap.mmap, fd: int, start: int, end: int) -> None:
        """Make huge pages of the bytes from `start` to `end`, as far as they fill whole ones."""
        first = -(-start // HUGE_BYTES) * HUGE_BYTES
        last = end // HUGE_BYTES * HUGE_BYTES
        if first >= last or mapping_address(mapping) % HUGE_BYTES:
            return
        for piece in range(first, last, PIECE_BYTES):
            began, used = time.monotonic(), time.thread_time()
            if began < self._next_attempt:
                return
            stop = min(piece + PIECE_BYTES, last)
            with _alone(fd, piece, stop - piece) as is_alone:
                done = is_alone and self._collapse(mapping, piece, stop)
            now, used = time.monotonic(), time.thread_time() - used
            if not done or used > SLOW_SECONDS or now - began > SLOW_WALL_SECONDS:
                self._next_attempt = now + PAUSE_SECONDS

    def _collapse(self, mapping: mmap.mmap, start: int, end: int) -> bool:
        # The kernel refuses where no page is in place. It takes a huge page from the NUMA node
        # of the small pages that are there: where these are interleaved, the first ones of all
        # huge pages would be on one node.
        with memoryview(mapping) as view:
            for number in range(start // HUGE_BYTES, end // HUGE_BYTES):
                stride = number * TOUCHED_STRIDE * mmap.PAGESIZE % HUGE_BYTES
                _ = view[number * HUGE_BYTES + stride]
        try:
            mapping.madvise(MADV_COLLAPSE, start, end - start)
        except OSError:
            return False
        return True


@contextlib.contextmanager
def _alone(fd: int, start: int, nbytes: int) -> Iterator[bool]:
    """Lock a range of a segment; yield False if another process had it all the time.

    Processes that map a fresh segment at the same time would keep each other from making huge
    pages: the kernel refuses where another one has just touched a page.
    """
    for _ in range(LOCK_ATTEMPTS):
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, nbytes, start)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                break  # no locks here: whoever comes at the same time may keep us from it
            time.sleep(LOCK_PAUSE)
        else:
            break
    else:
        yield False
        return
    try:
        yield True
    finally:
        with contextlib.suppress(OSError):
            fcntl.lockf(fd, fcntl.LOCK_UN, nbytes, start)


_huge_pages = HugePages()


@contextlib.contextmanager
def _reserved(address: int, nbytes: int) -> Iterator[None]:
    """Keep a range of addresses free of mappings, if the kernel can."""
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    start, size = ctypes.c_void_p(address), ctypes.c_size_t(nbytes)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_FIXED_NOREPLACE
    got = libc.mmap(start, size, PROT_NONE, flags, -1, ctypes.c_long(0))
    try:
        yield
    finally:
        if got != ctypes.c_void_p(-1).value:
            libc.munmap(ctypes.c_void_p(got), size)


def mapping_address(mapping: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(mapping))
