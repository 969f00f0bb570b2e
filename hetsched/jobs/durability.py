"""What is on disk before clients hear of it.

A durable job is confirmed, and queued, once its acceptance is on disk, and its end is reported
once that is on disk. A volatile job, with arrays of its client, is confirmed and its end reported
at once; it is written once, when it has ended.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from hetsched import errors
from hetsched.config import Config
from hetsched.job import Ended, Failed, JobState, Queued, Running, caller_outputs
from hetsched.jobs.followers import Followers
from hetsched.jobs.table import JobRecord, JobTable, KeptResults
from hetsched.machine_limits import machine_memory, resolve_size
from hetsched.store import journal_records
from hetsched.store.output_files import PreparedOutput
from hetsched.transport.arena import Arena
from hetsched.transport.loop import Loop
from hetsched.units import NUMBER_LIMIT

if TYPE_CHECKING:
    from hetsched.store.journal import Journal  # which `Local` never has

log = logging.getLogger(__name__)

FETCH_SECONDS = 5.0
"""How long results are kept for clients that follow the job, though others need the memory."""


class Durability:
    """The steps of a job that others hear of. On the loop's thread only."""

    def __init__(
        self, config: Config, loop: Loop, arena: Arena, journal: Journal | None = None
    ) -> None:
        if journal is None:
            numbers = journal_records.NumberBlocks(1, NUMBER_LIMIT - 1)
            self.followers = Followers(loop, interval=0.0)  # its caller hears every state
        else:
            numbers, self.followers = journal.numbers, Followers(loop)
        self.table = JobTable(config, numbers)
        results = resolve_size(config.arena.results, machine_memory(), "arena.results")
        self.results = KeptResults(arena, loop, min(results, arena.limit))
        self._arena, self._journal = arena, journal
        self.on_ended: Callable[[JobRecord, Ended], None] = lambda job, state: None
        self.on_refused: Callable[[int], None] = lambda code: None  # With the exit code
        # Takes complete output files that won't get their names
        self.discard: Callable[[tuple[PreparedOutput, ...]], object] = lambda outputs: None
        self.is_stopping = False  # Jobs that stop with this process continue in the next one

    def is_written(self, job: JobRecord) -> bool:
        """Whether the journal has a job before it ends."""
        return job.is_durable and self._journal is not None

    async def accept(self, job: JobRecord) -> None:
        """Confirm a new job, a durable one once it is on disk. Raises the journal's error."""
        if self.is_written(job):
            await self._write(_record(job))
        job.reported_at = time.monotonic()
        self.table.jobs[job.number] = job
        _tell_submitters(job, None)

    def refuse(self, job: JobRecord, error: errors.ErrorRecord) -> None:
        if job.checked is None:  # else its number may be on disk
            self.table.numbers.give_back(job.number)
        self.on_refused(error.code)
        self.table.forget(job)
        _tell_submitters(job, error)

    def change(self, job: JobRecord, state: JobState) -> None:
        is_start = isinstance(state, Running) and not isinstance(job.state, Running)
        if is_start and job.started_at is None:
            job.started_at = time.time()
        if is_start:
            self._count_start(job, 1)
        elif isinstance(state, Queued) and isinstance(job.state, Running):
            self._count_start(job, -1)  # this one has ended in order; there will be another one
        self.followers.change(job, state)

    def _count_start(self, job: JobRecord, change: int) -> None:
        """Count the starts of a durable job at once: one that ends each daemon must fail."""
        if self._journal is not None and job.is_durable:
            job.starts += change
            start = journal_records.JobUpdate(
                number=job.number,
                stage="running",
                starts=job.starts,
                failures=job.failures,
                started_at=time.time(),
            )
            self._journal.write((start,), urgent=True)

    def rewrite(self, job: JobRecord, then: journal_records.OnWritten) -> None:
        """Write a waiting job's priority and hold, then call back: with the error, if any."""
        change = journal_records.JobUpdate(
            number=job.number, priority=job.priority, held=job.is_held
        )
        self._write_anyway(change, then)

    async def publish(self, job: JobRecord, outputs: tuple[PreparedOutput, ...]) -> None:
        """Note the files that a durable job is about to name. Raises the journal's error."""
        job.prepared = outputs
        await self._write(
            journal_records.JobUpdate(number=job.number, stage="publishing", outputs=outputs)
        )

    async def _write(
        self, record: journal_records.JournaledJob | journal_records.JobUpdate
    ) -> None:
        """Wait until a record is on disk. Raises the journal's error."""
        assert self._journal is not None, "without a journal nothing is written"
        written = asyncio.get_running_loop().create_future()
        self._journal.write((record,), written.set_result)
        if (error := await written) is not None:
            raise error

    def _write_anyway(
        self, record: journal_records.JobUpdate, then: journal_records.OnWritten
    ) -> None:
        """Write a record, and call back; after an error the journal keeps it until it can."""
        journal = self._journal
        assert journal is not None, "without a journal nothing is written"

        def written(error: errors.HetschedError | None) -> None:
            if error is not None:
                journal.write((record,))
            then(error)

        journal.write((record,), written)

    def report_end(self, job: JobRecord, state: Ended) -> None:
        """Report the end of a job, of a durable one once it is on disk; take over its results."""
        if self._journal is None:
            self._end(job, state)
        elif not job.is_durable:
            self._end(job, state)
            self._journal.write((_record(job, state),))
        elif (
            self.is_stopping
            and isinstance(state, Failed)
            and state.error.code == errors.TryAgain.code
        ):
            # It continues in the next daemon, which finishes a publication.
            if isinstance(job.state, Running) and not job.prepared:
                self._count_start(job, -1)
        else:
            job.ending = state
            record = journal_records.JobUpdate(
                number=job.number, state=state, ended_at=time.time()
            )
            # Reported in any case: clients must not wait for a full disk.
            self._write_anyway(record, lambda error: self._end(job, state))

    def _end(self, job: JobRecord, state: Ended) -> None:
        """Report the end of a job, and keep its results for a while."""
        now = time.monotonic()
        job.state, job.ending, job.ended_at = state, None, time.time()
        job.checked = job.opened = None
        job.awaited_by = {follower.client for follower in job.followers}
        if self._journal is not None:  # else the caller takes the results in `followers.end`
            job.fetch_deadline = now + FETCH_SECONDS if job.awaited_by else 0.0
            job.keep_until = now + self.table.config.arena.results_for
        self.followers.end(job)
        if job.prepared and isinstance(state, Failed):
            self.discard(job.prepared)
        callers = caller_outputs(job.spec)
        for ref in state.results.values():
            if ref.segment in callers or job.expires <= now:  # the caller has its own reference
                self._arena.release(ref.segment)
            else:
                self.results.keep(job, ref.segment)
        for forgotten in self.table.add_ended(job):
            self.results.release(forgotten)
        self.on_ended(job, state)


def _tell_submitters(job: JobRecord, error: errors.ErrorRecord | None) -> None:
    submitters, job.submitters = job.submitters, []
    for submitter in submitters:
        try:
            submitter(job, error)
        except Exception:
            log.exception("job %d: unexpected error in a callback", job.number)


def _record(job: JobRecord, end: Ended | None = None) -> journal_records.JournaledJob:
    return journal_records.JournaledJob(
        number=job.number,
        spec=job.spec,
        client_id=job.key,
        submitted_at=job.submitted_at,
        durable=job.is_durable,
        priority=job.priority,
        held=job.is_held,
        failures=job.failures,
        started_at=job.started_at,
        ended_at=job.ended_at,
        state=end,
    )
