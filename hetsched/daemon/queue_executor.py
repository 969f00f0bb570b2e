"""Executes the core's commands that change or read the engine's queue."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from hetsched.daemon import commands
from hetsched.daemon.core import Core
from hetsched.errors import ErrorRecord, HetschedError, to_record
from hetsched.job import Queued
from hetsched.transport.messages import Hold, QueueChange, Release

log = logging.getLogger(__name__)


class QueueEngine(Protocol):
    """The engine's methods for the queue. Each change returns whether there was any.

    They raise UsageError for a job that runs, InputMissing for one that isn't in the queue.
    """

    def hold(self, number: int) -> bool: ...

    def release(self, number: int) -> bool: ...

    def prioritize(self, number: int, priority: int) -> bool: ...

    def position(self, number: int) -> Queued | None:
        """Return where a job waits; None if it doesn't."""


class QueueExecutor:
    """Calls the engine, and the core with its answers.

    Parameters
    ----------
    execute : callable
        Executes further commands of the core.
    """

    def __init__(
        self,
        core: Core,
        engine: QueueEngine,
        execute: Callable[[Iterable[commands.Command]], None],
    ) -> None:
        self._core = core
        self._engine = engine
        self._execute = execute

    def executors(self) -> dict[type, Callable[[Any], None]]:
        """Return the function for each type of command."""
        return {
            commands.ChangeQueue: self._change,
            commands.ReadPositions: self._read_positions,
        }

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

    def _read_positions(self, command: commands.ReadPositions) -> None:
        positions = {}
        for job in command.jobs:
            position = self._engine.position(job)
            if position is not None:
                positions[job] = position
        self._execute(
            self._core.on_positions(command.identity, command.number, command.jobs, positions)
        )
