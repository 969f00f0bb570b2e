"""Executes the core's commands that change or read the engine's queue."""

from __future__ import annotations

import contextlib
import functools
import logging
import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from hetsched.daemon import commands
from hetsched.daemon.core import Core
from hetsched.errors import ErrorRecord, HetschedError, InputMissing, to_record
from hetsched.job import Queued
from hetsched.store.journal.records import HistoryFilter, JournaledJob, Stage
from hetsched.transport.messages import Hold, Prioritize, QueueChange, Release

log = logging.getLogger(__name__)

STAGES: tuple[Stage, ...] = ("queued", "running", "done", "failed", "cancelled")

CANCELLED_PER_TURN = 20
"""Jobs that are cancelled in one turn of the loop. Arbitrary: 2 ms."""

OnRows = Callable[[list[JournaledJob] | None, BaseException | None], None]
Query = Callable[[HistoryFilter, OnRows], None]


class QueueEngine(Protocol):
    """The engine's methods for the queue. Each change returns whether there was any.

    They raise UsageError for a job that runs, InputMissing for one that isn't in the queue.
    """

    def hold(self, number: int) -> bool: ...

    def release(self, number: int) -> bool: ...

    def prioritize(self, number: int, priority: int) -> bool: ...

    def position(self, number: int) -> Queued | None:
        """Return where a job waits; None if it doesn't."""

    def is_idle(self) -> bool:
        """Whether no job runs or could start."""


class QueueExecutor:
    """Calls the engine, and the core with its answers.

    Parameters
    ----------
    execute : callable
        Executes further commands of the core.
    call_soon : callable
        Calls a function after the present events of the loop.

    Attributes
    ----------
    stop : callable
        Begins to stop the daemon.
    query : callable or None
        `Journal.query`; None: there is no journal.
    """

    def __init__(
        self,
        core: Core,
        engine: QueueEngine,
        execute: Callable[[Iterable[commands.Command]], None],
        call_soon: Callable[[Callable[[], None]], object],
    ) -> None:
        self.stop: Callable[[], None] = lambda: None
        self.query: Query | None = None
        self._call_soon = call_soon
        self._core = core
        self._engine = engine
        self._execute = execute

    def executors(self) -> dict[type, Callable[[Any], None]]:
        """Return the function for each type of command."""
        return {
            commands.CancelJobs: self._cancel_jobs,
            commands.ChangeQueue: self._change,
            commands.AlterJob: self._alter,
            commands.ReadPositions: self._read_positions,
            commands.ReadHistory: self._read_history,
            commands.StopDaemon: self._stop,
        }

    def _cancel_jobs(self, command: commands.CancelJobs) -> None:
        """Cancel some jobs; serve clients before the next."""
        now = time.monotonic()
        for job in command.jobs[:CANCELLED_PER_TURN]:
            try:
                self._execute(self._core.on_cancel(job, now))
            except Exception:  # the client needs an answer even to our own bugs
                log.exception("job %d can't be cancelled", job)
        remaining = command.jobs[CANCELLED_PER_TURN:]
        if remaining:
            rest = commands.CancelJobs(remaining, command.reply)
            self._call_soon(functools.partial(self._cancel_jobs, rest))
        else:
            self._execute([command.reply])

    def _change(self, command: commands.ChangeQueue) -> None:
        answer: bool | ErrorRecord
        try:
            answer = self._apply(command.change)
        except Exception as error:  # the client needs an answer even to our own bugs
            if not isinstance(error, HetschedError):
                log.exception("unexpected error in the engine")
            answer = to_record(error)
        identity, number = command.identity, command.number
        self._execute(self._core.on_queue_changed(identity, number, command.change, answer))

    def _apply(self, change: QueueChange) -> bool:
        match change:
            case Hold(job):
                return self._engine.hold(job)
            case Release(job):
                return self._engine.release(job)
        return self._engine.prioritize(change.job, change.priority)

    def _alter(self, command: commands.AlterJob) -> None:
        changes: list[QueueChange] = [
            Prioritize(command.job, command.priority),
            Hold(command.job) if command.is_held else Release(command.job),
        ]
        for change in changes:
            with contextlib.suppress(InputMissing):  # it was too late to run, and has failed
                self._apply(change)

    def _read_positions(self, command: commands.ReadPositions) -> None:
        positions = {}
        for job in command.jobs:
            position = self._engine.position(job)
            if position is not None:
                positions[job] = position
        self._execute(
            self._core.on_positions(command.identity, command.number, command.jobs, positions)
        )

    def _read_history(self, command: commands.ReadHistory) -> None:
        request = command.request

        def on_rows(rows: list[JournaledJob] | None, error: BaseException | None) -> None:
            jobs = rows if error is None else to_record(error)
            self._execute(self._core.on_history(command.identity, command.number, request, jobs))

        if self.query is None:
            on_rows(None, None)
            return
        states = {"queued" if state == "held" else state for state in request.states}
        wanted = HistoryFilter(
            stages=tuple(stage for stage in STAGES if stage in states),
            since=request.since,
            before=request.before,
            limit=request.limit + 1,
        )
        self.query(wanted, on_rows)

    def _stop(self, command: commands.StopDaemon) -> None:
        if command.now:
            self._call_soon(self.stop)
        else:
            self._call_soon(self._stop_if_idle)

    def _stop_if_idle(self) -> None:
        if self._core.ledger.stops_when_idle and self._engine.is_idle():
            self.stop()
