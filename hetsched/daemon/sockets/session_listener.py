"""Accepts sessions, as long as there are descriptors for them; others are refused with the reason.

Without descriptors `accept` fails and the connection stays readable: the loop would spin. So a
spare descriptor is given up for a moment, to accept and refuse; if even that fails, the listener
pauses.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

from hetsched.daemon.limits.log_limiter import LogLimiter
from hetsched.errors import HetschedError, TryAgain, to_record
from hetsched.transport.codec import encode
from hetsched.transport.loop import Loop
from hetsched.transport.messages import Refused
from hetsched.transport.sockets import listen, send_message

log = logging.getLogger(__name__)

PAUSE_SECONDS = 0.5
"""How long clients wait for an answer when no descriptor at all is left. Arbitrary."""
NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class SessionListener:
    """The socket on which sessions begin.

    Parameters
    ----------
    check : callable
        Raises TryAgain if there may be no further session.
    on_connection : callable
        Receives each accepted connection.
    """

    def __init__(
        self,
        loop: Loop,
        check: Callable[[], None],
        on_connection: Callable[[socket.socket], None],
    ) -> None:
        self._loop = loop
        self._check = check
        self._on_connection = on_connection
        self._socket: socket.socket | None = None
        self._path: Path | None = None
        self._spare = -1
        self._refusals = LogLimiter()

    def open(self, path: Path, passed: socket.socket | None) -> None:
        """Listen at `path`, or on a socket from systemd, whose file stays when it is closed.

        Raises ConfigError if the path can't be bound.
        """
        self._path = None if passed else path
        self._socket = passed or listen(path)
        self._take_spare()
        self._loop.add_reader(self._socket.fileno(), self._accept)

    def close(self) -> None:
        """Stop listening."""
        if self._socket is None:
            return
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()
        self._socket = None
        self._drop_spare()
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def _accept(self) -> None:
        if self._socket is None:
            return
        try:
            connection, _ = self._socket.accept()
        except OSError as error:
            if error.errno in NO_DESCRIPTORS:
                self._refuse_with_spare(error)
            else:  # the client has closed
                self._log(f"session not accepted: {error.strerror}")
            return
        try:
            self._check()
        except TryAgain as error:
            self._refuse(connection, error)
            return
        self._on_connection(connection)

    def _refuse_with_spare(self, error: OSError) -> None:
        self._drop_spare()
        reason = TryAgain(
            f"the daemon has no descriptors left ({error.strerror}); try again later, or raise"
            " its limit (RLIMIT_NOFILE)"
        )
        try:
            assert self._socket is not None
            self._refuse(self._socket.accept()[0], reason)
        except OSError:
            self._log(f"no sessions are accepted for {PAUSE_SECONDS:g} s: {error.strerror}")
            self._pause()
        finally:
            self._take_spare()

    def _refuse(self, connection: socket.socket, error: HetschedError) -> None:
        self._log(f"refused a session: {error}")
        connection.setblocking(False)
        with connection, contextlib.suppress(OSError):
            send_message(connection, encode(Refused(to_record(error))))

    def _pause(self) -> None:
        assert self._socket is not None
        self._loop.remove_reader(self._socket.fileno())
        self._loop.call_later(PAUSE_SECONDS, self._resume)

    def _resume(self) -> None:
        if self._socket is not None:
            self._take_spare()
            self._loop.add_reader(self._socket.fileno(), self._accept)

    def _take_spare(self) -> None:
        if self._spare < 0:
            with contextlib.suppress(OSError):  # none is left: there is no spare
                self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def _drop_spare(self) -> None:
        spare, self._spare = self._spare, -1
        if spare >= 0:
            os.close(spare)

    def _log(self, text: str) -> None:
        more = self._refusals.admit(time.monotonic())
        if more is not None:
            log.warning("%s%s", text, more)
