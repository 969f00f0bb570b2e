"""The daemon's clients: who may connect, and the shared memory that each of them holds.

A daemon serves the user that it runs as. Root may look and stop jobs, but not submit: a job runs,
and writes its files, as the daemon's user. Everyone else may do nothing.
"""

from __future__ import annotations

import hmac
import logging
import os
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from hetsched.daemon.heap import trim_heap
from hetsched.errors import (
    DataError,
    HetschedError,
    InputMissing,
    NotPermitted,
    ProtocolError,
    TryAgain,
    to_record,
)
from hetsched.jobs.durability import Durability
from hetsched.jobs.job import Owner
from hetsched.jobs.table import share_of
from hetsched.transport import messages as say
from hetsched.transport.arena import Arena
from hetsched.transport.loop import Loop
from hetsched.transport.sockets import NOBODY, Peer
from hetsched.units import format_bytes, format_seconds

log = logging.getLogger(__name__)

ROOT_UID = 0
OWNER_ONLY = {say.Submit, say.Retry, say.Allocate, say.Map, say.Drop, say.Adopt}
"""Requests that root may not make."""


@dataclass(frozen=True)
class DaemonInfo:
    """The daemon itself. `started`: monotonic seconds; `uid`: the user that it serves."""

    pid: int
    version: str
    endpoint: str
    started: float = 0.0
    uid: int = NOBODY.uid


@dataclass(eq=False)
class ClientSession:
    """One client's connection.

    Attributes
    ----------
    answer : callable
        answer(message, segment): send a message, with the fd of `segment` unless it is None.
    close : callable
        Ends the connection.
    owner : tuple
        Whom its jobs and memory count for.
    held : dict
        Segment -> the client's references to it.
    mapped : set
        Segments whose fd the client has received.
    identity : bytes
        Of its ZeroMQ socket, once it has sent a request.
    """

    id: int
    token: str
    peer: Peer
    answer: Callable[[say.SessionAnswer, int | None], None]
    close: Callable[[], None]
    owner: Owner
    identity: bytes = b""
    is_greeted: bool = False
    held: dict[int, int] = field(default_factory=dict)
    mapped: set[int] = field(default_factory=set)

    def hold(self, segment: int) -> None:
        self.held[segment] = self.held.get(segment, 0) + 1

    def drop(self, segment: int) -> bool:
        """Remove one reference; return whether there was one."""
        count = self.held.pop(segment, 0)
        if count > 1:
            self.held[segment] = count - 1
        return count > 0


def owner_of(peer: Peer) -> Owner:
    """Return whom a process's jobs and memory count for: its user and session (setsid)."""
    try:
        return peer.uid, os.getsid(peer.pid)
    except OSError:  # it has ended, or is in another namespace
        return peer.uid, peer.pid


