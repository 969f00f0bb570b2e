"""The daemon's sockets, on the engine's loop: messages go to `Requests`, and its answers back.

No client can stop or block the loop, or make a queue grow without bound, whatever it sends and
whether or not it reads.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import logging
import resource
import socket
import time
from pathlib import Path

import zmq
from prometheus_client.metrics_core import Metric

from hetsched.daemon.metrics import counter
from hetsched.daemon.requests import Requests
from hetsched.daemon.router import LogLimiter, Router, ZapHandler
from hetsched.daemon.systemd import NO_SOCKETS, ListeningSockets
from hetsched.errors import ProtocolError, TryAgain, to_record
from hetsched.transport.arena import Arena
from hetsched.transport.codec import Decoder, encode
from hetsched.transport.loop import Loop
from hetsched.transport.messages import (
    Discarded,
    Envelope,
    Refused,
    Reply,
    SessionAnswer,
    SessionRequest,
)
from hetsched.transport.sockets import (
    NOW,
    Peer,
    close_all,
    listen,
    receive_message,
    send_message,
    socket_peer,
)

log = logging.getLogger(__name__)

MAX_SESSION_REQUEST = 4096
"""Largest request on a session's socket, bytes; all are small."""
PAUSE_SECONDS = 0.5
"""How long clients wait for an answer when there are no descriptors."""
NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
RESERVED_DESCRIPTORS = 8
"""Left to device processes that start, and to files: without any, libzmq aborts the process."""


