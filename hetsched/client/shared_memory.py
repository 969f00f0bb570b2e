"""The client's shared memory: maps each segment once and drops references of freed arrays."""

from __future__ import annotations

import functools
import math
import threading

import numpy as np

from hetsched.client.session import Session
from hetsched.job import ArenaRef
from hetsched.transport.arena import Segment
from hetsched.transport.messages import Allocate, Map


class SharedMemory:
    """Arrays on the daemon's segments: the client's `SharedArrays`. Any thread may use it.

    Each array holds one of the session's references until its last view is freed. Mappings stay
    until the daemon discards the segment, so that reusing one costs nothing.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._segments: dict[int, Segment] = {}
        self._lock = threading.Lock()
        session.on_discard = self._discard

    def empty(self, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        """Allocate a shared array, contents undefined.

        Raises
        ------
        DataError, TryAgain
        """
        nbytes = math.prod(shape) * np.dtype(dtype).itemsize
        return self._array(Allocate(nbytes), shape, dtype, 0)

    def map(self, ref: ArenaRef) -> np.ndarray:
        """Return the array behind `ref`.

        Raises
        ------
        InputMissing
            The daemon no longer keeps it.
        """
        return self._array(Map(ref.segment), ref.shape, ref.dtype, ref.offset)

    def owns(self, segment: Segment) -> bool:
        return self._segments.get(segment.id) is segment

    def _array(
        self, request: Allocate | Map, shape: tuple[int, ...], dtype: str, offset: int
    ) -> np.ndarray:
        with self._lock:  # the fd comes only once: map it before another thread gets none
            answer, fd = self._session.request(request)
            if fd is not None:
                self._segments[answer.segment] = Segment(answer.segment, fd, answer.nbytes)
            segment = self._segments[answer.segment]
        key = self._session.add_array()
        on_freed = functools.partial(self._session.drop_array, key, answer.segment)
        try:
            segment.mapping()
            segment.release_fd()  # the mapping doesn't need it
            return segment.array(shape, dtype, offset, on_freed)
        except BaseException:
            on_freed()
            raise

    def _discard(self, ident: int) -> None:
        segment = self._segments.pop(ident, None)
        if segment is not None:
            segment.close()
