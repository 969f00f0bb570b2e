"""Executes the core's commands about jobs: on the engine and the journal."""

from __future__ import annotations

import functools
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from hetsched.daemon import commands
from hetsched.daemon.core import Core
from hetsched.daemon.records import result_refs
from hetsched.engine.queued_job import Readmission
from hetsched.engine.run.publish import OnPrepared
from hetsched.errors import Cancelled, ErrorRecord, HetschedError, InternalError, to_record
from hetsched.job import Done, Failed, JobSpec, JobState
from hetsched.store.arrays.publication import PreparedOutput
from hetsched.store.journal.records import Record
from hetsched.transport.arena import Arena
from hetsched.transport.loop import Loop

log = logging.getLogger(__name__)

READMITTED_PER_TURN = 20
"""Jobs of an earlier daemon that the engine gets in one turn of the loop. Arbitrary: 2 ms."""
READMISSION_SECONDS = 2.0
"""How long to wait until all of them are checked, before the first starts. Arbitrary."""


class QueueingEngine(Protocol):
    """The engine's methods for accepting jobs (`engine/engine.py`)."""

    def submit(
        self,
        spec: JobSpec,
        reply: Callable[[int | ErrorRecord], None],
        on_state: Callable[[JobState], None],
        *,
        number: int | None = None,
        on_prepared: OnPrepared | None = None,
        readmission: Readmission | None = None,
    ) -> None: ...

    def cancel(self, number: int) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def expect(self, number: int) -> None: ...

    def remember(self, number: int, state: Done | Failed) -> None: ...


class JobJournal(Protocol):
    """Where the jobs are written (`store/journal/journal.py`)."""

    def write(
        self,
        records: Sequence[Record],
        on_done: Callable[[BaseException | None], None] | None = None,
        urgent: bool = False,
    ) -> None: ...


class JobExecutor:
    """Calls the engine and the journal, and the core with their answers.

    Parameters
    ----------
    execute : callable
        Executes further commands of the core.
    """

    def __init__(
        self,
        core: Core,
        loop: Loop,
        arena: Arena,
        engine: QueueingEngine,
        journal: JobJournal,
        execute: Callable[[Iterable[commands.Command]], None],
    ) -> None:
        self._core, self._loop, self._arena = core, loop, arena
        self._engine, self._journal, self._execute = engine, journal, execute
        self._publications: dict[int, Callable[[BaseException | None], None]] = {}
        self._readmissions: deque[commands.SubmitJob] = deque()
        self._unanswered: set[int] = set()
        """Tickets of readmitted jobs that the engine is checking."""
        self._is_paused = False
        self._is_readmitting = False
        self._is_overdue = False

    def executors(self) -> dict[type, Callable[[Any], None]]:
        """Return the function for each type of command."""
        return {
            commands.SubmitJob: self._submit,
            commands.CancelJob: self._cancel,
            commands.ContinuePublishing: self._continue_publishing,
            commands.ExpectJob: lambda command: self._engine.expect(command.job),
            commands.RememberJob: lambda command: self._engine.remember(
                command.job, command.state
            ),
            commands.WriteJournal: self._write,
        }

    # ---- the engine

    def _submit(self, command: commands.SubmitJob) -> None:
        if command.readmission is None:
            self._pass_to_engine(command)
            return
        self._readmissions.append(command)
        if not self._is_paused:
            self._is_paused = True
            self._engine.pause()
            self._is_overdue = False
            self._loop.call_later(READMISSION_SECONDS, self._on_overdue)
        if not self._is_readmitting:
            self._is_readmitting = True
            self._loop.call_soon(self._readmit)

    def _readmit(self) -> None:
        """Pass some jobs of an earlier daemon to the engine; serve clients before the next."""
        for _ in range(min(READMITTED_PER_TURN, len(self._readmissions))):
            command = self._readmissions.popleft()
            self._unanswered.add(command.ticket)
            self._pass_to_engine(command)
        if self._readmissions:
            self._loop.call_soon(self._readmit)
            return
        self._is_readmitting = False
        if not self._unanswered or self._is_overdue:
            self._resume()

    def _on_overdue(self) -> None:
        """Wait no longer for checks of files, which may be on a dead mount."""
        self._is_overdue = True
        self._resume()

    def _resume(self) -> None:
        if self._is_paused and not self._readmissions:
            self._is_paused = False
            self._engine.resume()

    def _pass_to_engine(self, command: commands.SubmitJob) -> None:
        ticket = command.ticket
        try:
            self._engine.submit(
                command.spec,
                functools.partial(self._on_engine_reply, ticket),
                functools.partial(self._on_job_state, ticket),
                number=command.number,
                on_prepared=functools.partial(self._on_prepared, ticket, command.number),
                readmission=command.readmission,
            )
        except Exception as error:
            log.exception("unexpected error in the engine")
            self._note_answer(ticket)
            self._execute(self._core.on_engine_error(ticket, to_record(error), time.monotonic()))

    def _cancel(self, command: commands.CancelJob) -> None:
        for waiting in self._readmissions:
            if waiting.number == command.job:
                self._readmissions.remove(waiting)
                error = ErrorRecord(Cancelled.code, f"job {command.job} was cancelled")
                self._on_engine_reply(waiting.ticket, error)
                return
        self._engine.cancel(command.job)

    def _on_engine_reply(self, ticket: int, answer: int | ErrorRecord) -> None:
        self._note_answer(ticket)
        self._execute(self._core.on_engine_reply(ticket, answer, time.monotonic()))

    def _note_answer(self, ticket: int) -> None:
        if ticket in self._unanswered:
            self._unanswered.discard(ticket)
            if not self._unanswered and not self._readmissions:
                self._loop.call_soon(self._resume)

    def _on_job_state(self, ticket: int, state: JobState) -> None:
        sizes = {
            ref.segment: self._arena.segment(ref.segment).nbytes for ref in result_refs(state)
        }
        self._execute(self._core.on_job_state(ticket, state, sizes, time.monotonic()))

    # ---- output files

    def _on_prepared(
        self,
        ticket: int,
        number: int,
        outputs: tuple[PreparedOutput, ...],
        then: Callable[[BaseException | None], None],
    ) -> None:
        self._publications[number] = then
        self._execute(self._core.on_outputs_prepared(ticket, outputs))

    def _continue_publishing(self, command: commands.ContinuePublishing) -> None:
        then = self._publications.pop(command.job, None)
        if then is not None:
            then(command.error)

    # ---- the journal

    def _write(self, command: commands.WriteJournal) -> None:
        if command.then is None:
            self._journal.write(command.records, urgent=command.urgent)
        else:
            on_done = functools.partial(self._on_written, command.then)
            self._journal.write(command.records, on_done, command.urgent)

    def _on_written(self, what: commands.Written, error: BaseException | None) -> None:
        if error is not None and not isinstance(error, HetschedError):
            error = InternalError(f"{type(error).__name__}: {error}")
        self._execute(self._core.on_written(what, error, time.monotonic()))
