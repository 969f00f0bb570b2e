"""Mapping of segments: sealed memfds, whose pages are put in place block by block.

The first touch of fresh memory takes 0.3 to 2.5 s per GiB, so pages are put in place before a
kernel runs; one call for a segment of several GiB couldn't be interrupted.

Most systems have `shmem_enabled` = `never`: memfds get pages of 4 KiB, whatever is advised.
`MADV_COLLAPSE` (Linux 6.1) makes huge ones of them at once, if the mapping's addresses and the
file's offsets agree modulo their size. 256 MiB are in place in 19 ms instead of 290, and kernels
that read several arrays at once gain most: processors don't prefetch across the end of a page.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import time
from collections.abc import Iterator

from hetsched.errors import ProtocolError

SIZE_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
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


def map_segment(fd: int, nbytes: int) -> mmap.mmap:
    """Map all of a segment, with its pages in place. Raises as `map_unpopulated`."""
    mapping = map_unpopulated(fd, nbytes)
    for _ in populate(mapping):
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
        raise ProtocolError(
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


def populate(mapping: mmap.mmap) -> Iterator[int]:
    """Put the pages in place, one block for each value: the bytes in place so far.

    Where memory is short, pages are left to be allocated at their first use.
    """
    size = len(mapping)
    for start in range(0, size, BLOCK_BYTES):
        end = min(start + BLOCK_BYTES, size)
        _huge_pages.collapse(mapping, start, end)
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

    def collapse(self, mapping: mmap.mmap, start: int, end: int) -> None:
        """Make huge pages of the bytes from `start` to `end`, as far as they fill whole ones."""
        first = -(-start // HUGE_BYTES) * HUGE_BYTES
        last = end // HUGE_BYTES * HUGE_BYTES
        if first >= last or mapping_address(mapping) % HUGE_BYTES:
            return
        for piece in range(first, last, PIECE_BYTES):
            began, used = time.monotonic(), time.thread_time()
            if began < self._next_attempt:
                return
            done, stop = True, min(piece + PIECE_BYTES, last)
            # The kernel refuses where no page is in place. It takes a huge page from the NUMA node
            # of the small pages that are there: where these are interleaved, the first ones of all
            # huge pages would be on one node.
            with memoryview(mapping) as view:
                for number in range(piece // HUGE_BYTES, stop // HUGE_BYTES):
                    stride = number * TOUCHED_STRIDE * mmap.PAGESIZE % HUGE_BYTES
                    _ = view[number * HUGE_BYTES + stride]
            try:
                mapping.madvise(MADV_COLLAPSE, piece, stop - piece)
            except OSError:
                done = False
            now, used = time.monotonic(), time.thread_time() - used
            if not done or used > SLOW_SECONDS or now - began > SLOW_WALL_SECONDS:
                self._next_attempt = now + PAUSE_SECONDS


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
