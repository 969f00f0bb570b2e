"""Runs the daemon: folder, lock, sockets, and an orderly stop.

The stop is a ladder of signals, with a deadline for every step. SIGTERM and SIGINT: no new jobs;
running ones stop after their current chunks. A second one, or the deadline `stop` of the
configuration: the device processes are killed, with the same outcome for jobs. SIGHUP, when the
terminal closes, is a first SIGTERM, however often it comes. SIGQUIT keeps the kernel's default
action, which works even if this process is stuck; the device processes end with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, MutableMapping, Sequence
from pathlib import Path

import zmq

from hetsched import paths
from hetsched.config import Config, located
from hetsched.daemon.requests import Requests
from hetsched.daemon.router import Router
from hetsched.daemon.sessions import Sessions
from hetsched.engine.engine import CLOSE_SECONDS, Engine
from hetsched.errors import ConfigError
from hetsched.jobs.recovery import recover
from hetsched.jobs.table import JobTable
from hetsched.machine_limits import machine_memory, raise_descriptor_limit, resolve_size
from hetsched.store.journal import Journal
from hetsched.transport import sockets
from hetsched.transport.arena import Arena
from hetsched.transport.loop import Loop
from hetsched.transport.messages import MAX_FRAME

log = logging.getLogger(__name__)

SWITCH_SECONDS = 0.0005
"""Longest turn of a thread at the interpreter while others wait: the planner's computes beside the
loop."""
EXPIRY_FRACTION = 0.1
"""Of the disk's deadline, between two looks at whether the journal's disk responds."""
JOURNAL_SECONDS = 8.0
"""Time for the last records of the journal at the end."""
PUBLISH_SECONDS = 10.0
"""Time at the start for output files whose publication was interrupted."""
MAX_ARENAS = 2
"""Of glibc's heap: the main thread's and one for all others, which take turns with the interpreter
anyway. By default there are up to eight per core, each of which keeps its largest need ever."""
M_ARENA_MAX = -8
"""From malloc.h."""
GC_THRESHOLDS = (5000, 10, 10)
"""Of the garbage collector; the first counts objects, of which a waiting job has about 20. With
CPython's 700, waiting jobs were traversed again and again, in pauses of 0.1 s: a quarter of a
submission's time. Some 500,000 objects of garbage in cycles may remain for a while."""

KILL_SECONDS = 3.0
"""Time for jobs to end after the device processes were killed."""
STEP_SECONDS = 8.0
"""Time for each step after the loop has ended."""
ENGINE_SECONDS = 5.0
"""Time for the end of the engine, beyond the deadlines of its processes and threads."""

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


def serve(config: Config, source: str = "") -> None:
    """Run the daemon until SIGTERM or SIGINT. Call on the main thread.

    `source` is where the configuration comes from, for the log. Raises ConfigError if the runtime
    path is too long or unusable, another daemon runs, or config.arena is invalid.
    """
    folder = paths.private_folder(paths.runtime_dir(), "runtime folder")
    for path in (paths.endpoint_path(), paths.session_path()):
        sockets.validate_socket_path(path)
    mode = folder.stat().st_mode & 0o777
    if mode & 0o077:  # all clients are served
        raise ConfigError(
            f"runtime folder {folder}: open to others (mode {mode:o}); chmod 700 {folder}"
        )
    manager = ServiceManager(os.environ)
    lock_fd = sockets.acquire_lock(folder / "lock")
    try:
        log.info("configuration: %s", source or "passed in")
        raise_descriptor_limit()
        with located(source):
            _run(config, manager)
    finally:
        os.close(lock_fd)
    log.info("stopped")


def _run(config: Config, manager: ServiceManager) -> None:
    _tune_interpreter()
    total = resolve_size(config.arena.limit, machine_memory(), "arena.limit")
    passed = manager.listening_sockets(paths.endpoint_path(), paths.session_path())
    with contextlib.ExitStack() as stack:
        loop = Loop()
        stack.callback(loop.close)
        first_id = time.time_ns() >> 1  # unlike those of earlier daemons
        arena = Arena(total, first_id)
        stack.callback(arena.close)
        journal = _open_journal(config, loop)
        contents = journal.load()
        stack.callback(journal.close, JOURNAL_SECONDS)
        table = JobTable(config, loop, arena, journal)
        engine = Engine(
            config,
            loop,
            arena,
            table,
            models_path=paths.models_path(),
            journal_token=contents.token,
        )
        # Processes, which are asked, then killed, and two kinds of threads
        seconds = 2 * config.deadlines.device_stop + 2 * CLOSE_SECONDS + ENGINE_SECONDS
        stack.callback(guarded, engine.close, seconds)
        sessions = Sessions(paths.endpoint_path(), engine)
        requests = Requests(sessions, engine, journal)
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        router = Router(requests, loop, context, max(config.limits.unread, MAX_FRAME))
        stack.callback(sessions.end_all)
        # Waits until the last replies are sent.
        stack.callback(guarded, context.term)
        stack.callback(sessions.close)
        stack.callback(guarded, router.close)
        engine.fleet.start()
        engine.scheduler.recover(*recover(table, contents, PUBLISH_SECONDS))
        for path, kind, accept in (
            (paths.endpoint_path(), socket.SOCK_STREAM, router.open),
            (paths.session_path(), socket.SOCK_SEQPACKET, sessions.open),
        ):
            accept(passed.get(kind) or sockets.listen(path, kind))
            if kind not in passed:  # those stay, so that clients wait for the next daemon
                stack.callback(path.unlink, missing_ok=True)

        ladder = StopLadder(manager, engine, journal)
        ladder.listen()
        requests.stop = ladder.start
        manager.send_signs_of_life(loop)
        gc.freeze()  # modules and restored jobs live long: collecting them would block the loop
        folder = paths.endpoint_path().parent
        manager.notify("READY=1")
        manager.notify(f"STATUS=listening in {folder}")
        log.info("listening in %s, pid %d", folder, os.getpid())
        loop.run_forever()


