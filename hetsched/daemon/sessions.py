"""The daemon's clients: who may connect, their sockets, and the shared memory they hold.

A daemon serves the user that it runs as. Root may look and stop jobs, but not submit: a job runs,
and writes its files, as the daemon's user. Everyone else may do nothing.

No client can stop or block the loop, or make a queue grow without bound, whatever it sends and
whether or not it reads.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import gc
import logging
import os
import resource
import secrets
import socket
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hetsched import __version__, errors
from hetsched.engine.engine import Engine
from hetsched.job import arena_refs
from hetsched.jobs.table import JobRecord, Owner, share_of
from hetsched.transport import messages as say
from hetsched.transport import sockets
from hetsched.transport.loop import Timer
from hetsched.units import format_bytes, format_seconds

log = logging.getLogger(__name__)

MAX_SESSION_REQUEST = 4096
"""Largest request on a session's socket, bytes; all are small."""
PAUSE_SECONDS = 0.5
"""How long clients wait for an answer when there are no descriptors."""
NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
RESERVED_DESCRIPTORS = 8
"""Left to device processes that start, and to files: without any, libzmq aborts the process."""
LOG_INTERVAL = 10.0
"""Seconds between two lines about one kind of event."""

ROOT_UID = 0
OWNER_ONLY = {say.Submit, say.Retry, say.Allocate, say.Map, say.Drop, say.Adopt}
"""Requests that root may not make."""
_libc = ctypes.CDLL(None)


class LimitedLog:
    """Warns of events of one kind: of the first, then of one per LOG_INTERVAL."""

    def __init__(self) -> None:
        self._next = float("-inf")
        self._unlogged = 0

    def warn(self, text: str) -> None:
        now = time.monotonic()
        if now < self._next:
            self._unlogged += 1
            return
        self._next = now + LOG_INTERVAL
        unlogged, self._unlogged = self._unlogged, 0
        log.warning("%s%s", text, f" ({unlogged} more before)" if unlogged else "")


@dataclass(eq=False)
class ClientSession:
    """One client's connection."""

    id: int
    connection: socket.socket
    peer: sockets.Peer
    owner: Owner  # Whom its jobs and memory count for
    token: str = ""  # Before its hello
    route: bytes = b""  # Of its ZeroMQ socket, once it has sent a request
    held: Counter[int] = field(default_factory=Counter)  # Segment -> the client's references
    mapped: set[int] = field(default_factory=set)  # Segments whose fd it has


