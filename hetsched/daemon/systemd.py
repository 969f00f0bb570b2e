"""What systemd passes to a service and expects of it: sockets, notifications, signs of life.

See sd_listen_fds(3) and sd_notify(3). Everything here is a no-op in a daemon that systemd didn't
start.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass

from hetsched.errors import ConfigError
from hetsched.transport.loop import Loop

log = logging.getLogger(__name__)

FIRST_DESCRIPTOR = 3
"""Number of the first descriptor passed (SD_LISTEN_FDS_START)."""
MIN_WATCHDOG_SECONDS = 0.02
"""Shortest interval between two signs of life; a shorter one would only burn time."""
MICROSECOND = 1e-6

_VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
_LISTEN_VARIABLES = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")


@dataclass(frozen=True)
class ListeningSockets:
    """The daemon's two sockets, already bound by systemd; None: the daemon must bind it.

    Attributes
    ----------
    control : int or None
        Descriptor of ZeroMQ's socket.
    session : socket or None
    """

    control: int | None = None
    session: socket.socket | None = None


NO_SOCKETS = ListeningSockets()


@dataclass(frozen=True)
class ServiceManager:
    """The service manager that started this process, if one did.

    Attributes
    ----------
    notify_address : str
        Of its notification socket; "": none.
    watchdog : float or None, seconds
        It restarts the daemon unless it gets a sign of life within this time.
    descriptors : tuple of (name, fd)
        Passed sockets, owned by this process.
    """

    notify_address: str = ""
    watchdog: float | None = None
    descriptors: tuple[tuple[str, int], ...] = ()

    @classmethod
    def from_environment(
        cls, environment: MutableMapping[str, str], pid: int | None = None
    ) -> ServiceManager:
        """Read the variables and remove them: child processes aren't the service."""
        pid = os.getpid() if pid is None else pid
        values = {name: environment.pop(name, "") for name in (*_VARIABLES, *_LISTEN_VARIABLES)}
        return cls(
            values["NOTIFY_SOCKET"], _watchdog_seconds(values, pid), _descriptors(values, pid)
        )

    def send_signs_of_life(self, loop: Loop) -> None:
        """Send one now and twice per interval, if systemd waits for them.

        They come from the loop itself, never from another thread: a loop that is stuck must be
        noticed. A stuck device process isn't: the engine replaces it.
        """
        if self.watchdog is not None:
            self.notify("WATCHDOG=1")
            interval = max(MIN_WATCHDOG_SECONDS, self.watchdog / 2)
            loop.call_later(interval, self.send_signs_of_life, loop)

    def notify(self, *lines: str) -> None:
        """Send a notification. Never blocks."""
        if not self.notify_address:
            return
        address = self.notify_address
        if address.startswith("@"):
            address = "\0" + address[1:]
        payload = "\n".join(lines).encode()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)  # a full queue must not stop the loop
            with contextlib.suppress(OSError):
                sock.sendto(payload, address)

    def listening_sockets(self, control_path: str, session_path: str) -> ListeningSockets:
        """Return the passed sockets by their role, which follows from their type.

        Raises
        ------
        ConfigError
            A socket isn't bound to the path that clients use.
        """
        control: int | None = None
        session: socket.socket | None = None
        for name, fd in self.descriptors:
            sock = _listening_unix_socket(fd)
            kind = None if sock is None else sock.type
            if sock is not None and kind == socket.SOCK_STREAM and control is None:
                _check_path(sock, control_path)
                sock.setblocking(False)  # libzmq's thread must not wait for a client that left
                control = sock.detach()
            elif sock is not None and kind == socket.SOCK_SEQPACKET and session is None:
                _check_path(sock, session_path)
                sock.setblocking(False)
                session = sock
            else:
                log.warning("systemd passed descriptor %d (%s), which isn't used", fd, name)
                _close(sock, fd)
        return ListeningSockets(control, session)


def _watchdog_seconds(values: Mapping[str, str], pid: int) -> float | None:
    microseconds, owner = values["WATCHDOG_USEC"], values["WATCHDOG_PID"]
    if not microseconds.isdecimal() or int(microseconds) == 0 or owner not in ("", str(pid)):
        return None
    return int(microseconds) * MICROSECOND


def _descriptors(values: Mapping[str, str], pid: int) -> tuple[tuple[str, int], ...]:
    """Take over the passed descriptors; none if they are for another process."""
    count = values["LISTEN_FDS"]
    if values["LISTEN_PID"] != str(pid) or not count.isdecimal():
        return ()
    numbers = range(FIRST_DESCRIPTOR, FIRST_DESCRIPTOR + int(count))
    names = values["LISTEN_FDNAMES"].split(":") if values["LISTEN_FDNAMES"] else []
    names += ["unknown"] * (len(numbers) - len(names))
    passed = []
    for name, fd in zip(names, numbers, strict=False):
        try:
            os.set_inheritable(fd, False)
        except OSError as error:
            log.warning("systemd passed descriptor %d (%s): %s", fd, name, error.strerror)
            continue
        passed.append((name, fd))
    return tuple(passed)


def _listening_unix_socket(fd: int) -> socket.socket | None:
    """Return the socket behind `fd` if it is a listening unix socket."""
    try:
        sock = socket.socket(fileno=fd)
    except OSError:
        return None
    if sock.family == socket.AF_UNIX and sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        return sock
    sock.detach()
    return None


def _check_path(sock: socket.socket, path: str) -> None:
    bound = sock.getsockname()
    if bound != path:
        sock.close()
        raise ConfigError(
            f"the socket unit listens at {bound!r}, clients use {path!r};"
            " `hetsched service install` writes matching units"
        )


def _close(sock: socket.socket | None, fd: int) -> None:
    if sock is not None:
        sock.close()
        return
    with contextlib.suppress(OSError):
        os.close(fd)
