"""Mapping of segments: sealed memfds, whose pages are put in place block by block.

Owns no segment. The first touch of fresh memory takes 0.3 to 2.5 s per GiB, so pages are put in
place before a kernel runs; one call for a segment of several GiB couldn't be interrupted.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
from collections.abc import Iterator

from hetsched.errors import ProtocolError
from hetsched.transport.pages.huge_pages import HugePages, map_aligned

SIZE_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
BLOCK_BYTES = 64 << 20
"""Bytes put in place by one call: at most 0.2 s on slow machines. A multiple of huge pages."""
MADV_POPULATE_READ = 22
"""From linux/mman.h, since 5.14; the `mmap` module lacks it. For shared memory it allocates, too:
a later write faults no more."""
_HUGE_PAGES = HugePages()


def map_segment(fd: int, nbytes: int) -> mmap.mmap:
    """Map all of a segment, with its pages in place.

    The descriptor may come from another process, so its seals are checked: without them that
    process could end this one with SIGBUS, by truncating the file.

    Raises
    ------
    ProtocolError
        Not a sealed memfd of at least `nbytes`.
    OSError
    """
    mapping = map_unpopulated(fd, nbytes)
    for _ in populate(mapping):
        pass
    return mapping


def map_unpopulated(fd: int, nbytes: int) -> mmap.mmap:
    """Map all of a segment, ready for huge pages.

    Raises as `map_segment`.
    """
    check_segment(fd, nbytes)
    mapping = map_aligned(fd, nbytes)
    with contextlib.suppress(OSError):  # a kernel without huge pages
        mapping.madvise(mmap.MADV_HUGEPAGE)
    return mapping


def populate(mapping: mmap.mmap) -> Iterator[int]:
    """Put the pages in place, one block for each value: the bytes in place so far.

    They are huge ones where possible. Where memory is short, pages are left to be allocated at
    their first use.
    """
    size = len(mapping)
    for start in range(0, size, BLOCK_BYTES):
        end = min(start + BLOCK_BYTES, size)
        _HUGE_PAGES.collapse(mapping, start, end)
        try:
            mapping.madvise(MADV_POPULATE_READ, start, end - start)
        except OSError as error:
            if error.errno == errno.EINVAL:  # an older kernel: read a byte of each page
                with memoryview(mapping) as view:
                    view[start : end : mmap.PAGESIZE].tobytes()
        yield end


def check_segment(fd: int, nbytes: int) -> None:
    """Raise ProtocolError unless `fd` is a memfd of at least `nbytes` whose size is sealed."""
    try:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError:  # not a memfd
        seals = 0
    size = os.fstat(fd).st_size
    if seals & SIZE_SEALS != SIZE_SEALS or not 0 < nbytes <= size:
        raise ProtocolError(
            f"a segment of {nbytes} bytes: received a file of {size} bytes"
            f" {'with' if seals & SIZE_SEALS == SIZE_SEALS else 'without'} a sealed size"
        )
