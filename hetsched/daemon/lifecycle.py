"""Runs the daemon: folder, lock, sockets, signals, orderly shutdown."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import logging
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import zmq

from hetsched import paths
from hetsched.config import Config
from hetsched.daemon.requests import Requests
from hetsched.daemon.router import Router
from hetsched.daemon.service import ExitGuard, ServiceManager, StopLadder
from hetsched.daemon.sessions import Sessions
from hetsched.engine.engine import CLOSE_SECONDS, Engine
from hetsched.errors import ConfigError, HetschedError
from hetsched.jobs.durability import Durability
from hetsched.jobs.followers import Followers
from hetsched.jobs.recovery import find_saved_work, finish_publications, recover
from hetsched.jobs.table import JobTable, Limits, share_of
from hetsched.machine_limits import machine_memory, raise_descriptor_limit, resolve_size
from hetsched.store.journal import Journal, history_bounds
from hetsched.transport.arena import Arena
from hetsched.transport.loop import Loop
from hetsched.transport.messages import MAX_FRAME
from hetsched.transport.sockets import acquire_lock, validate_socket_path
from hetsched.units import parse_size, parse_time

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
ENGINE_SECONDS = 5.0
"""Time for the end of the engine, beyond the deadlines of its processes and threads."""


def serve(config: Config, on_ready: Callable[[], None] = lambda: None, source: str = "") -> None:
    """Run the daemon until SIGTERM or SIGINT. Call on the main thread.

    `on_ready` is called once, when clients can connect; `source` is where the configuration comes
    from, for the log. Raises ConfigError if the runtime path is too long or unusable, another
    daemon runs, or config.arena is invalid.
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
    """Return the limits of the arena and on jobs, for a machine with `memory` bytes."""
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
    journal.write((), lambda error: on_flushed())


def _run(config: Config, manager: ServiceManager, on_ready: Callable[[], None]) -> None:
    _tune_memory()
    total, job_limits = limits(config, machine_memory())
    sockets = manager.listening_sockets(str(paths.endpoint_path()), str(paths.session_path()))
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
        sessions = Sessions(paths.endpoint_path(), life, arena, loop)
        requests = Requests(sessions, life, engine, arena, loop, journal)
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        router = Router(requests, loop, context, job_limits.unread)
        stack.callback(sessions.end_all)
        # Waits until the last replies are sent.
        stack.callback(guard.guarded("ZeroMQ", context.term))
        stack.callback(sessions.close)
        stack.callback(guard.guarded("the control socket", router.close))
        engine.start()
        published = finish_publications(contents.open_jobs, PUBLISH_SECONDS)
        saved = find_saved_work(contents.open_jobs, contents.token, PUBLISH_SECONDS)
        engine.recover(*recover(life, contents, published, saved))
        router.bind(paths.endpoint_path(), sockets.control)
        sessions.open(paths.session_path(), sockets.session)

        ladder = _stop_ladder(config, loop, manager, life, engine, journal)
        ladder.listen()
        requests.stop = ladder.start
        manager.send_signs_of_life(loop)
        gc.freeze()  # modules and restored jobs live long: collecting them would block the loop
        folder = paths.endpoint_path().parent
        manager.notify("READY=1")
        manager.notify(f"STATUS=listening in {folder}")
        log.info("listening in %s, pid %d", folder, os.getpid())
        on_ready()
        loop.run()


def _tune_memory() -> None:
    """Limit glibc's arenas, before threads start, and the garbage collector's work."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_ARENA_MAX, MAX_ARENAS)
    gc.set_threshold(*GC_THRESHOLDS)


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

    return StopLadder(loop, manager, drain, engine.kill, config.deadlines.stop)


def engine_seconds(config: Config) -> float:
    """Return the time for the engine: processes (asked, then killed) and two threads."""
    return 2 * config.deadlines.device_stop + 2 * CLOSE_SECONDS + ENGINE_SECONDS


def _open_journal(config: Config, loop: Loop) -> Journal:
    """Open the journal; those who wait for a hung disk are answered after a deadline."""
    deadline = config.deadlines.disk
    journal = Journal(
        paths.journal_path(),
        loop.call_soon_threadsafe,
        history_bounds(config.journal),
        deadline=deadline,
    )

    def expire() -> None:
        loop.call_later(EXPIRY_FRACTION * deadline, expire)
        journal.expire(time.monotonic())

    loop.call_later(EXPIRY_FRACTION * deadline, expire)
    return journal


def _seconds(text: str, where: str) -> float:
    try:
        return parse_time(text)
    except HetschedError as error:
        raise ConfigError(f"{where}: {error}") from None
