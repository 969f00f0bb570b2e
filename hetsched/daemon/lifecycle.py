"""Runs the daemon: folder, lock, sockets, signals, orderly shutdown."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import zmq
from prometheus_client.metrics_core import Metric

from hetsched import __version__, paths
from hetsched.config import Config
from hetsched.daemon.heap import limit_arenas, settle_objects
from hetsched.daemon.metrics import journal_metrics, machine_gauges, process_metrics
from hetsched.daemon.requests import Requests
from hetsched.daemon.server import Server
from hetsched.daemon.sessions import DaemonInfo, Sessions
from hetsched.daemon.stopping import ExitGuard, StopLadder
from hetsched.daemon.systemd import ServiceManager
from hetsched.engine.deadlines import Deadlines
from hetsched.engine.engine import CLOSE_SECONDS, Engine
from hetsched.errors import ConfigError, HetschedError
from hetsched.jobs.durability import Durability
from hetsched.jobs.followers import Followers
from hetsched.jobs.recovery import find_checkpoints, finish_publications, recover
from hetsched.jobs.table import JobTable, Limits, share_of
from hetsched.machine_limits import machine_memory, raise_descriptor_limit, resolve_size
from hetsched.store.journal.journal import Journal, history_bounds
from hetsched.transport.arena import Arena
from hetsched.transport.loop import Loop
from hetsched.transport.messages import MAX_FRAME
from hetsched.transport.sockets import acquire_lock, validate_socket_path
from hetsched.units import parse_size, parse_time

log = logging.getLogger(__name__)

SWITCH_SECONDS = 0.0005
"""Longest turn of a thread at the interpreter while others wait: the planner's computes beside the
loop."""
EXPIRY_SECONDS = 1.0
"""Between two looks at whether the journal's disk responds."""
JOURNAL_SECONDS = 8.0
"""Time for the last records of the journal at the end. Arbitrary."""
PUBLISH_SECONDS = 10.0
"""Time at the start for output files whose publication was interrupted. Arbitrary."""
ENGINE_SECONDS = 5.0
"""Time for the end of the engine, beyond the deadlines of its processes and threads. Arbitrary."""


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
    manager = ServiceManager.from_environment(os.environ)
    lock_fd = acquire_lock(folder / "lock")
    try:
        log.info("configuration: %s", source or "passed in")
        raise_descriptor_limit()
        _run(config, manager, on_ready)
    finally:
        os.close(lock_fd)
    log.info("stopped")


def check_private(folder: Path) -> None:
    """Raise ConfigError if other users can enter `folder`: all clients are served."""
    status = folder.stat()
    if status.st_mode & 0o077:
        raise ConfigError(
            f"runtime folder {folder}: open to others (mode {status.st_mode & 0o777:o});"
            f" chmod 700 {folder}"
        )


def limits(config: Config, memory: int) -> tuple[int, Limits]:
    """Return the arena's limit in bytes, and the limits on jobs, for a machine's memory in bytes.

    Raises
    ------
    ConfigError
    """
    arena = config.arena
    total = resolve_size(arena.limit, memory, "arena.limit")
    results = resolve_size(arena.results, memory, "arena.results")
    return total, Limits(
        results=min(results, total),
        results_for=_seconds(arena.results_for, "arena.results_for"),
        warm_for=_seconds(arena.warm_for, "arena.warm_for"),
        ended_jobs=parse_size(config.limits.ended_jobs),
        unread=max(parse_size(config.limits.unread), MAX_FRAME),
        jobs_per_client=config.queue.per_client or share_of(config.queue.limit),
        parameters=parse_size(config.queue.parameters),
        followed_jobs=config.queue.followers,
    )


def _flush(journal: Journal, on_flushed: Callable[[], None]) -> None:
    """Wait for all writes: clients hear of an end once it is on disk."""
    journal.write((), lambda error: on_flushed(), urgent=True)


