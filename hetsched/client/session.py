"""The client's end of the session socket: descriptors of shared memory, and the daemon's life.

It stays open after its client as long as arrays on shared memory exist: closing it would free
their segments, and other clients could write into them.
"""

from __future__ import annotations

import os
import select
import socket
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from hetsched import __version__
from hetsched.errors import (
    HetschedError,
    NotPermitted,
    ProtocolError,
    TryAgain,
    Unavailable,
    UsageError,
    from_record,
    to_record,
)
from hetsched.transport import messages
from hetsched.transport.codec import Decoder, encode
from hetsched.transport.messages import PROTOCOL, Refused, SegmentFd, SessionAnswer, Welcome
from hetsched.transport.process_owner import ProcessOwner
from hetsched.transport.sockets import (
    NOW,
    close_all,
    connect,
    connect_failure,
    receive_message,
    send_message,
    socket_peer,
)

MAX_ANSWER = 64 << 10
"""Bytes of the longest answer."""

_decode: Decoder[SessionAnswer] = Decoder(SessionAnswer)


class SessionLost(TryAgain):
    """The daemon has ended; the next one decides what becomes of open requests."""


class Session:
    """One connection to the daemon's session socket. Any thread may call any method.

    Timeouts are in seconds for each answer. Raises Unavailable, NotPermitted (another user's
    daemon), TryAgain (no answer) or ProtocolError (another version), with the reason.
    """

    def __init__(self, path: Path, timeout: float, greeting_timeout: float) -> None:
        self._owner = ProcessOwner()
        self._path = path
        self._timeout = greeting_timeout
        self._lock = threading.Lock()
        self._unsent: deque[bytes] = deque()
        self._live_arrays: set[object] = set()
        self._is_closing = False
        self.is_lost = False
        """Whether the daemon has closed its end."""
        self._has_open_request = False
        self.on_discard: Callable[[int], None] = lambda segment: None
        self._socket = _connect(path)
        try:
            self.welcome = self._greet()
        except BaseException:
            self._socket.close()
            raise
        self._timeout = timeout
        _sessions.add(self)

    def fileno(self) -> int:
        return self._socket.fileno()

    def lost_error(self) -> HetschedError:
        """Return the error to raise once the daemon has closed its end."""
        if not hasattr(self, "welcome"):
            return Unavailable(
                f"the daemon at {self._path} closed the connection; is it stopping?"
            )
        return SessionLost(
            f"the daemon (pid {self.welcome.pid}, {self._path.parent}) has stopped;"
            " start it: hetsched serve"
        )

    def request(
        self, message: messages.SessionRequest, fds: Sequence[int] = ()
    ) -> tuple[SegmentFd, int | None]:
        """Request a segment, with copies of `fds`; return the answer and its fd, the caller's."""
        self._owner.check()  # before the lock, which another thread may have held
        with self._lock:
            self._check_usable()
            _check_descriptors(self._socket)
            self._has_open_request = True  # still set after an interrupt or a timeout
            answer, received = self._ask(message, fds)
            self._has_open_request = False
        if isinstance(answer, SegmentFd) and len(received) == int(answer.is_new):
            return answer, received[0] if received else None
        close_all(received)
        if isinstance(answer, Refused):
            raise from_record(answer.error)
        raise ProtocolError(f"unexpected answer {type(answer).__name__} to {message!r}")

    def receive_pending(self) -> None:
        """Handle the daemon's notifications; set `is_lost` at the end of file."""
        with self._lock:
            while not self.is_lost and self._readable(0):
                self._receive()

    def add_array(self, segment: int) -> Callable[[], None]:
        """Return the function that drops an array's reference to a segment, once it is freed."""
        key = object()
        self._live_arrays.add(key)

        def drop_array() -> None:  # the garbage collector may call it
            self._live_arrays.discard(key)
            self.drop(segment)
            if self._is_closing and not self._live_arrays and not self._owner.is_forked:
                self._socket.close()

        return drop_array

    def drop(self, segment: int) -> None:
        """Drop a reference to a segment. Takes no lock, never blocks. Not in a forked child."""
        if self._owner.is_forked:
            return
        self._unsent.append(encode(messages.Drop(segment)))
        self._flush()

    def close_in_child(self) -> None:
        self._socket.close()

    def close(self) -> None:
        """Close once no array needs the session any more. Idempotent."""
        self._is_closing = True
        if self.is_lost or not self._live_arrays:
            self._socket.close()

    def _flush(self) -> None:
        """Send messages that were held back; the socket's buffer holds hundreds."""
        while self._unsent:
            try:
                payload = self._unsent.popleft()
            except IndexError:  # another thread has sent it
                return
            try:
                self._socket.send(payload, NOW)
            except BlockingIOError:
                self._unsent.appendleft(payload)
                return
            except OSError:  # closed, or the daemon has ended: there is nothing to free
                return

    def _check_usable(self) -> None:
        if self._is_closing:
            raise UsageError("this client is closed; create another one")
        if self.is_lost:
            raise self.lost_error()
        if self._has_open_request:  # its answer may still come, and would be taken for this one's
            raise TryAgain("an earlier request was never answered; create another client")

    def _greet(self) -> Welcome:
        answer, fds = self._ask(messages.Hello(PROTOCOL, __version__, os.getpid()))
        close_all(fds)
        if isinstance(answer, Refused):
            raise from_record(answer.error)
        if not isinstance(answer, Welcome) or answer.protocol != PROTOCOL:
            raise ProtocolError(
                f"{self._path}: the daemon's answer isn't protocol {PROTOCOL} of hetsched"
                f" {__version__}; install the same version for both"
            )
        return answer

    def _ask(
        self, message: messages.SessionRequest, attached: Sequence[int] = ()
    ) -> tuple[SessionAnswer, list[int]]:
        self._flush()
        try:
            send_message(self._socket, encode(message), attached)
        except OSError:  # the daemon may have refused the session before it closed it
            self.is_lost = not self._readable(0)
        while not self.is_lost:
            if not self._readable(self._timeout):
                raise TryAgain(
                    f"the daemon ({self._path.parent}) hasn't answered for {self._timeout:g} s"
                )
            answer, fds = self._receive()
            if answer is not None:
                return answer, fds
        raise self.lost_error()

    def _readable(self, seconds: float) -> bool:
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def _receive(self) -> tuple[SessionAnswer | None, list[int]]:
        """Return an answer; None for a notification and at the end of file."""
        try:
            payload, fds = receive_message(self._socket, MAX_ANSWER)
        except OSError:
            payload, fds = b"", []
        if not payload:
            self.is_lost = True
            return None, fds
        answer = _decode(payload)
        if isinstance(answer, messages.Discarded):
            self.on_discard(answer.segment)
            return None, fds
        return answer, fds


_sessions: weakref.WeakSet[Session] = weakref.WeakSet()


def _close_in_child() -> None:
    """Close a forked child's copies of the sockets: their end tells the daemon that a client has
    ended. Its arrays are its parent's references, which it must not drop."""
    for session in list(_sessions):
        session.close_in_child()


os.register_at_fork(after_in_child=_close_in_child)


def _check_descriptors(connection: socket.socket) -> None:
    """Raise TryAgain if none is free: the kernel would drop the one that comes with an answer."""
    try:
        os.close(os.dup(connection.fileno()))
    except OSError as error:
        raise from_record(to_record(error)) from None


def _connect(path: Path) -> socket.socket:
    try:
        connection = connect(path)
    except PermissionError as error:
        raise NotPermitted(f"daemon at {path}: {connect_failure(error)}") from None
    except OSError as error:
        raise Unavailable(
            f"no daemon at {path} ({connect_failure(error)}); start it: hetsched serve"
        ) from None
    owner = socket_peer(connection).uid
    if owner not in (os.geteuid(), 0):  # it would get the caller's arrays and paths
        connection.close()
        raise NotPermitted(
            f"daemon at {path}: it belongs to user {owner}; only your own (user {os.geteuid()})"
            " or root's is trusted"
        )
    return connection
