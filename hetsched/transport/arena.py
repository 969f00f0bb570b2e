"""Shared memory: sealed memfds, reference-counted, kept warm for the next job.

The first touch of fresh memory costs 0.3 to 2.5 s a GiB, so a free segment is used again rather
than given back. Segments can't shrink or grow (F_SEAL_SHRINK, F_SEAL_GROW): nobody who maps one
can be killed by SIGBUS through another's ftruncate.

An Arena belongs to one thread.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hetsched.errors import DataError, InternalError, TryAgain
from hetsched.transport.array_views import view
from hetsched.units import format_bytes

GRAIN = 64 << 10
"""Sizes are rounded up to this, so that small segments are interchangeable. Arbitrary."""
SLACK = 1.25
"""A warm segment may be this many times as large as what is asked for. Arbitrary."""
WARM_SHARE = 0.5
"""Of the limit: what free segments may hold. Arbitrary."""
MOST_WARM = 64
"""Free segments that are kept; each costs every process that maps it a descriptor. Arbitrary."""

_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


def map_segment(fd: int, nbytes: int) -> mmap.mmap:
    """All of a segment, mapped shared with its pages in place."""
    return mmap.mmap(fd, nbytes, mmap.MAP_SHARED | mmap.MAP_POPULATE)


class Segment:
    """One sealed memfd. Maps itself when an array is first asked for.

    Attributes
    ----------
    id : int
        Never repeats within an arena.
    fd : int
    nbytes : int, bytes
        At least what was asked for.
    """

    def __init__(self, ident: int, fd: int, nbytes: int) -> None:
        self.id = ident
        self.fd = fd
        self.nbytes = nbytes
        self._mapping: mmap.mmap | None = None

    def mapping(self) -> mmap.mmap:
        if self._mapping is None:
            try:
                self._mapping = map_segment(self.fd, self.nbytes)
            except OSError as error:
                size = format_bytes(self.nbytes)
                raise TryAgain(
                    f"shared memory of {size} can't be mapped: {error.strerror}"
                ) from None
        return self._mapping

    def array(
        self,
        shape: tuple[int, ...],
        dtype: str,
        offset: int = 0,
        gone: Callable[[], None] | None = None,
    ) -> np.ndarray:
        """A C-contiguous view of the bytes from `offset` on; it keeps the mapping alive.

        `gone` is called once, when the last array that shares the view has died, on any thread.

        Raises
        ------
        DataError
            It reaches past the end.
        """
        return view(self, self.mapping(), shape, dtype, offset, gone)

    def release_fd(self) -> None:
        """Give the descriptor back; a mapping stays."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def close(self) -> None:
        """Give the descriptor back; the memory goes when the last view dies. Idempotent."""
        if self._mapping is not None:
            with contextlib.suppress(BufferError):  # views live: the last of them unmaps
                self._mapping.close()
            self._mapping = None
        self.release_fd()


@dataclass
class _Held:
    segment: Segment
    count: int


class Arena:
    """The owner of all segments: hands them out, counts references, keeps free ones warm.

    Parameters
    ----------
    limit : int, bytes
        Of all segments together, free ones included.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._held: dict[int, _Held] = {}
        self._free: list[Segment] = []  # the longest unused first
        self._next = 1
        self._discard: list[Callable[[int], None]] = []
        self._pressure: list[Callable[[int], None]] = []

    @property
    def used(self) -> int:
        """Bytes of the segments that somebody holds."""
        return sum(held.segment.nbytes for held in self._held.values())

    @property
    def warm(self) -> int:
        """Bytes of the free segments."""
        return sum(segment.nbytes for segment in self._free)

    def on_discard(self, callback: Callable[[int], None]) -> None:
        """Call `callback(id)` when a segment is about to go: those who map it should let it go."""
        self._discard.append(callback)

    def on_pressure(self, callback: Callable[[int], None]) -> None:
        """Call `callback(nbytes)` when so much is missing: release what is only kept."""
        self._pressure.append(callback)

    def allocate(self, nbytes: int) -> Segment:
        """A segment of at least `nbytes`, with one reference; contents are undefined.

        Raises
        ------
        DataError
            More than the limit: it can never fit.
        TryAgain
            Others hold too much at present.
        """
        size = max(GRAIN, -(-nbytes // GRAIN) * GRAIN)
        if nbytes < 0 or size > self.limit:
            raise DataError(
                f"shared memory of {format_bytes(nbytes)}: the limit is"
                f" {format_bytes(self.limit)} in all (arena.limit in the config);"
                " use files for the input and the output"
            )
        segment = self._take_warm(size) or self._create(size)
        self._held[segment.id] = _Held(segment, 1)
        return segment

    def retain(self, ident: int) -> None:
        """One more reference. Raises InternalError for a segment that nobody holds."""
        self._entry(ident).count += 1

    def release(self, ident: int) -> None:
        """One reference less; at zero the segment is free."""
        held = self._entry(ident)
        held.count -= 1
        if held.count == 0:
            del self._held[ident]
            self._free.append(held.segment)
            self._trim(int(self.limit * WARM_SHARE), MOST_WARM)

    def segment(self, ident: int) -> Segment:
        """The held segment `ident`. Raises InternalError."""
        return self._entry(ident).segment

    def holds(self, ident: int) -> bool:
        return ident in self._held

    def owns(self, segment: Segment) -> bool:
        """Whether somebody holds `segment` of this very arena; another's may have its number."""
        held = self._held.get(segment.id)
        return held is not None and held.segment is segment

    def trim(self) -> None:
        """Give all free segments back."""
        self._trim(0)

    def close(self) -> None:
        """Close everything, held or not."""
        for held in self._held.values():
            held.segment.close()
        self._held.clear()
        self._discard.clear()
        self._trim(0)

    def _entry(self, ident: int) -> _Held:
        held = self._held.get(ident)
        if held is None:
            raise InternalError(f"segment {ident} isn't held by anybody")
        return held

    def _take_warm(self, size: int) -> Segment | None:
        """The smallest fitting free segment; of equal ones the last used: caches may know it."""
        fitting = [s for s in self._free if size <= s.nbytes <= size * SLACK]
        if not fitting:
            return None
        best = min(reversed(fitting), key=lambda segment: segment.nbytes)
        self._free.remove(best)
        return best

    def _create(self, size: int) -> Segment:
        self._make_room(size)
        try:
            fd = os.memfd_create("hetsched", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        except OSError as error:
            raise TryAgain(f"shared memory of {format_bytes(size)}: {error.strerror}") from None
        try:
            os.ftruncate(fd, size)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
        except OSError as error:
            os.close(fd)
            raise TryAgain(f"shared memory of {format_bytes(size)}: {error.strerror}") from None
        ident, self._next = self._next, self._next + 1
        return Segment(ident, fd, size)

    def _make_room(self, size: int) -> None:
        missing = self.used + size - self.limit
        if missing > 0:
            for callback in self._pressure:
                callback(missing)
        self._trim(max(0, self.limit - self.used - size))
        if self.used + size > self.limit:
            raise TryAgain(
                f"shared memory of {format_bytes(size)}: others hold {format_bytes(self.used)}"
                f" of {format_bytes(self.limit)}; try again later, or use files"
            )

    def _trim(self, allowed: int, most: int = sys.maxsize) -> None:
        """Discard the longest unused free segments, but for `most` of `allowed` bytes together."""
        warm = self.warm
        while warm > allowed or len(self._free) > most:
            segment = self._free.pop(0)
            warm -= segment.nbytes
            for callback in self._discard:
                callback(segment.id)
            segment.close()