def _run(config: Config, manager: ServiceManager, on_ready: Callable[[], None]) -> None:
    limit_arenas()
    total, job_limits = limits(config, machine_memory())
    endpoint, session = paths.endpoint_path(), paths.session_path()
    sockets = manager.listening_sockets(str(endpoint), str(session))
    with contextlib.ExitStack() as stack:
        sys.setswitchinterval(SWITCH_SECONDS)
        loop = Loop()
        stack.callback(loop.close)
        first_id = time.time_ns() >> 1  # unlike those of earlier daemons
        arena = Arena(total, first_id)
        stack.callback(arena.close)
        journal = _open_journal(config, loop)
        contents = journal.load()
        stack.callback(journal.close, JOURNAL_SECONDS)
        table, followers = JobTable(job_limits, journal.numbers), Followers(loop)
        life = Durability(table, followers, arena, loop, journal)
        engine = Engine(
            config,
            loop,
            arena,
            life,
            models_path=paths.models_path(),
            journal_token=contents.token,
        )
        guard = ExitGuard(engine.kill)
        stack.callback(guard.guarded("the engine", engine.close, engine_seconds(config)))
        sessions = Sessions(_info(), life, arena, loop)
        requests = Requests(sessions, life, engine, arena, loop, journal)
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        server = Server(requests, loop, arena, context, endpoint, session, job_limits.unread)
        stack.callback(server.close_sessions)
        # Waits until the last replies are sent.
        stack.callback(guard.guarded("ZeroMQ", context.term))
        stack.callback(guard.guarded("the server", server.close))
        engine.start()
        published = finish_publications(contents.open_jobs, PUBLISH_SECONDS)
        checkpoints = find_checkpoints(contents.open_jobs, PUBLISH_SECONDS)
        engine.recover(*recover(life, contents, published, checkpoints))
        server.open(sockets)

        ladder = _stop_ladder(config, loop, manager, life, engine, journal)
        ladder.listen()
        requests.stop = ladder.start
        requests.metrics.states.append(
            lambda: _metrics(
                engine, arena, server, loop, journal, time.monotonic() - requests.daemon.started
            )
        )
        manager.send_signs_of_life(loop)
        settle_objects()
        manager.notify("READY=1")
        manager.notify(f"STATUS=listening in {endpoint.parent}")
        log.info("listening in %s, pid %d", endpoint.parent, os.getpid())
        on_ready()
        loop.run()


def _stop_ladder(
    config: Config,
    loop: Loop,
    manager: ServiceManager,
    life: Durability,
    engine: Engine,
    journal: Journal,
) -> StopLadder:
    def drain(on_drained: Callable[[], None]) -> None:
        life.is_draining = True

        def flush() -> None:
            loop.call_soon(_flush, journal, on_drained)

        engine.drain(flush)

    return StopLadder(loop, manager, drain, engine.kill, parse_time(config.deadlines.stop))


def _metrics(
    engine: Engine, arena: Arena, server: Server, loop: Loop, journal: Journal, uptime: float
) -> list[Metric]:
    return [
        *machine_gauges(*engine.devices(), arena, loop.longest_callback),
        *server.metrics(),
        *process_metrics(uptime),
        *journal_metrics(journal),
    ]


def engine_seconds(config: Config) -> float:
    """Return the time for the engine: processes (asked, then killed) and two threads."""
    return 2 * Deadlines.of(config.deadlines).exit + 2 * CLOSE_SECONDS + ENGINE_SECONDS


def _open_journal(config: Config, loop: Loop) -> Journal:
    """Open the journal; those who wait for a hung disk are answered after a deadline."""
    journal = Journal.open(
        paths.journal_path(),
        loop.call_soon_threadsafe,
        history_bounds(config.journal),
        deadline=parse_time(config.deadlines.disk),
    )

    def expire() -> None:
        loop.call_later(EXPIRY_SECONDS, expire)
        journal.expire(time.monotonic())

    loop.call_later(EXPIRY_SECONDS, expire)
    return journal


def _seconds(text: str, where: str) -> float:
    try:
        return parse_time(text)
    except HetschedError as error:
        raise ConfigError(f"{where}: {error}") from None


def _info() -> DaemonInfo:
    endpoint = str(paths.endpoint_path())
    return DaemonInfo(os.getpid(), __version__, endpoint, time.monotonic(), os.getuid())
