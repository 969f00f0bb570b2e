"""Runs the daemon: folder, lock, sockets, signals, orderly shutdown."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import zmq

from hetsched import __version__, paths
from hetsched.config import ArenaConfig, Config
from hetsched.daemon.core import Core
from hetsched.daemon.records import DaemonInfo, Limits
from hetsched.daemon.server import Server
from hetsched.engine.engine import Engine
from hetsched.errors import ConfigError, HetschedError
from hetsched.transport.arena import Arena
from hetsched.transport.loop import Loop
from hetsched.transport.machine_limits import machine_memory, raise_descriptor_limit, resolve_size
from hetsched.transport.sockets import acquire_lock, validate_socket_path
from hetsched.units import parse_time

log = logging.getLogger(__name__)


def serve(config: Config, on_ready: Callable[[], None] = lambda: None, source: str = "") -> None:
    """Run the daemon until SIGTERM or SIGINT. Call on the main thread.

    Parameters
    ----------
    config : Config
    on_ready : callable
        Called once, when clients can connect.
    source : str
        Origin of the configuration, for the log.

    Raises
    ------
    ConfigError
        The runtime path is too long or unusable, another daemon runs, or config.arena is invalid.
    """
    folder = paths.private_folder(paths.runtime_dir(), "runtime folder")
    for path in (paths.endpoint_path(), paths.session_path()):
        validate_socket_path(path)
    check_private(folder)
    lock_fd = acquire_lock(folder / "lock")
    try:
        log.info("configuration: %s", source or "passed in")
        raise_descriptor_limit()
        _run(config, on_ready)
    finally:
        os.close(lock_fd)
    log.info("stopped")


def check_private(folder: Path) -> None:
    """Raise ConfigError if other users can enter `folder`: all clients are served."""
    status = folder.stat()
    if status.st_uid != os.getuid():
        raise ConfigError(
            f"runtime folder {folder}: belongs to uid {status.st_uid}, not to this user"
        )
    if status.st_mode & 0o077:
        raise ConfigError(
            f"runtime folder {folder}: open to others (mode {status.st_mode & 0o777:o});"
            f" chmod 700 {folder}"
        )


def limits(config: Config, memory: int) -> tuple[int, Limits]:
    """Return the arena's limit in bytes, and the core's limits, for a machine's memory in bytes.

    Raises
    ------
    ConfigError
    """
    arena = config.arena
    total = arena_limit(arena, memory)
    results = resolve_size(arena.results, memory, "arena.results")
    return total, Limits(
        results=min(results, total),
        results_for=_seconds(arena.results_for, "arena.results_for"),
        warm_for=_seconds(arena.warm_for, "arena.warm_for"),
    )


def arena_limit(arena: ArenaConfig, memory: int) -> int:
    """Return the maximum bytes of all segments. Raises ConfigError."""
    return resolve_size(arena.limit, memory, "arena.limit")


def notify(state: str) -> None:
    """Notify systemd, if it started the daemon (sd_notify)."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock, contextlib.suppress(OSError):
        sock.connect(address)
        sock.send(state.encode())


def _run(config: Config, on_ready: Callable[[], None]) -> None:
    total, core_limits = limits(config, machine_memory())
    with contextlib.ExitStack() as stack:
        loop = Loop()
        stack.callback(loop.close)
        arena = Arena(total)
        stack.callback(arena.close)
        engine = Engine(config, loop, arena, models_path=paths.models_path())
        stack.callback(engine.close)
        core = Core(_info(), core_limits)
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        endpoint, session = paths.endpoint_path(), paths.session_path()
        server = Server(core, loop, arena, engine, context, endpoint, session)
        stack.callback(server.close_sessions)
        stack.callback(context.term)  # waits until the last replies are sent
        stack.callback(server.close)
        engine.start()
        server.open()

        def stop() -> None:
            log.info("stopping: no new jobs, running jobs stop after their current chunks")
            notify("STOPPING=1")
            server.drain()
            engine.drain(loop.stop)

        with _on_signals(loop, stop):
            notify("READY=1")
            log.info("listening in %s, pid %d", endpoint.parent, os.getpid())
            on_ready()
            loop.run()


def _seconds(text: str, where: str) -> float:
    try:
        return parse_time(text)
    except HetschedError as error:
        raise ConfigError(f"{where}: {error}") from None


def _info() -> DaemonInfo:
    now = time.monotonic()
    return DaemonInfo(
        os.getpid(), __version__, str(paths.endpoint_path()), started=now, epoch=time.time() - now
    )


@contextlib.contextmanager
def _on_signals(loop: Loop, stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` on the loop on the first SIGTERM or SIGINT; ignore later ones."""
    is_stopping = False

    def handler(number: int, frame: object) -> None:
        nonlocal is_stopping
        if not is_stopping:
            is_stopping = True
            loop.call_soon_threadsafe(stop)

    previous_handlers = {
        number: signal.signal(number, handler) for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield
    finally:
        for number, previous in previous_handlers.items():
            signal.signal(number, previous)
