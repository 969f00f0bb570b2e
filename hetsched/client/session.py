"""The sockets to one daemon: ZeroMQ's for requests, the session's for shared memory and liveness.

The latter stays open after its client as long as arrays on shared memory exist: closing it would
free their segments, and other clients could write into them.
"""

from __future__ import annotations

import os
import select
import socket
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import zmq

from hetsched import __version__, errors
from hetsched.client.job import SessionLost, check_process
from hetsched.transport import messages, sockets
from hetsched.units import format_bytes

if TYPE_CHECKING:
    from hetsched.client.client import ClientSegment
    from hetsched.transport.arena import Segment

MAX_ANSWER = 64 << 10
"""Bytes of the longest answer."""
RECONNECT_MS = 1000
"""Milliseconds until ZeroMQ tries again to connect: longer than the time in which a stopped daemon
is noticed. It would take waiting requests to the next one, which doesn't know their token."""

_decode: messages.Decoder[messages.SessionAnswer] = messages.Decoder(messages.SessionAnswer)


class Session:
    """The connection to one daemon, from its hello to its end.

    Any thread may call any method; those of ZeroMQ's socket, under the heading `requests`, one at
    a time. `timeout`, `greeting_timeout`: seconds for each answer, and for the first one.

    Raises Unavailable, NotPermitted (another user's daemon), TryAgain (no answer) or ProtocolError
    (another version), with the reason.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        path: Path,
        timeout: float,
        greeting_timeout: float,
    ) -> None:
        self._pid = os.getpid()
        self._path, self._timeout = path, timeout
        self.lock = threading.RLock()
        """Guards `segments` and the session's socket, but for sending."""
        self.segments: dict[int, ClientSegment] = {}
        """Those that this client maps, by the daemon's number."""
        self._unsent: deque[bytes] = deque()
        self.arrays: set[object] = set()
        """One object for each array that holds a reference to a segment."""
        self._is_closing = False
        self.is_lost = False
        """Whether the daemon has closed its end."""
        self._has_open_request = False
        self._socket = _connect(path)
        try:
            welcome = self._greet(greeting_timeout)
            self._requests = context.socket(zmq.DEALER)
            self._requests.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
            self._requests.connect(f"ipc://{welcome.endpoint}")
            self.reply_fd = int(self._requests.getsockopt(zmq.FD))
        except zmq.ZMQError as error:  # no descriptors, above all
            self._socket.close()
            raise errors.TryAgain(
                f"can't connect to the daemon ({path.parent}): {error}"
            ) from None
        except BaseException:
            self._socket.close()
            raise
        self.fd = self._socket.fileno()
        self._daemon_pid, self._token = welcome.pid, welcome.token

    def lost_error(self) -> SessionLost:
        """Return the error to raise once the daemon has closed its end."""
        return SessionLost(
            f"the daemon (pid {self._daemon_pid}, {self._path.parent}) has stopped;"
            " start it: hetsched serve"
        )

    # ---- requests

    def send(self, number: int, request: messages.Request) -> bool:
        """Send a request; return False if the daemon accepts no more at present.

        Raises UsageError for one that can't be sent: one that is too long would end the
        connection, and with it other requests.
        """
        name = type(request).__name__.lower()
        try:
            payload = messages.encode(messages.Envelope(self._token, number, request))
        except (OverflowError, UnicodeEncodeError) as error:
            raise errors.UsageError(f"{name}: {error}") from None
        if len(payload) > messages.MAX_FRAME:
            raise errors.UsageError(
                f"{name}: the request has {len(payload)} bytes, the limit is {messages.MAX_FRAME}"
                f" ({format_bytes(messages.MAX_FRAME)}); pass large data as arrays"
            )
        try:
            self._requests.send(payload, zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True

    def receive(self) -> bytes | None:
        try:
            return self._requests.recv(zmq.NOBLOCK)
        except zmq.Again:
            return None

    def has_replies(self) -> bool:
        """Whether replies have come. To send may consume the event that announces them."""
        return bool(int(self._requests.getsockopt(zmq.EVENTS)) & zmq.POLLIN)

    def close(self, linger_ms: int = 0) -> None:
        """Close ZeroMQ's socket, and the session's once no array needs it any more."""
        self._requests.close(linger=linger_ms)
        self._is_closing = True
        if self.is_lost or not self.arrays:
            self._socket.close()

    # ---- shared memory, and the daemon's life

    def request(
        self, message: messages.SessionRequest, fds: Sequence[int] = ()
    ) -> tuple[messages.SegmentFd, int | None]:
        """Request a segment, with copies of `fds`; return the answer and its fd, the caller's."""
        check_process(self._pid)  # before the lock, which another thread may have held
        with self.lock:
            self._check_usable()
            self._has_open_request = True  # still set after an interrupt or a timeout
            answer, received = self._ask(message, self._timeout, fds)
            self._has_open_request = False
        if isinstance(answer, messages.SegmentFd) and len(received) == int(answer.is_new):
            return answer, received[0] if received else None
        sockets.close_all(received)
        if isinstance(answer, messages.Refused):
            raise errors.from_record(answer.error)
        if answer is None:
            raise self.lost_error()
        raise errors.ProtocolError(f"unexpected answer {type(answer).__name__} to {message!r}")

    def knows(self, segment: Segment) -> bool:
        """Whether the daemon is there, and has given this segment its number."""
        return not self.is_lost and self.segments.get(segment.id) is segment

    def receive_pending(self) -> None:
        """Handle the daemon's notifications; set `is_lost` at the end of file."""
        with self.lock:
            while not self.is_lost and self._readable(0):
                self._receive()

    def drop(self, segment: int, array: object = None) -> None:
        """Drop a reference to a segment, which may be an array's. Takes no lock, never blocks."""
        self.arrays.discard(array)
        if os.getpid() != self._pid:  # its arrays are its parent's references
            return
        self._unsent.append(messages.encode(messages.Drop(segment)))
        self._flush()
        if self._is_closing and not self.arrays:
            self._socket.close()

    def _flush(self) -> None:
        """Send messages that were held back; the socket's buffer holds hundreds."""
        while self._unsent:
            try:
                payload = self._unsent.popleft()
            except IndexError:  # another thread has sent it
                return
            try:
                self._socket.send(payload, sockets.NOW)
            except BlockingIOError:
                self._unsent.appendleft(payload)
                return
            except OSError:  # closed, or the daemon has ended: there is nothing to free
                return

    def _check_usable(self) -> None:
        if self._is_closing:
            raise errors.UsageError("this client is closed; create another one")
        if self.is_lost:
            raise self.lost_error()
        if self._has_open_request:  # its answer may still come, and would be taken for this one's
            raise errors.TryAgain("an earlier request was never answered; create another client")
        try:  # without a free descriptor the kernel would drop the one that comes with an answer
            os.close(os.dup(self.fd))
        except OSError as error:
            raise errors.from_record(errors.to_record(error)) from None

    def _greet(self, timeout: float) -> messages.Welcome:
        answer, fds = self._ask(
            messages.Hello(messages.PROTOCOL, __version__, os.getpid()), timeout
        )
        sockets.close_all(fds)
        if answer is None:
            raise errors.Unavailable(
                f"the daemon at {self._path} closed the connection; is it stopping?"
            )
        if isinstance(answer, messages.Refused):
            raise errors.from_record(answer.error)
        if not isinstance(answer, messages.Welcome) or answer.protocol != messages.PROTOCOL:
            raise errors.ProtocolError(
                f"{self._path}: the daemon's answer isn't protocol {messages.PROTOCOL} of hetsched"
                f" {__version__}; install the same version for both"
            )
        return answer

    def _ask(
        self, message: messages.SessionRequest, timeout: float, attached: Sequence[int] = ()
    ) -> tuple[messages.SessionAnswer | None, list[int]]:
        """Return the answer and its descriptors; None if the daemon has ended."""
        self._flush()
        try:
            sockets.send_message(self._socket, messages.encode(message), attached)
        except OSError:  # the daemon may have refused the session before it closed it
            self.is_lost = not self._readable(0)
        while not self.is_lost:
            if not self._readable(timeout):
                raise errors.TryAgain(
                    f"the daemon ({self._path.parent}) hasn't answered for {timeout:g} s"
                )
            answer, fds = self._receive()
            if answer is not None:
                return answer, fds
        return None, []

    def _readable(self, seconds: float) -> bool:
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def _receive(self) -> tuple[messages.SessionAnswer | None, list[int]]:
        """Return an answer; None for a notification and at the end of file."""
        try:
            payload, fds = sockets.receive_message(self._socket, MAX_ANSWER)
        except OSError:
            payload, fds = b"", []
        if not payload:
            self.is_lost = True
            return None, fds
        answer = _decode(payload)
        if isinstance(answer, messages.Discarded):
            segment = self.segments.pop(answer.segment, None)
            if segment is not None:
                segment.close()
            return None, fds
        return answer, fds


_sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def _close_in_child() -> None:
    """Close a forked child's copies: the sockets' end tells the daemon that a client has ended."""
    for connection in list(_sockets):
        connection.close()


os.register_at_fork(after_in_child=_close_in_child)


def _connect(path: Path) -> socket.socket:
    try:
        connection = sockets.connect(path)
    except PermissionError as error:
        raise errors.NotPermitted(f"daemon at {path}: {sockets.connect_failure(error)}") from None
    except OSError as error:
        raise errors.Unavailable(
            f"no daemon at {path} ({sockets.connect_failure(error)}); start it: hetsched serve"
        ) from None
    owner = sockets.socket_peer(connection).uid
    if owner not in (os.geteuid(), 0):  # it would get the caller's arrays and paths
        connection.close()
        raise errors.NotPermitted(
            f"daemon at {path}: it belongs to user {owner}; only your own (user {os.geteuid()})"
            " or root's is trusted"
        )
    _sockets.add(connection)
    return connection