def _tune_interpreter() -> None:
    """Limit glibc's arenas, before threads start, and the garbage collector's work."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_ARENA_MAX, MAX_ARENAS)
    gc.set_threshold(*GC_THRESHOLDS)
    sys.setswitchinterval(SWITCH_SECONDS)


def _open_journal(config: Config, loop: Loop) -> Journal:
    """Open the journal; those who wait for a hung disk are answered after a deadline."""
    deadline = config.deadlines.disk
    path = paths.journal_path()
    journal = Journal(path, loop.call_soon_threadsafe, config.journal, deadline=deadline)

    def expire() -> None:
        loop.call_later(EXPIRY_FRACTION * deadline, expire)
        journal.expire(time.monotonic())

    loop.call_later(EXPIRY_FRACTION * deadline, expire)
    return journal


class StopLadder:
    """Escalates from stage to stage, on signals and on deadlines. Lives on the loop's thread."""

    def __init__(self, manager: ServiceManager, engine: Engine, journal: Journal) -> None:
        self._loop, self._manager = engine.loop, manager
        self._table, self._engine, self._journal = engine.table, engine, journal
        # For running jobs to reach the end of a chunk, less than TimeoutStopSec of the unit
        self._drain_seconds = engine.config.deadlines.stop
        self._is_killing = False

    def listen(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._escalate)
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as nohup sets it
            self._loop.add_signal_handler(signal.SIGHUP, self.start)

    def start(self) -> None:
        if self._table.is_stopping:
            return
        log.info("stopping: no new jobs, running jobs stop after their current chunks")
        self._manager.notify("STOPPING=1", "STATUS=stopping: running jobs end their chunks")
        reason = f"chunks still run after {self._drain_seconds:g} s"
        self._loop.call_later(self._drain_seconds, self._kill_devices, reason)

        def flush() -> None:  # clients hear of an end once it is on disk
            self._loop.call_soon(self._journal.write, (), lambda error: self._loop.stop())

        self._engine.drain(flush)

    def _escalate(self) -> None:
        if self._table.is_stopping:
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
        self._engine.fleet.kill()

    def _give_up(self) -> None:
        log.error("stopping: jobs haven't ended %g s after their devices", KILL_SECONDS)
        self._loop.stop()


def guarded(step: Callable[[], None], seconds: float = STEP_SECONDS) -> None:
    """Call `step`; if that takes too long, end this process, which shows where its threads hang.

    Its status is 1. The device processes end with it.
    """
    faulthandler.dump_traceback_later(seconds, exit=True)
    try:
        step()
    finally:
        faulthandler.cancel_dump_traceback_later()


# ---- systemd


class ServiceManager:
    """The service manager that started this process, if one did; else it does nothing.

    See sd_listen_fds(3) and sd_notify(3). Its variables are removed from `environment`: child
    processes aren't the service. `watchdog`: it restarts the daemon unless it gets a sign of life
    within so many seconds; `descriptors`: sockets that it passes.
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
        expected = {socket.SOCK_STREAM: control, socket.SOCK_SEQPACKET: session}
        passed: dict[int, socket.socket] = {}
        for fd in self.descriptors:
            sock, is_usable = None, False
            with contextlib.suppress(OSError):  # it may be no socket
                os.set_inheritable(fd, False)
                sock = socket.socket(fileno=fd)
                is_unix = sock.family == socket.AF_UNIX and sock.type in expected
                is_usable = is_unix and bool(
                    sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
                )
            if sock is None or not is_usable or sock.type in passed:
                log.warning("systemd passed descriptor %d, which isn't used", fd)
                with contextlib.suppress(OSError):
                    os.close(fd if sock is None else sock.detach())
                continue
            path, bound = str(expected[sock.type]), sock.getsockname()
            if bound != path:
                sock.close()
                raise ConfigError(
                    f"the socket unit listens at {bound!r}, clients use {path!r};"
                    " `hetsched service install` writes matching units"
                )
            sock.setblocking(False)  # libzmq's thread must not wait for a client that left
            passed[sock.type] = sock
        return passed
