"""How the daemon lives: what systemd passes to it and expects of it, and how it stops.

Sockets, notifications and signs of life: see sd_listen_fds(3) and sd_notify(3). They are no-ops in
a daemon that systemd didn't start.

The stop is a ladder of signals, with a deadline for every step. SIGTERM and SIGINT: no new jobs;
running ones stop after their current chunks. A second one, or the deadline `stop` of the
configuration: the device processes are killed, with the same outcome for jobs. SIGHUP, when the
terminal closes, is a first SIGTERM, however often it comes. SIGQUIT keeps the kernel's default
action, which works even if this process is stuck; the device processes end with it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass

from hetsched.errors import ConfigError
from hetsched.transport.loop import Loop

log = logging.getLogger(__name__)

FIRST_DESCRIPTOR = 3
"""Number of the first descriptor passed (SD_LISTEN_FDS_START)."""
MIN_WATCHDOG_SECONDS = 0.02
"""Shortest interval between two signs of life; a shorter one would only burn time."""
_VARIABLES = (
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
    "LISTEN_PID",
    "LISTEN_FDS",
    "LISTEN_FDNAMES",
)

KILL_SECONDS = 3.0
"""Time for jobs to end after the device processes were killed."""
STEP_SECONDS = 8.0
"""Time for each step after the loop has ended."""
EXIT_STUCK = 70
"""Exit status when a step doesn't end: the exit code of a bug."""

Callback = Callable[[], None]


@dataclass(frozen=True)
class ListeningSockets:
    """The daemon's two sockets, already bound by systemd; None: the daemon must bind it.

    `control`: descriptor of ZeroMQ's.
    """

    control: int | None = None
    session: socket.socket | None = None


@dataclass(frozen=True)
class ServiceManager:
    """The service manager that started this process, if one did.

    `notify_address`: of its notification socket, "" if it has none; `watchdog`: it restarts the
    daemon unless it gets a sign of life within so many seconds; `descriptors`: passed sockets,
    owned by this process.
    """

    notify_address: str = ""
    watchdog: float | None = None
    descriptors: tuple[int, ...] = ()

    @classmethod
    def from_environment(cls, environment: MutableMapping[str, str]) -> ServiceManager:
        """Read the variables and remove them: child processes aren't the service."""
        values = {name: environment.pop(name, "") for name in _VARIABLES}
        return cls(values["NOTIFY_SOCKET"], _watchdog_seconds(values), _descriptors(values))

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

        Raises ConfigError if one isn't bound to the path that clients use.
        """
        passed: dict[int, socket.socket] = {}
        for fd in self.descriptors:
            sock = _listening_unix_socket(fd)
            kind = 0 if sock is None else int(sock.type)
            if sock is None or kind not in _KINDS or kind in passed:
                log.warning("systemd passed descriptor %d, which isn't used", fd)
                os.close(fd if sock is None else sock.detach())
                continue
            _check_path(sock, control_path if kind == socket.SOCK_STREAM else session_path)
            sock.setblocking(False)  # libzmq's thread must not wait for a client that left
            passed[kind] = sock
        control = passed.get(socket.SOCK_STREAM)
        return ListeningSockets(
            None if control is None else control.detach(), passed.get(socket.SOCK_SEQPACKET)
        )


_KINDS = (socket.SOCK_STREAM, socket.SOCK_SEQPACKET)


def _watchdog_seconds(values: Mapping[str, str]) -> float | None:
    microseconds, owner = values["WATCHDOG_USEC"], values["WATCHDOG_PID"]
    if not microseconds.isdecimal() or owner not in ("", str(os.getpid())):
        return None
    return int(microseconds) / 1e6 or None


def _descriptors(values: Mapping[str, str]) -> tuple[int, ...]:
    """Take over the passed descriptors; none if they are for another process."""
    count = values["LISTEN_FDS"]
    if values["LISTEN_PID"] != str(os.getpid()) or not count.isdecimal():
        return ()
    passed = []
    for fd in range(FIRST_DESCRIPTOR, FIRST_DESCRIPTOR + int(count)):
        try:
            os.set_inheritable(fd, False)
        except OSError as error:
            log.warning("systemd passed descriptor %d: %s", fd, error.strerror)
        else:
            passed.append(fd)
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


class StopLadder:
    """Escalates from stage to stage, on signals and on deadlines. Lives on the loop's thread.

    ``drain(on_drained)`` accepts no more jobs, stops running ones between chunks, then calls back;
    `kill` ends the device processes. `drain_seconds`: for running jobs to reach the end of a
    chunk, less than TimeoutStopSec of the unit.
    """

    def __init__(
        self,
        loop: Loop,
        manager: ServiceManager,
        drain: Callable[[Callback], None],
        kill: Callback,
        drain_seconds: float,
    ) -> None:
        self._loop, self._manager = loop, manager
        self._drain, self._kill = drain, kill
        self._drain_seconds = drain_seconds
        self._is_draining = self._is_killing = False

    def listen(self) -> None:
        """Handle signals from now on. Only on the main thread."""
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.on_signal(number, self.escalate)
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as nohup sets it
            self._loop.on_signal(signal.SIGHUP, self.start)

    def start(self) -> None:
        """Begin to stop, unless that has begun."""
        if self._is_draining:
            return
        self._is_draining = True
        log.info("stopping: no new jobs, running jobs stop after their current chunks")
        self._manager.notify("STOPPING=1", "STATUS=stopping: running jobs end their chunks")
        reason = f"chunks still run after {self._drain_seconds:g} s"
        self._loop.call_later(self._drain_seconds, self._kill_devices, reason)
        self._drain(self._loop.stop)

    def escalate(self) -> None:
        """Begin to stop; if that has begun, stop without waiting for chunks."""
        if self._is_draining:
            self._kill_devices("a second signal")
        else:
            self.start()

    def _kill_devices(self, reason: str) -> None:
        if self._is_killing:
            return
        self._is_killing = True
        log.warning("stopping now, killing the device processes: %s", reason)
        self._manager.notify("STATUS=stopping: device processes are killed")
        self._loop.call_later(KILL_SECONDS, self._give_up)
        self._kill()

    def _give_up(self) -> None:
        log.error("stopping: jobs haven't ended %g s after their devices", KILL_SECONDS)
        self._loop.stop()


class ExitGuard:
    """Ends this process if a step of the stop takes too long; the log names the step.

    `last_act` is called before the exit, from another thread; its exceptions are ignored.
    """

    def __init__(self, last_act: Callback) -> None:
        self._last_act = last_act

    def guarded(self, name: str, function: Callback, seconds: float = STEP_SECONDS) -> Callback:
        """Return `function` as a step."""

        def run() -> None:
            timer = threading.Timer(seconds, self._expire, (name, seconds))
            timer.daemon = True
            timer.start()
            try:
                function()
            finally:
                timer.cancel()

        return run

    def _expire(self, name: str, seconds: float) -> None:
        log.error("stopping: %s hasn't ended after %g s; exiting without it", name, seconds)
        with contextlib.suppress(Exception):
            self._last_act()
        for handler in logging.getLogger("hetsched").handlers:
            with contextlib.suppress(Exception):
                handler.flush()
        os._exit(EXIT_STUCK)