class Sessions:
    """All connected clients, by number. On the loop's thread only."""

    def __init__(self, daemon: DaemonInfo, life: Durability, arena: Arena, loop: Loop) -> None:
        self.daemon = daemon
        self._life, self._table, self._followers = life, life.table, life.followers
        self._arena, self._loop = arena, loop
        self._sessions: dict[int, ClientSession] = {}
        self._idle_times = 0
        life.on_expired = self.trim_if_idle

    def __len__(self) -> int:
        return len(self._sessions)

    def __contains__(self, number: int) -> bool:
        return number in self._sessions

    def __iter__(self) -> Iterator[ClientSession]:
        return iter(list(self._sessions.values()))

    def get(self, number: int) -> ClientSession | None:
        return self._sessions.get(number)

    def admits(self, peer: Peer) -> bool:
        """Whether a process may connect at all."""
        return peer.uid in (self.daemon.uid, ROOT_UID)

    def check_permission(self, request: object, uid: int) -> None:
        """Raise NotPermitted unless a process of `uid` may make the request."""
        if uid == self.daemon.uid or (uid == ROOT_UID and type(request) not in OWNER_ONLY):
            return
        who = "root" if uid == ROOT_UID else "another user"
        raise NotPermitted(
            f"{type(request).__name__.lower()}: not permitted to {who} (uid {uid});"
            f" this daemon serves uid {self.daemon.uid}"
        )

    # ---- connections

    def on_connect(
        self,
        number: int,
        peer: Peer,
        answer: Callable[[say.SessionAnswer, int | None], None],
        close: Callable[[], None],
    ) -> ClientSession:
        session = ClientSession(number, secrets.token_hex(), peer, answer, close, owner_of(peer))
        self._sessions[number] = session
        self._idle_times += 1
        return session

    def on_disconnect(self, number: int) -> None:
        """Release the segments of a session whose client has ended. Its jobs continue."""
        session = self._sessions.pop(number, None)
        if session is None:
            return
        unfinished = list(self._table.unfinished.values())
        self._followers.remove_client(number, unfinished)
        for job in self._table.results:
            job.stop_awaiting(number)
        for segment, count in session.held.items():
            for _ in range(count):
                self._arena.release(segment)
        self.trim_if_idle()

    def on_session_request(
        self, session: ClientSession, request: say.SessionRequest, fds: list[int]
    ) -> None:
        """Handle a request on a session's socket; the first must be Hello.

        One that uses a descriptor of `fds` removes it from the list.
        """
        if not session.is_greeted and not isinstance(request, say.Hello):
            self.on_invalid_message(session, ProtocolError("the first message must be hello"))
            return
        try:
            self.check_permission(request, session.peer.uid)
            match request:
                case say.Hello():
                    self.hello(session, request)
                case say.Allocate(nbytes):
                    self.allocate(session, nbytes)
                case say.Adopt():
                    self.adopt(session, fds)
                case say.Map(segment):
                    self.map(session, segment)
                case say.Drop(segment):
                    self.drop(session, segment)
        except ProtocolError as error:
            self.on_invalid_message(session, error)
        except Exception as error:  # the client must not wait forever because of our bug
            if not isinstance(error, HetschedError):
                log.exception("unexpected error in a session's request")
            if not isinstance(request, say.Drop):  # which isn't answered
                session.answer(say.Refused(to_record(error)), None)

    def on_invalid_message(self, session: ClientSession, error: ProtocolError) -> None:
        """Refuse a message that can't be decoded, and close the session."""
        session.answer(say.Refused(to_record(error)), None)
        session.close()

    def hello(self, session: ClientSession, request: say.Hello) -> None:
        daemon = self.daemon
        if request.protocol != say.PROTOCOL:
            raise ProtocolError(
                f"client {request.version} speaks protocol {request.protocol}, the daemon"
                f" {daemon.version} (pid {daemon.pid}) speaks {say.PROTOCOL};"
                " install the same version for both"
            )
        session.is_greeted = True
        welcome = say.Welcome(
            say.PROTOCOL, daemon.version, session.token, daemon.endpoint, daemon.pid
        )
        session.answer(welcome, None)

    # ---- shared memory

    def allocate(self, session: ClientSession, nbytes: int) -> None:
        self._check_memory(session, nbytes)
        self._grant(session, self._arena.allocate(nbytes, session.owner).id)

    def adopt(self, session: ClientSession, fds: list[int]) -> None:
        """Take over a segment of an earlier daemon, which came with the request."""
        self._check_memory(session, 0)
        if not fds:
            raise DataError("adopt: the segment's descriptor is missing")
        segment = self._arena.adopt(fds.pop(0)).id
        session.mapped.add(segment)
        self._grant(session, segment)

    def map(self, session: ClientSession, segment: int) -> None:
        """Give the client a reference to a kept result."""
        if segment not in session.held and self._table.results.job_keeping(segment) is None:
            raise InputMissing(
                "the result is no longer in the daemon's memory, which keeps it for"
                f" {format_seconds(self._table.limits.results_for)}, or less when others need the"
                " room; run the job again: hetsched retry"
            )
        self._arena.retain(segment)
        self._grant(session, segment)

    def drop(self, session: ClientSession, segment: int) -> None:
        """Release the client's reference, and the job's too if the client submitted it."""
        if not session.drop(segment):
            return
        self._arena.release(segment)
        job = self._table.results.job_keeping(segment)
        if job is None or segment in session.held:
            return
        job.stop_awaiting(session.id)
        if job.client == session.id:
            # The submitter has received its result, so the next job can use the warm memory.
            self._life.release_result(job, segment)

    def _grant(self, session: ClientSession, segment: int) -> None:
        """Give the session a reference to `segment`; its fd is sent only once."""
        is_new = segment not in session.mapped
        session.mapped.add(segment)
        session.hold(segment)
        answer = say.SegmentFd(segment, self._arena.segment(segment).nbytes, is_new)
        session.answer(answer, segment if is_new else None)

    def _check_memory(self, session: ClientSession, nbytes: int) -> None:
        """Raise TryAgain if the daemon stops, or the client would have too much shared memory."""
        if self._life.is_draining:
            raise TryAgain("the daemon is stopping; try again when it is back")
        most = share_of(self._arena.limit)
        segments = {
            segment
            for other in self._sessions.values()
            if other.owner == session.owner
            for segment in other.held
        }
        total = nbytes + sum(self._arena.segment(each).nbytes for each in segments)
        # What doesn't fit at all is the arena's to refuse.
        if most < total and self._arena.used + nbytes <= self._arena.limit:
            raise TryAgain(
                f"arrays of one client may take {format_bytes(most)} of shared memory, the rest of"
                f" {format_bytes(self._arena.limit)} (arena.limit in the config) is for others;"
                " delete some arrays, or use files"
            )

    def on_segment_discarded(self, segment: int) -> None:
        """Ask the clients that map a segment to unmap it: the arena has freed it."""
        for session in list(self._sessions.values()):
            if segment in session.mapped:
                session.mapped.discard(segment)
                session.answer(say.Discarded(segment), None)

    def on_memory_pressure(self, nbytes: int) -> None:
        """Release kept results to free `nbytes` of shared memory.

        Results that are in use stay: releasing them would free nothing.
        """
        in_use = {segment for session in self._sessions.values() for segment in session.held}
        in_use.update(self._unfinished_segments())
        for job in self._life.evictable():
            if nbytes <= 0:
                return
            freed = sum(
                size for segment, size in job.kept_results.items() if segment not in in_use
            )
            if freed:
                nbytes -= freed
                self._life.release_results(job)

    def _unfinished_segments(self) -> Iterator[int]:
        for job in self._table.unfinished.values():
            yield from job.segments()

    def trim_if_idle(self) -> None:
        """Return free memory to the system, unless somebody needs it within `warm_for`."""
        if self._sessions or self._table.unfinished:
            return
        self._idle_times += 1
        times = self._idle_times

        def trim() -> None:
            if times == self._idle_times:
                self._arena.trim()
                trim_heap()

        self._loop.call_later(self._table.limits.warm_for, trim)

    def of_token(self, token: str, peer: Peer) -> ClientSession | None:
        """Return the session with this token, if the same process has opened it."""
        encoded = token.encode()
        for session in self._sessions.values():
            if session.peer != peer or not session.is_greeted:
                continue
            if hmac.compare_digest(encoded, session.token.encode()):
                return session
        return None

    def on_unread_replies(self, identity: bytes) -> None:
        """Close the sessions of a client that doesn't read: its replies were dropped."""
        for session in list(self._sessions.values()):
            if identity == session.identity:
                session.close()
