"""The sockets on which Python clients send their requests, one per session; others use ZeroMQ.

A short job then takes about 0.35 ms less: ZeroMQ wakes two more threads each way.
The daemon makes the socket and passes the other end with its welcome, so the requests are those of
the session's process. Nothing here blocks, and the backlog of replies is the router's.
"""

from __future__ import annotations

import functools
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from socket import socketpair

from hetsched.daemon.requests import ClientSession
from hetsched.errors import ProtocolError
from hetsched.transport.large_messages import MARKER, MAX_INLINE, in_memfd
from hetsched.transport.loop import Loop
from hetsched.transport.sockets import NOW, Peer, close_all, receive_message, send_message

MAX_FRAMES_PER_TURN = 64
"""Requests of one client received before other handlers on the loop run. Arbitrary."""
MAX_TURN_SECONDS = 0.01
"""The same in time: large requests take milliseconds each. Arbitrary."""


class RequestSockets:
    """The request sockets of all sessions, by an identity that no ZeroMQ client can have.

    Parameters
    ----------
    on_frame : callable
        on_frame(identity, frame, peer) for every request.
    on_invalid : callable
        on_invalid(identity): this client sent what isn't a request.
    """

    def __init__(
        self,
        loop: Loop,
        on_frame: Callable[[bytes, bytes, Peer], None],
        on_invalid: Callable[[bytes], None],
    ) -> None:
        self._loop, self._on_frame, self._on_invalid = loop, on_frame, on_invalid
        self._sockets: dict[bytes, socket.socket] = {}

    def __contains__(self, identity: bytes) -> bool:
        return identity in self._sockets

    @contextmanager
    def opened(self, session: ClientSession | None) -> Iterator[list[int]]:
        """Open the socket of `session`; give the fd of its other end, which closes afterwards.

        Gives none without a session, if it has one, or if there are no descriptors: ZeroMQ serves
        such a client.
        """
        client_end = None if session is None or session.request_identity else self._open(session)
        if client_end is None:
            yield []
            return
        with client_end:
            yield [client_end.fileno()]

    def try_send(self, identity: bytes, payload: bytes) -> bool:
        """Return whether the reply needs no retry: it was sent, or its client has ended."""
        connection = self._sockets[identity]
        try:
            if len(payload) <= MAX_INLINE:
                connection.send(payload, NOW)
            else:
                _send_large(connection, payload)
        except (BrokenPipeError, ConnectionResetError):
            return True
        except OSError:  # it is full, or there are no descriptors at present
            return False
        return True

    def close(self, identity: bytes) -> None:
        """Close a socket, if there is one with this identity."""
        connection = self._sockets.pop(identity, None)
        if connection is not None:
            self._loop.remove_reader(connection.fileno())
            connection.close()

    def close_all(self) -> None:
        """Close all sockets; what was sent can still be read."""
        for identity in list(self._sockets):
            self.close(identity)

    def _open(self, session: ClientSession) -> socket.socket | None:
        try:
            daemon_end, client_end = socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError:
            return None
        # Nobody can guess it, so no ZeroMQ client can have chosen the same.
        identity = session.request_identity = secrets.token_bytes(32)
        self._sockets[identity] = daemon_end
        receive = functools.partial(self._receive, identity, session.peer)
        self._loop.add_reader(daemon_end.fileno(), receive)
        return client_end

    def _receive(self, identity: bytes, peer: Peer) -> None:
        end = time.monotonic() + MAX_TURN_SECONDS
        for _ in range(MAX_FRAMES_PER_TURN):
            connection = self._sockets.get(identity)
            if connection is None:  # the last request has closed the session
                return
            try:
                frame, fds = receive_message(connection, MAX_INLINE, NOW)
            except BlockingIOError:
                return
            except ProtocolError:
                self.close(identity)
                self._on_invalid(identity)
                return
            except OSError:
                frame, fds = b"", []
            close_all(fds)
            if not frame:
                self.close(identity)
                return
            self._on_frame(identity, frame, peer)
            if time.monotonic() > end:
                return


def _send_large(connection: socket.socket, payload: bytes) -> None:
    """Send a message that may exceed the socket's buffer. Raises OSError."""
    fd = in_memfd(payload)
    try:
        send_message(connection, MARKER, [fd], NOW)
    finally:
        close_all([fd])
