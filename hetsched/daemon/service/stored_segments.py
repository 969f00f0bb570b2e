"""The memory of waiting jobs in systemd's file descriptor store, where it outlives the daemon.

A segment is stored under its id, and the next daemon adopts it under the same id, so that the
journal's jobs find it. Storing costs a message to systemd: it isn't done for every job, but for
those that still wait when the timer comes, and for all when the daemon stops.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable

from hetsched.daemon.service.systemd import STORED_PREFIX, ServiceManager
from hetsched.errors import HetschedError
from hetsched.transport.arena import Arena
from hetsched.transport.loop import Loop

log = logging.getLogger(__name__)

MAX_STORED = 500
"""Largest number of stored segments; less than FileDescriptorStoreMax of the unit."""
INTERVAL_SECONDS = 0.5
"""Time between two comparisons of what is stored with what is needed. Arbitrary."""


class StoredSegments:
    """Keeps the stored segments equal to the needed ones. Lives on the loop's thread.

    A reference to each is held, so that its memory isn't used for anything else as long as a
    later daemon might read it.

    Parameters
    ----------
    needed : callable
        Return the segments of unfinished jobs, oldest job first.
    """

    def __init__(
        self,
        manager: ServiceManager,
        arena: Arena,
        loop: Loop,
        needed: Callable[[], Iterable[int]],
    ) -> None:
        self._manager = manager
        self._arena = arena
        self._loop = loop
        self._needed = needed
        self._stored: set[int] = set()
        self._superfluous: set[int] = set()
        self._is_frozen = False

    def adopt(self) -> None:
        """Take over the segments that an earlier daemon has stored."""
        for name, fd in self._manager.stored():
            number = name.removeprefix(STORED_PREFIX)
            if not number.isdecimal():
                log.warning("systemd has stored %s, which isn't a segment", name)
                os.close(fd)
                self._remove(name)
                continue
            try:
                self._arena.adopt(fd, int(number))
            except HetschedError as error:
                log.warning("segment %s of an earlier daemon is lost: %s", number, error)
                self._remove(name)
                continue
            self._stored.add(int(number))
        if self._stored:
            log.info("took over %d segments of an earlier daemon", len(self._stored))

    def start(self) -> None:
        """Compare now and regularly from now on. Call it when the journal's jobs are known."""
        if not self._manager.stores_descriptors or self._is_frozen:
            return
        self.update()
        self._loop.call_later(INTERVAL_SECONDS, self.start)

    def update(self) -> None:
        """Store what is needed; remove what hasn't been needed twice.

        Twice, because the journal learns a little later than this that a job has ended: a daemon
        that starts in between must find the job's memory unchanged.
        """
        needed: set[int] = set()
        for segment in self._needed():
            needed.add(segment)
            if len(needed) >= MAX_STORED:
                break
        superfluous = self._stored - needed
        for segment in superfluous & self._superfluous:
            self._stored.discard(segment)
            self._remove(f"{STORED_PREFIX}{segment}")
            self._arena.release(segment)
        self._superfluous = superfluous
        for segment in needed - self._stored:
            self._store(segment)

    def freeze(self) -> None:
        """Store what is needed now, and change nothing from then on: the daemon stops."""
        if self._manager.stores_descriptors and not self._is_frozen:
            self.update()
        self._is_frozen = True

    def hold_all(self, segments: Iterable[int]) -> bool:
        """Return whether all these segments are stored."""
        return self._stored.issuperset(segments)

    def _store(self, segment: int) -> None:
        if len(self._stored) >= MAX_STORED or not self._arena.holds(segment):
            return
        name = f"FDNAME={STORED_PREFIX}{segment}"
        fd = self._arena.segment(segment).fd
        if self._manager.notify("FDSTORE=1", name, "FDPOLL=0", fds=(fd,)):
            self._arena.retain(segment)
            self._stored.add(segment)

    def _remove(self, name: str) -> None:
        self._manager.notify("FDSTOREREMOVE=1", f"FDNAME={name}")
