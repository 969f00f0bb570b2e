"""The client's sockets to one daemon, from its hello to its end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import zmq

from hetsched.client.session import Session
from hetsched.errors import ProtocolError, UsageError
from hetsched.transport.codec import encode
from hetsched.transport.large_messages import MAX_INLINE, unpack
from hetsched.transport.messages import MAX_FRAME, Envelope, Request
from hetsched.transport.sockets import NOW, receive_message
from hetsched.units import format_bytes

RECONNECT_MS = 1000
"""Milliseconds until ZeroMQ tries again to connect: longer than the time in which a stopped daemon
is noticed. Arbitrary."""


class Link:
    """A session and a ZeroMQ socket. A daemon that starts again needs another link.

    Raises
    ------
    Unavailable, NotPermitted, ProtocolError, TryAgain
        See `Session`.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        session_path: Path,
        timeout: float,
        greeting_timeout: float,
    ) -> None:
        self.session = Session(session_path, timeout, greeting_timeout)
        self.token = self.session.welcome.token
        self.socket = context.socket(zmq.DEALER)
        # ZeroMQ would take waiting requests to the next daemon, with a token that it doesn't know.
        self.socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
        self.socket.connect(f"ipc://{self.session.welcome.endpoint}")
        self.request_socket = self.session.request_socket
        self.has_read_all = False
        """Whether the daemon has closed the socket past ZeroMQ."""

    @property
    def request_fd(self) -> int:
        """The descriptor of the socket past ZeroMQ; -1 if there is none, or it is closed."""
        return -1 if self.request_socket is None else self.request_socket.fileno()

    def encode(self, number: int, request: Request) -> bytes:
        """Encode a request for this daemon.

        Raises
        ------
        UsageError
            It is longer than the daemon accepts: sent, it would end the connection, and with it
            the client's other requests.
        """
        payload = encode(Envelope(self.token, number, request))
        if len(payload) > MAX_FRAME:
            raise UsageError(
                f"{type(request).__name__.lower()}: the request has {len(payload)} bytes, the"
                f" limit is {MAX_FRAME} ({format_bytes(MAX_FRAME)}); pass large data as arrays"
            )
        return payload

    def send(self, payload: bytes) -> bool:
        """Send an encoded request; return False if the daemon accepts no more at present."""
        try:
            self.socket.send(payload, zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True

    def send_now(self, payload: bytes) -> bool:
        """Send an encoded request past ZeroMQ, from any thread; return False if that's impossible.

        It may be too large, or the daemon may have given no socket for this, or may not read it.
        """
        if self.request_socket is None or len(payload) > MAX_INLINE:
            return False
        try:
            self.request_socket.send(payload, NOW)
        except OSError:
            return False
        return True

    def zmq_replies(self) -> Iterator[bytes]:
        """Yield the replies that have arrived through ZeroMQ."""
        while True:
            try:
                frame = self.socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                return
            yield frame

    def direct_replies(self) -> Iterator[bytes]:
        """Yield the replies that have arrived past ZeroMQ."""
        while self.request_socket is not None and not self.has_read_all:
            try:
                payload, fds = receive_message(self.request_socket, MAX_INLINE, NOW)
            except BlockingIOError:
                return
            except (OSError, ProtocolError):
                payload, fds = b"", []
            if payload:
                yield unpack(payload, fds)
            else:
                self.has_read_all = True

    def close(self, linger_ms: int = 0) -> None:
        """Close the sockets; the session only once no array needs it."""
        self.socket.close(linger=linger_ms)
        self.session.close_request_socket()
        self.session.close()
