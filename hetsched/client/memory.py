"""The client's shared memory: maps each segment once and drops references of freed arrays.

When the daemon is replaced by another one, segments that are still needed are passed to that.
"""

from __future__ import annotations

import functools
import itertools
import logging
import math
import resource
import threading
from collections.abc import Callable

import numpy as np

from hetsched.client.session import Session
from hetsched.errors import HetschedError, TryAgain
from hetsched.job import ArenaRef, JobSpec
from hetsched.job_segments import arena_refs, with_segments
from hetsched.transport.arena import Segment
from hetsched.transport.messages import Adopt, Allocate, Map, SegmentFd

log = logging.getLogger(__name__)

MAX_KEPT_FD = 256
"""Descriptors above this number, or above a quarter of the process's limit, aren't kept, so that
the caller's own files find room. Arrays in such segments can't be passed to another daemon."""


class MappedSegment(Segment):
    """A segment that this client has mapped, under the number that the present daemon gives it.

    Its users are arrays and requests. While it has any, it keeps the reference that the daemon
    gave for passing it on (`adoption`).
    """

    def __init__(self, segment_id: int, fd: int, nbytes: int) -> None:
        super().__init__(segment_id, fd, nbytes)
        self._users: set[int] = set()
        self._keys = itertools.count()
        self.adoption: list[tuple[Session, int]] = []

    def add_user(self) -> int:
        """Return a key for `remove_user`."""
        key = next(self._keys)
        self._users.add(key)
        return key

    def remove_user(self, key: int) -> None:
        """May be called by the garbage collector: takes no lock, never blocks."""
        self._users.discard(key)
        if self._users:
            return
        while self.adoption:
            try:
                session, ident = self.adoption.pop()
            except IndexError:  # another thread has removed it
                return
            session.drop(ident)


class SharedMemory:
    """Arrays on the daemon's segments: the client's `SharedArrays`. Any thread may use it.

    Each array holds one of the session's references until its last view is freed. Mappings stay
    until the daemon discards the segment, so that reusing one costs nothing.

    Parameters
    ----------
    session : callable
        Returns the session with the present daemon. Raises TryAgain if there is none.
    """

    def __init__(self, session: Callable[[], Session]) -> None:
        self._session = session
        self._present: Session | None = None
        self._segments: dict[int, MappedSegment] = {}
        self._lock = threading.RLock()
        self._max_fd = min(MAX_KEPT_FD, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)

    def empty(self, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        """Allocate a shared array, contents undefined. Raises DataError, TryAgain."""
        nbytes = math.prod(shape) * np.dtype(dtype).itemsize
        return self._array(Allocate(nbytes), shape, dtype, 0)

    def map(self, ref: ArenaRef) -> np.ndarray:
        """Return the array behind `ref`. Raises InputMissing if the daemon no longer keeps it."""
        return self._array(Map(ref.segment), ref.shape, ref.dtype, ref.offset)

    def segment(self, ident: int) -> MappedSegment | None:
        """Return a segment that the present daemon knows by this number."""
        return self._segments.get(ident)

    def claim(self, segment: Segment) -> bool:
        """Make a segment of this client usable for the present daemon; return whether it is.

        One that an earlier daemon gave is passed on, and gets another number.
        """
        present = self._present
        if (
            present is not None
            and not present.is_lost
            and self._segments.get(segment.id) is segment
        ):
            return True
        if not isinstance(segment, MappedSegment) or segment.fd < 0:
            return False
        try:
            self._pass_on(segment)
        except HetschedError as error:
            log.warning("shared memory %d wasn't passed to the daemon: %s", segment.id, error)
            return False
        return True

    def _pass_on(self, segment: MappedSegment) -> None:
        session = self._session()
        key = segment.add_user()
        try:
            with self._lock:
                self._begin(session)
                if self._segments.get(segment.id) is segment:  # another thread has passed it on
                    return
                answer, _ = session.request(Adopt(), [segment.fd])
                segment.id = answer.segment
                segment.adoption.append((session, answer.segment))
                self._segments[segment.id] = segment
        finally:
            segment.remove_user(key)

    def _begin(self, session: Session) -> None:
        """Forget the segments of an earlier daemon. Raises TryAgain if `session` is that one's."""
        if session.is_lost:
            raise session.lost_error()
        if session is not self._present:
            self._present, self._segments = session, {}
            session.on_discard = self._discard

    def _array(
        self, request: Allocate | Map, shape: tuple[int, ...], dtype: str, offset: int
    ) -> np.ndarray:
        session, segment = self._request(request)
        ident = segment.id
        session_key, key = session.add_array(), segment.add_user()
        on_freed = functools.partial(_free_array, session, session_key, segment, key, ident)
        try:
            segment.mapping()
            if segment.fd > self._max_fd:
                segment.release_fd()  # the mapping doesn't need it
            return segment.array(shape, dtype, offset, on_freed)
        except BaseException:
            on_freed()
            raise

    def _request(self, request: Allocate | Map) -> tuple[Session, MappedSegment]:
        while True:
            session = self._session()  # may wait for a daemon
            try:
                with self._lock:  # the fd comes only once: map it before another thread gets none
                    self._begin(session)
                    return session, self._received(*session.request(request))
            except TryAgain:
                if isinstance(request, Map) or not session.is_lost:
                    raise

    def _received(self, answer: SegmentFd, fd: int | None) -> MappedSegment:
        if fd is not None:
            self._segments[answer.segment] = MappedSegment(answer.segment, fd, answer.nbytes)
        return self._segments[answer.segment]

    def _discard(self, ident: int) -> None:
        segment = self._segments.pop(ident, None)
        if segment is not None:
            segment.close()


def _free_array(
    session: Session, session_key: int, segment: MappedSegment, key: int, ident: int
) -> None:
    session.drop_array(session_key, ident)
    segment.remove_user(key)


class ArrayRenewal:
    """Passes a job's segments to the next daemon. `release` it once that holds them itself.

    Only the segments are kept: their memory lives as long as this process maps it, even if the
    arrays that the job was submitted with are gone.
    """

    def __init__(self, memory: SharedMemory, spec: JobSpec) -> None:
        self._memory = memory
        # None: the daemon was replaced before the job was submitted.
        self._segments: dict[int, MappedSegment | None] = {
            ref.segment: memory.segment(ref.segment) for ref in arena_refs(spec)
        }
        self._users: list[tuple[MappedSegment, int]] = []
        self.is_complete = True
        """All segments could be passed on."""

    def renew(self, spec: JobSpec) -> JobSpec:
        """Return `spec` with the next daemon's segments, as far as they can be passed on.

        The next daemon may not need them: the job may have ended, or still run.
        """
        self.release()
        self.is_complete = True
        numbers: dict[int, int] = {}
        segments: dict[int, MappedSegment | None] = {}
        for ident, segment in self._segments.items():
            if segment is not None:
                self._users.append((segment, segment.add_user()))
            is_passed = segment is not None and self._memory.claim(segment)
            self.is_complete &= is_passed
            numbers[ident] = segment.id if segment is not None and is_passed else ident
            segments[numbers[ident]] = segment
        self._segments = segments
        return with_segments(spec, numbers)

    def release(self) -> None:
        """Give up the references that passing the segments on gave."""
        users, self._users = self._users, []
        for segment, key in users:
            segment.remove_user(key)
