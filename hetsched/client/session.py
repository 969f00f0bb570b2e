"""The client's end of the session: token, shared memory, and the news that the daemon has died.

Outlives the client that opened it for as long as arrays on shared memory live, because the end of
file would free their segments for others to write into.
"""

from __future__ import annotations

import itertools
import os
import select
import socket
import threading
from collections import deque
from collections.abc import Callable
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
)
from hetsched.transport.codec import Decoder, encode
from hetsched.transport.messages import (
    PROTOCOL,
    Discarded,
    Drop,
    Hello,
    Refused,
    SegmentFd,
    SessionAnswer,
    SessionRequest,
    Welcome,
)
from hetsched.transport.sockets import connect, connect_failure, receive_message, send_message

LIMIT = 64 << 10
"""Bytes of the longest answer."""

_decode: Decoder[SessionAnswer] = Decoder(SessionAnswer)


class Session:
    """One connection to the daemon's session socket. Every method may be called from any thread.

    Parameters
    ----------
    path : Path
    timeout : float, seconds
        For each answer.

    Raises
    ------
    Unavailable, NotPermitted
        Nobody can be reached; the message says exactly why.
    ProtocolError
        The daemon is of a version that can't talk with this one.
    """

    def __init__(self, path: Path, timeout: float) -> None:
        self._path = path
        self._timeout = timeout
        self._lock = threading.Lock()
        self._unsent: deque[bytes] = deque()
        self._live: set[int] = set()
        self._keys = itertools.count()
        self._closing = False
        self._lost = False
        self._owing = False
        self.on_discard: Callable[[int], None] = lambda segment: None
        self._socket = _reach(path)
        try:
            self.welcome = self._greet()
        except BaseException:
            self._socket.close()
            raise

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def lost(self) -> bool:
        """The daemon has closed its end."""
        return self._lost

    def gone(self) -> HetschedError:
        """What to raise when the daemon has closed its end."""
        return TryAgain(
            f"the daemon (pid {self.welcome.pid}, {self._path.parent}) has gone;"
            " start it again (`hetsched serve`) and submit once more"
        )

    def request(self, message: SessionRequest) -> tuple[SegmentFd, int | None]:
        """Ask for a segment: the answer, and the fd if one came with it (now the caller's).

        Raises
        ------
        HetschedError
            What the daemon refused it with; TryAgain when it has gone or doesn't answer.
        """
        with self._lock:
            self._check_usable()
            self._owing = True  # stays so if we are interrupted, or the daemon never answers
            answer, fds = self._ask(message)
            self._owing = False
        if isinstance(answer, SegmentFd) and len(fds) == int(answer.is_new):
            return answer, fds[0] if fds else None
        for fd in fds:
            os.close(fd)
        if isinstance(answer, Refused):
            raise from_record(answer.error)
        raise ProtocolError(f"unexpected answer {type(answer).__name__} to {message!r}")

    def pump(self) -> None:
        """Handle what the daemon said unasked; sets `lost` at the end of file."""
        with self._lock:
            while not self._lost and self._readable(0):
                answer, _ = self._receive()
                if answer is not None:
                    self._unasked(answer)

    def holds(self) -> int:
        """An array on shared memory lives from now on; its key for `let_go`."""
        key = next(self._keys)
        self._live.add(key)
        return key

    def let_go(self, key: int, segment: int) -> None:
        """The array has died. Called by the garbage collector: takes no lock, never blocks."""
        self._live.discard(key)
        self._unsent.append(encode(Drop(segment)))
        self._flush()
        if self._closing and not self._live:
            self._socket.close()

    def close(self) -> None:
        """Close as soon as no array lives that needs the session. Idempotent."""
        self._closing = True
        if not self._live:
            self._socket.close()

    def _flush(self) -> None:
        """Send what wouldn't go before; the socket's buffer holds hundreds of messages."""
        while self._unsent:
            try:
                payload = self._unsent.popleft()
            except IndexError:  # another thread was faster
                return
            try:
                self._socket.send(payload, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            except BlockingIOError:
                self._unsent.appendleft(payload)
                return
            except OSError:  # closed, or the daemon is gone: nothing is left to free
                return

    def _check_usable(self) -> None:
        if self._closing:
            raise UsageError("this client is closed; open another one")
        if self._lost:
            raise self.gone()
        if self._owing:  # that answer may still come, and would be taken for another's
            raise TryAgain("an earlier request was never answered; open another client")

    def _greet(self) -> Welcome:
        answer, _ = self._ask(Hello(PROTOCOL, __version__, os.getpid()))
        if isinstance(answer, Refused):
            raise from_record(answer.error)
        if not isinstance(answer, Welcome) or answer.protocol != PROTOCOL:
            raise ProtocolError(
                f"{self._path}: the daemon's answer isn't protocol {PROTOCOL} of hetsched"
                f" {__version__}; install the same version for both"
            )
        return answer

    def _ask(self, message: SessionRequest) -> tuple[SessionAnswer, list[int]]:
        self._flush()
        try:
            send_message(self._socket, encode(message))
        except OSError:
            self._lost = True
        while not self._lost:
            if not self._readable(self._timeout):
                raise TryAgain(
                    f"the daemon ({self._path.parent}) hasn't answered for {self._timeout:g} s"
                )
            answer, fds = self._receive()
            if answer is not None and not self._unasked(answer):
                return answer, fds
        raise self._ended()

    def _ended(self) -> HetschedError:
        if hasattr(self, "welcome"):
            return self.gone()
        return Unavailable(f"the daemon at {self._path} closed the connection; is it stopping?")

    def _readable(self, seconds: float) -> bool:
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def _receive(self) -> tuple[SessionAnswer | None, list[int]]:
        try:
            payload, fds = receive_message(self._socket, LIMIT)
        except OSError:
            payload, fds = b"", []
        if not payload:
            self._lost = True
            return None, fds
        return _decode(payload), fds

    def _unasked(self, answer: SessionAnswer) -> bool:
        if isinstance(answer, Discarded):
            self.on_discard(answer.segment)
            return True
        return False


def _reach(path: Path) -> socket.socket:
    try:
        return connect(path)
    except PermissionError as error:
        raise NotPermitted(f"daemon at {path}: {connect_failure(error)}") from None
    except OSError as error:
        raise Unavailable(
            f"no daemon at {path} ({connect_failure(error)}); start it: hetsched serve"
        ) from None
