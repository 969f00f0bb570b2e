"""The daemon's client: arrays in shared memory, jobs as Futures.

When the daemon is replaced by another one, segments that are still needed are passed to that.
"""

from __future__ import annotations

import logging
import math
import os
import resource
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from hetsched import errors
from hetsched.client.connection import Connection
from hetsched.client.control import TIMEOUT, Control
from hetsched.client.job import Job, Listener
from hetsched.client.request import JobSubmitter, PreparedJob
from hetsched.client.session import Session
from hetsched.job import ArenaRef, Done, Failed, JobSpec
from hetsched.transport import messages
from hetsched.transport.arena import Segment

log = logging.getLogger(__name__)

MAX_KEPT_FD = 256
"""Descriptors above this number, or above a quarter of the process's limit, aren't kept, so that
the caller's own files find room. Arrays in such segments can't be passed to another daemon."""


class Client(JobSubmitter, Control):
    """A connection to the daemon, arrays included. `Control` documents its parameters.

    Any thread may use it. One background thread serves it until `close`, or the end of the `with`.
    Arrays stay valid after that.
    """

    _segments: SharedMemory

    def __init__(
        self,
        endpoint: str | os.PathLike[str] | None = None,
        timeout: float = TIMEOUT,
        reconnect: float | None = None,
    ) -> None:
        super().__init__(endpoint, timeout, reconnect)
        self._segments = SharedMemory(self._connection)

    def _start(self, prepared: PreparedJob, follow: Listener | None) -> Job:
        return self._new_job(prepared.spec, prepared.result, follow, prepared.renew)

    def _fetch(self, end: Done | Failed) -> Any:
        return PreparedJob(JobSpec(workload="", params={}), self._segments).result(end)


class ClientSegment(Segment):
    """A segment that this client has mapped, under the number that the present daemon gives it.

    Each array on it holds a reference of the session that it came by. A reference that a daemon
    gave for passing the segment on is kept while there are arrays.
    """

    def __init__(self, segment_id: int, fd: int, nbytes: int) -> None:
        super().__init__(segment_id, fd, nbytes)
        self._arrays: set[object] = set()
        self.adopted: deque[tuple[Session, int]] = deque()

    def add_array(self, session: Session) -> Callable[[], None]:
        """Return the function to call when the array is freed, which never blocks."""
        array, ident = object(), self.id
        self._arrays.add(array)
        session.arrays.add(array)

        def on_freed() -> None:  # the garbage collector may call it
            self._arrays.discard(array)
            session.drop(ident, array)
            while self.adopted and not self._arrays:
                try:
                    adopter, number = self.adopted.pop()
                except IndexError:  # another thread has taken it
                    return
                adopter.drop(number)

        return on_freed


class SharedMemory:
    """Arrays on the daemon's segments: the client's `SharedArrays`. Any thread may use it.

    Each array holds one of the session's references until its last view is freed. Mappings stay
    until the daemon discards the segment, so that reusing one costs nothing.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._max_fd = min(MAX_KEPT_FD, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)

    def empty(self, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        """Allocate a shared array, contents undefined. Raises DataError, TryAgain."""
        nbytes = math.prod(shape) * np.dtype(dtype).itemsize
        return self._array(messages.Allocate(nbytes), shape, dtype, 0)

    def map(self, ref: ArenaRef) -> np.ndarray:
        """Return the array behind `ref`. Raises InputMissing if the daemon no longer keeps it."""
        return self._array(messages.Map(ref.segment), ref.shape, ref.dtype, ref.offset)

    def claim(self, segment: Segment) -> bool:
        """Make a segment of this client usable for the present daemon; return whether it is.

        One that an earlier daemon gave is passed on, and gets another number.
        """
        session = self._connection.session
        if session is not None and session.knows(segment):
            return True
        if not isinstance(segment, ClientSegment) or segment.fd < 0:
            return False
        try:
            session = self._connection.live_session()
            with session.lock:
                if not session.knows(segment):
                    segment.id = session.request(messages.Adopt(), [segment.fd])[0].segment
                    segment.adopted.append((session, segment.id))
                    session.segments[segment.id] = segment
        except errors.HetschedError as error:
            log.warning("shared memory %d wasn't passed to the daemon: %s", segment.id, error)
            return False
        return True

    def _array(
        self,
        request: messages.Allocate | messages.Map,
        shape: tuple[int, ...],
        dtype: str,
        offset: int,
    ) -> np.ndarray:
        session, segment = self._request(request)
        on_freed = segment.add_array(session)
        try:
            segment.mapping()
            if segment.fd > self._max_fd:
                segment.release_fd()  # the mapping doesn't need it
            return segment.array(shape, dtype, offset, on_freed)
        except BaseException:
            on_freed()
            raise

    def _request(self, request: messages.Allocate | messages.Map) -> tuple[Session, ClientSegment]:
        while True:
            session = self._connection.live_session()  # may wait for a daemon
            try:
                with session.lock:  # the fd comes only once: keep it before another thread asks
                    answer, fd = session.request(request)
                    ident = answer.segment
                    if fd is not None:
                        session.segments[ident] = ClientSegment(ident, fd, answer.nbytes)
                    return session, session.segments[ident]
            except errors.TryAgain:
                if isinstance(request, messages.Map) or not session.is_lost:
                    raise
