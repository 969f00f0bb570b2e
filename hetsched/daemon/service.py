"""What systemd passes to the daemon and expects of it: see sd_listen_fds(3) and sd_notify(3).

All of it does nothing in a daemon that systemd didn't start.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from collections.abc import MutableMapping, Sequence
from pathlib import Path

from hetsched.errors import ConfigError
from hetsched.transport.loop import Loop

log = logging.getLogger(__name__)

FIRST_DESCRIPTOR = 3
"""Number of the first descriptor passed (SD_LISTEN_FDS_START)."""
_VARIABLES = (
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
    "LISTEN_PID",
    "LISTEN_FDS",
    "LISTEN_FDNAMES",
)


class ServiceManager:
    """The service manager that started this process, if one did.

    Its variables are removed from `environment`: child processes aren't the service. `watchdog`:
    it restarts the daemon unless it gets a sign of life within so many seconds; `descriptors`:
    sockets that it passes.
    """

    def __init__(self, environment: MutableMapping[str, str]) -> None:
        values = {name: environment.pop(name, "") for name in _VARIABLES}
        pid = str(os.getpid())
        self._address = values["NOTIFY_SOCKET"]
        self.watchdog: float | None = None
        if values["WATCHDOG_PID"] in ("", pid) and values["WATCHDOG_USEC"].isdecimal():
            self.watchdog = int(values["WATCHDOG_USEC"]) / 1e6 or None
        self.descriptors: Sequence[int] = ()
        if values["LISTEN_PID"] == pid and values["LISTEN_FDS"].isdecimal():
            end = FIRST_DESCRIPTOR + int(values["LISTEN_FDS"])
            self.descriptors = range(FIRST_DESCRIPTOR, end)

    def notify(self, *lines: str) -> None:
        """Send a notification. Never blocks."""
        if not self._address:
            return
        address = self._address
        if address.startswith("@"):
            address = "\0" + address[1:]
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)  # a full queue must not stop the loop
            with contextlib.suppress(OSError):
                sock.sendto("\n".join(lines).encode(), address)

    def send_signs_of_life(self, loop: Loop) -> None:
        """Send one now and twice per interval, if systemd waits for them.

        They come from the loop itself, never from another thread: a loop that is stuck must be
        noticed. A stuck device process isn't: the engine replaces it.
        """
        if self.watchdog is not None:
            self.notify("WATCHDOG=1")
            loop.call_later(self.watchdog / 2, self.send_signs_of_life, loop)

    def listening_sockets(self, control: Path, session: Path) -> dict[int, socket.socket]:
        """Return the passed sockets for ZeroMQ (SOCK_STREAM) and sessions (SOCK_SEQPACKET).

        Raises ConfigError if one isn't bound to its path, which clients use.
        """
        paths = {socket.SOCK_STREAM: control, socket.SOCK_SEQPACKET: session}
        passed: dict[int, socket.socket] = {}
        for fd in self.descriptors:
            sock, is_usable = None, False
            with contextlib.suppress(OSError):  # it may be no socket
                os.set_inheritable(fd, False)
                sock = socket.socket(fileno=fd)
                is_unix = sock.family == socket.AF_UNIX and sock.type in paths
                is_usable = is_unix and bool(
                    sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
                )
            if sock is None or not is_usable or sock.type in passed:
                log.warning("systemd passed descriptor %d, which isn't used", fd)
                with contextlib.suppress(OSError):
                    os.close(fd if sock is None else sock.detach())
                continue
            path, bound = str(paths[sock.type]), sock.getsockname()
            if bound != path:
                sock.close()
                raise ConfigError(
                    f"the socket unit listens at {bound!r}, clients use {path!r};"
                    " `hetsched service install` writes matching units"
                )
            sock.setblocking(False)  # libzmq's thread must not wait for a client that left
            passed[sock.type] = sock
        return passed