class Server:
    """Sockets and sessions of one daemon. Lives on the loop's thread.

    Parameters
    ----------
    context : zmq.Context
        Closed by its owner, after `close`.
    endpoint, session : Path
        Where to listen. The caller holds the lock of their folder.
    unread : int, bytes
        Of unsent replies to one client; beyond, it is disconnected.
    """

    def __init__(
        self,
        requests: Requests,
        loop: Loop,
        arena: Arena,
        context: zmq.Context[zmq.Socket[bytes]],
        endpoint: Path,
        session: Path,
        unread: int,
    ) -> None:
        self._requests, self._clients = requests, requests.sessions
        self._loop = loop
        self._arena = arena
        self._endpoint, self._session = endpoint, session
        self._zap = ZapHandler(context, loop, self._admits_requests)
        self._router = Router(context, loop, self._on_frame, self._on_overflow, unread)
        self._listener: socket.socket | None = None
        self._is_passed = False
        self._refusals = LogLimiter()
        self._sessions: dict[int, socket.socket] = {}
        self._next_session = 1
        self._max_descriptor = 0
        self._dropped_requests = LogLimiter()
        self._decode_request: Decoder[SessionRequest] = Decoder(SessionRequest)
        self._decode_envelope: Decoder[Envelope] = Decoder(Envelope)

    def open(self, passed: ListeningSockets = NO_SOCKETS) -> None:
        """Listen, on the sockets `passed` or on new ones.

        Passed sockets stay in the file system when they are closed: clients that connect in the
        meantime wait for the next daemon. Raises ConfigError if a socket can't be bound.
        """
        self._arena.on_discard(self._clients.on_segment_discarded)
        self._arena.on_pressure(self._clients.on_memory_pressure)
        self._router.bind(self._endpoint, passed.control)
        self._is_passed = passed.session is not None
        self._listener = passed.session or listen(self._session)
        self._loop.add_reader(self._listener.fileno(), self._accept)
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._max_descriptor = limit - RESERVED_DESCRIPTORS
        self._arena.max_descriptor = self._max_descriptor - RESERVED_DESCRIPTORS

    def backlog(self) -> int:
        """Count the replies that wait for the slowest client."""
        return self._router.backlog()

    def backlog_bytes(self) -> int:
        """Return the bytes of all replies that wait for clients."""
        return self._router.backlog_bytes()

    def metrics(self) -> list[Metric]:
        """Return what was dropped, and what waits."""
        return [
            *self._router.metrics(),
            counter(
                "rejected_requests",
                "Frames that weren't requests, which were dropped.",
                self._dropped_requests.total,
            ),
        ]

    def close(self) -> None:
        """Close and remove the sockets; the context's end sends the last replies."""
        self._router.close()
        self._zap.close()
        if self._listener is not None:
            self._loop.remove_reader(self._listener.fileno())
            self._listener.close()
            self._listener = None
            if not self._is_passed:
                self._session.unlink(missing_ok=True)

    def close_sessions(self) -> None:
        """End all sessions, after the context's end: clients then stop waiting for replies."""
        for number in list(self._sessions):
            self._end_session(number)

    # sessions

    def _admits_requests(self, peer: Peer) -> bool:
        return self._clients.admits(peer) and any(
            session.peer == peer for session in self._clients
        )

    def _accept(self) -> None:
        if self._listener is None:
            return
        try:
            connection, _ = self._listener.accept()
        except OSError as error:
            if error.errno in NO_DESCRIPTORS:  # the connection stays readable: the loop would spin
                self._log(f"no sessions are accepted for {PAUSE_SECONDS:g} s: {error.strerror}")
                self._loop.remove_reader(self._listener.fileno())
                self._loop.call_later(PAUSE_SECONDS, self._resume)
            else:  # the client has closed
                self._log(f"session not accepted: {error.strerror}")
            return
        # Each session soon has a ZeroMQ connection, too; the lowest descriptors are taken first.
        if connection.fileno() + len(self._sessions) >= self._max_descriptor:
            self._refuse(connection)
        else:
            self._on_connection(connection)

    def _resume(self) -> None:
        if self._listener is not None:
            self._loop.add_reader(self._listener.fileno(), self._accept)

    def _refuse(self, connection: socket.socket) -> None:
        error = TryAgain(
            f"the daemon has {len(self._sessions)} clients and no descriptors for more (limit"
            f" RLIMIT_NOFILE: {self._max_descriptor + RESERVED_DESCRIPTORS}); try again later, or"
            " raise the limit"
        )
        self._log(f"refused a session: {error}")
        self._arena.trim()
        with connection, contextlib.suppress(OSError):
            send_message(connection, encode(Refused(to_record(error))), (), NOW)

    def _log(self, text: str) -> None:
        more = self._refusals.admit(time.monotonic())
        if more is not None:
            log.warning("%s%s", text, more)

    def _on_connection(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        peer = socket_peer(connection)
        if not self._clients.admits(peer):
            log.warning("refused a session of uid %d (pid %d)", peer.uid, peer.pid)
            connection.close()
            return
        number, self._next_session = self._next_session, self._next_session + 1
        self._sessions[number] = connection
        answer = functools.partial(self._answer, number)

        def close() -> None:
            self._loop.call_soon(self._end_session, number)

        self._clients.on_connect(number, peer, answer, close)
        self._loop.add_reader(
            connection.fileno(), functools.partial(self._on_session_readable, number)
        )

    def _on_session_readable(self, number: int) -> None:
        connection, session = self._sessions.get(number), self._clients.get(number)
        if connection is None or session is None:
            return
        fds: list[int] = []
        try:
            payload, fds = receive_message(connection, MAX_SESSION_REQUEST)
            if payload:
                request = self._decode_request(payload)
                self._clients.on_session_request(session, request, fds)
            else:
                self._end_session(number)
        except BlockingIOError:
            return
        except ProtocolError as error:
            self._clients.on_invalid_message(session, error)
        except OSError:
            self._end_session(number)
        finally:
            close_all(fds)

    def _answer(self, number: int, answer: SessionAnswer, segment: int | None) -> None:
        connection = self._sessions.get(number)
        if connection is None:
            return
        fds = [] if segment is None else [self._arena.segment(segment).fd]
        try:
            send_message(connection, encode(answer), fds, NOW)
        except OSError:  # the client has ended, or sends without ever reading
            if not isinstance(answer, Discarded):
                self._end_session(number)

    def _end_session(self, number: int) -> None:
        connection = self._sessions.pop(number, None)
        if connection is not None:
            self._loop.remove_reader(connection.fileno())
            connection.close()
            session = self._clients.get(number)
            if session is not None:
                self._router.forget(session.identity)
            self._clients.on_disconnect(number)

    # requests and replies

    def _on_overflow(self, identity: bytes) -> None:
        self._loop.call_soon(self._clients.on_unread_replies, identity)

    def _on_frame(self, identity: bytes, frame: bytes, peer: Peer) -> None:
        try:
            envelope = self._decode_envelope(frame)
        except ProtocolError as error:
            suffix = self._dropped_requests.admit(time.monotonic())
            if suffix is not None:
                log.warning("dropped a request: %s%s", error, suffix)
            # Number 0, which no request has, explains a mismatch of versions.
            self._router.send(identity, Reply(0, Refused(to_record(error))), droppable=True)
            return
        self._requests.on_request(identity, peer, envelope, self._router.send, len(frame))
