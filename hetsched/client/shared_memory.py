"""The client's shared memory: maps each segment once, tells the daemon when arrays have died."""

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
    """Arrays on the daemon's segments; `request.Segments` for the client. Any thread may use it.

    Each array that it hands out holds one of the session's references, and drops it when its last
    view dies. Mappings stay until the daemon discards the segment: a warm one costs nothing.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._segments: dict[int, Segment] = {}
        self._lock = threading.Lock()
        session.on_discard = self._discard

    def empty(self, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        """A new shared array, contents undefined.

        Raises
        ------
        DataError, TryAgain
        """
        nbytes = math.prod(shape) * np.dtype(dtype).itemsize
        return self._array(Allocate(nbytes), shape, dtype, 0)

    def map(self, ref: ArenaRef) -> np.ndarray:
        """The array behind `ref`.

        Raises
        ------
        InputMissing
            The daemon doesn't keep it any more.
        """
        return self._array(Map(ref.segment), ref.shape, ref.dtype, ref.offset)

    def owns(self, segment: Segment) -> bool:
        return self._segments.get(segment.id) is segment

    def _array(
        self, request: Allocate | Map, shape: tuple[int, ...], dtype: str, offset: int
    ) -> np.ndarray:
        with self._lock:  # whoever gets the fd has mapped it before others get none
            answer, fd = self._session.request(request)
            if fd is not None:
                self._segments[answer.segment] = Segment(answer.segment, fd, answer.nbytes)
            segment = self._segments[answer.segment]
        gone = functools.partial(self._session.let_go, self._session.holds(), answer.segment)
        try:
            segment.mapping()
            segment.release_fd()  # the mapping has one of its own
            return segment.array(shape, dtype, offset, gone)
        except BaseException:
            gone()
            raise

    def _discard(self, ident: int) -> None:
        segment = self._segments.pop(ident, None)
        if segment is not None:
            segment.close()