class Sessions:
    """All connected clients, by number. On the loop's thread only."""

    def __init__(self, endpoint: Path, engine: Engine) -> None:
        self._endpoint, self._uid = endpoint, os.getuid()
        self._table = engine.table
        self._engine, self._arena, self._loop = engine, engine.arena, engine.loop
        self._sessions: dict[int, ClientSession] = {}
        self._next_session = 1
        self._trim_timer: Timer | None = None
        self._listener: socket.socket | None = None
        self._max_descriptor = 0
        self._refusals = LimitedLog()
        self._decode: say.Decoder[say.SessionRequest] = say.Decoder(say.SessionRequest)
        self._table.results.on_expired = self.trim_if_idle
        self._arena.on_discard.append(self._on_segment_discarded)
        self._arena.on_pressure = self._on_memory_pressure

    def __len__(self) -> int:
        return len(self._sessions)

    def __contains__(self, number: int) -> bool:
        return number in self._sessions

    def __iter__(self) -> Iterator[ClientSession]:
        return iter(list(self._sessions.values()))

    def check_permission(self, request: object, uid: int) -> None:
        """Raise NotPermitted if `uid`, the daemon's user or root, may not make the request."""
        if uid != self._uid and type(request) in OWNER_ONLY:
            raise errors.NotPermitted(
                f"{type(request).__name__.lower()}: not permitted to root (uid {uid}); this daemon"
                f" serves uid {self._uid}"
            )

    # ---- connections

    def open(self, listener: socket.socket) -> None:
        self._listener = listener
        self._loop.add_reader(listener.fileno(), self._accept, listener)
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._max_descriptor = limit - RESERVED_DESCRIPTORS
        self._arena.max_descriptor = self._max_descriptor - RESERVED_DESCRIPTORS

    def close(self) -> None:
        if self._listener is not None:
            self._loop.remove_reader(self._listener.fileno())
            self._listener.close()
            self._listener = None

    def end_all(self) -> None:
        """End all sessions, after their last replies: clients then stop waiting for more."""
        for session in self:
            self.end(session)

    def end(self, session: ClientSession) -> None:
        """Close a session and release its segments. Its jobs continue."""
        if self._sessions.pop(session.id, None) is None:
            return
        self._loop.remove_reader(session.connection.fileno())
        session.connection.close()
        self._table.followers.remove_client(session.id, list(self._table.unfinished.values()))
        self._table.results.stop_awaiting(session.id)
        for job in list(self._table.unfinished.values()):
            if job.client == session.id and job.spec.hold_every:  # nobody would release it
                self._engine.scheduler.cancel(job)
        for segment, count in session.held.items():
            for _ in range(count):
                self._arena.release(segment)
        session.held.clear()  # a submission of its client may still be looked up
        self.trim_if_idle()

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except OSError as error:
            if error.errno in NO_DESCRIPTORS:  # the connection stays readable: the loop would spin
                text = f"no sessions are accepted for {PAUSE_SECONDS:g} s: {error.strerror}"
                self._refusals.warn(text)
                self._loop.remove_reader(listener.fileno())
                self._loop.call_later(PAUSE_SECONDS, self._resume)
            else:  # the client has closed
                self._refusals.warn(f"session not accepted: {error.strerror}")
            return
        connection.setblocking(False)
        peer = sockets.socket_peer(connection)
        # Each session soon has a ZeroMQ connection, too; the lowest descriptors are taken first.
        if connection.fileno() + len(self) >= self._max_descriptor:
            self._refuse(connection)
            return
        if peer.uid not in (self._uid, ROOT_UID):
            log.warning("refused a session of uid %d (pid %d)", peer.uid, peer.pid)
            connection.close()
            return
        try:  # jobs and memory count for a user's session (setsid)
            leader = os.getsid(peer.pid)
        except OSError:  # it has ended, or is in another namespace
            leader = peer.pid
        session = ClientSession(self._next_session, connection, peer, (peer.uid, leader))
        self._next_session += 1
        self._sessions[session.id] = session
        self._loop.add_reader(connection.fileno(), functools.partial(self._on_readable, session))

    def _resume(self) -> None:
        if self._listener is not None:
            self.open(self._listener)

    def _refuse(self, connection: socket.socket) -> None:
        error = errors.TryAgain(
            f"the daemon has {len(self)} clients and no descriptors for more (limit"
            f" RLIMIT_NOFILE: {self._max_descriptor + RESERVED_DESCRIPTORS}); try again later, or"
            " raise the limit"
        )
        self._refusals.warn(f"refused a session: {error}")
        self._arena.trim()
        with connection, contextlib.suppress(OSError):
            sockets.send_message(
                connection, say.encode(say.Refused(errors.to_record(error))), (), sockets.NOW
            )

    def _on_readable(self, session: ClientSession) -> None:
        fds: list[int] = []
        try:
            payload, fds = sockets.receive_message(session.connection, MAX_SESSION_REQUEST)
            if payload:
                self._handle(session, self._decode(payload), fds)
            else:
                self.end(session)
        except BlockingIOError:
            return
        except errors.ProtocolError as error:
            self._answer(session, say.Refused(errors.to_record(error)))
            self.end(session)
        except OSError:
            self.end(session)
        finally:
            sockets.close_all(fds)

    def _answer(
        self, session: ClientSession, answer: say.SessionAnswer, fds: Sequence[int] = ()
    ) -> None:
        try:
            sockets.send_message(session.connection, say.encode(answer), fds, sockets.NOW)
        except OSError:  # the client has ended, or sends without ever reading
            if not isinstance(answer, say.Discarded):
                self.end(session)

    def _handle(self, session: ClientSession, request: say.SessionRequest, fds: list[int]) -> None:
        """Handle a request, which removes from `fds` what it uses; the first must be Hello."""
        if not session.token and not isinstance(request, say.Hello):
            raise errors.ProtocolError("the first message must be hello")
        try:
            self.check_permission(request, session.peer.uid)
            match request:
                case say.Hello():
                    self._greet(session, request)
                case say.Allocate(nbytes):
                    self._check_memory(session, nbytes)
                    self._grant(session, self._arena.allocate(nbytes, session.owner).id)
                case say.Adopt():
                    self._check_memory(session, 0)
                    if not fds:
                        raise errors.DataError("adopt: the segment's descriptor is missing")
                    segment = self._arena.adopt(fds.pop(0)).id
                    session.mapped.add(segment)
                    self._grant(session, segment)
                case say.Map(segment):
                    self._map(session, segment)
                case say.Drop(segment):
                    self._drop(session, segment)
        except errors.ProtocolError:
            raise
        except Exception as error:  # the client must not wait forever because of our bug
            if not isinstance(error, errors.HetschedError):
                log.exception("unexpected error in a session's request")
            if not isinstance(request, say.Drop):  # which isn't answered
                self._answer(session, say.Refused(errors.to_record(error)))

    def _greet(self, session: ClientSession, request: say.Hello) -> None:
        if request.protocol != say.PROTOCOL:
            raise errors.ProtocolError(
                f"client {request.version} speaks protocol {request.protocol}, the daemon"
                f" {__version__} (pid {os.getpid()}) speaks {say.PROTOCOL};"
                " install the same version for both"
            )
        session.token = secrets.token_hex()
        endpoint = os.fspath(self._endpoint)
        welcome = say.Welcome(say.PROTOCOL, __version__, session.token, endpoint, os.getpid())
        self._answer(session, welcome)

    # ---- shared memory

    def _map(self, session: ClientSession, segment: int) -> None:
        is_known = segment in session.held or self._table.results.keeps(segment)
        shower = None if is_known else self._shower(segment)
        if shower is not None and shower.client != session.id:
            raise errors.NotPermitted(
                f"job {shower.number} is another client's: only that sees its arrays meanwhile"
            )
        if not is_known and shower is None:
            seconds = format_seconds(self._table.config.arena.results_for)
            raise errors.InputMissing(
                f"the result is no longer in the daemon's memory, which keeps it for {seconds}, or"
                " less when others need the room; run the job again: hetsched retry"
            )
        self._arena.retain(segment)
        self._grant(session, segment)
        job = self._table.results.job_keeping(segment)
        if job is not None and job.kept_results.keys() <= session.held.keys():
            job.stop_awaiting(session.id)

    def _shower(self, segment: int) -> JobRecord | None:
        """Return the job that shows a segment to its client while it is held."""
        for job in self._table.unfinished.values():
            shown = () if job.held is None else job.held.results.values()
            if any(ref.segment == segment for ref in shown):
                return job
        return None

    def _drop(self, session: ClientSession, segment: int) -> None:
        """Release the client's reference, and the job's too if nobody else awaits the result."""
        if segment not in session.held:
            return
        session.held[segment] -= 1
        if not session.held[segment]:
            del session.held[segment]
        self._arena.release(segment)
        job = self._table.results.job_keeping(segment)
        if job is None or segment in session.held:
            return
        job.stop_awaiting(session.id)
        if job.client == session.id and not job.awaited_by:
            # The submitter has received its result, so the next job can use the warm memory.
            self._table.results.spare(job, segment)

    def _grant(self, session: ClientSession, number: int) -> None:
        """Give the session a reference to a segment; its fd is sent only once."""
        segment = self._arena.segment(number)
        is_new = number not in session.mapped
        session.mapped.add(number)
        session.held[number] += 1
        answer = say.SegmentFd(number, segment.nbytes, is_new)
        self._answer(session, answer, [segment.fd] if is_new else [])

    def _check_memory(self, session: ClientSession, nbytes: int) -> None:
        if self._table.is_stopping:
            raise errors.TryAgain("the daemon is stopping; try again when it is back")
        most = share_of(self._arena.limit)
        segments = {
            segment
            for other in self._sessions.values()
            if other.owner == session.owner
            for segment in other.held
        }
        total = nbytes + sum(self._arena.segment(each).nbytes for each in segments)
        if total <= most:
            return
        in_use = sum(self._arena.segment(each).nbytes for each in self._in_use())
        # What doesn't fit even if kept results make room is the arena's to refuse.
        if in_use + nbytes <= self._arena.limit:
            raise errors.TryAgain(
                f"arrays of one client may take {format_bytes(most)} of shared memory, the rest of"
                f" {format_bytes(self._arena.limit)} (arena.limit in the config) is for others;"
                " delete some arrays, or use files"
            )

    def _on_segment_discarded(self, segment: int) -> None:
        """Ask the clients that map a segment to unmap it: the arena has freed it."""
        self._table.results.forget_spare(segment)
        for session in self:
            if segment in session.mapped:
                session.mapped.discard(segment)
                self._answer(session, say.Discarded(segment))

    def _on_memory_pressure(self, nbytes: int) -> None:
        self._table.results.make_room(nbytes, self._in_use())

    def _in_use(self) -> set[int]:
        """Segments that clients hold or that unfinished jobs read and write."""
        in_use = {segment for session in self for segment in session.held}
        for unfinished in self._table.unfinished.values():
            refs = arena_refs(unfinished.spec)
            in_use.update(ref.segment for ref in refs if self._arena.holds(ref.segment))
        return in_use

    def trim_if_idle(self) -> None:
        """Return memory to the system, unless somebody needs it within `warm_for`."""
        if self._sessions or self._table.unfinished:
            return

        def trim() -> None:
            if self._sessions or self._table.unfinished:
                return
            self._engine.fleet.rest()
            self._arena.trim()
            gc.collect()
            if (malloc_trim := getattr(_libc, "malloc_trim", None)) is not None:  # glibc
                malloc_trim(0)

        if self._trim_timer is not None:
            self._trim_timer.cancel()
        self._trim_timer = self._loop.call_later(self._table.config.arena.warm_for, trim)

    def end_client(self, route: bytes) -> None:
        for session in self:
            if route == session.route:
                self.end(session)
