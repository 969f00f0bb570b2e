"""What is on disk before clients hear of it, and what becomes of a job's results.

A durable job is confirmed once its acceptance is on disk, and its end is reported once that is on
disk; it may start earlier, but names no file before it is confirmed. A volatile job, with arrays
of its client, is confirmed and its end reported at once; it is written once, when it has ended.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from hetsched.errors import ErrorRecord, HetschedError, TryAgain, to_record
from hetsched.job import Done, Failed, JobState, Queued, Running
from hetsched.jobs.followers import Followers
from hetsched.jobs.job import Job, OnContinue, result_refs, unstarted
from hetsched.jobs.table import JobTable
from hetsched.store.journal_records import (
    JobUpdate,
    JournaledJob,
)
from hetsched.store.output_files import PreparedOutput
from hetsched.transport.arena import Arena
from hetsched.transport.loop import Loop

if TYPE_CHECKING:
    from hetsched.store.journal import Journal  # which `Local` never has

log = logging.getLogger(__name__)


class Durability:
    """The steps of a job that others hear of. On the loop's thread only.

    Without a journal nothing outlives this process.
    """

    def __init__(
        self,
        table: JobTable,
        followers: Followers,
        arena: Arena,
        loop: Loop,
        journal: Journal | None = None,
    ) -> None:
        self.table, self.followers = table, followers
        self._arena, self._loop, self._journal = arena, loop, journal
        # The engine's: stops a job whose acceptance can't be written
        self.cancel: Callable[[Job], None] = lambda job: None
        self.on_ended: Callable[[Job], None] = lambda job: None
        self.on_refused: Callable[[int], None] = lambda code: None  # With the exit code
        self.on_expired: Callable[[], None] = lambda: None  # Results of some jobs
        self.is_draining = False  # Jobs that stop with this process continue in the next one
        self._is_expiry_set = False

    def is_written(self, job: Job) -> bool:
        """Whether the journal has a job before it ends."""
        return job.is_durable and self._journal is not None

    # ---- acceptance

    def new_number(self) -> int:
        """Return a number that no job has had, nor will have after a crash. Raises TryAgain."""
        numbers = self.table.numbers
        if numbers.is_used_up:
            raise TryAgain("the journal's disk is slow: there are no new job numbers; try again")
        return numbers.take()

    def accept(self, job: Job) -> None:
        """Note that the engine has queued a new job."""
        job.reported_at = time.monotonic()
        self.table.accept(job)
        if not self.is_written(job):
            self._confirm(job)
            return
        self._write(_record(job), functools.partial(self._on_acceptance_written, job))

    def refuse(self, job: Job, error: ErrorRecord) -> None:
        """Note that the engine has refused a new job."""
        self.on_refused(error.code)
        self.table.numbers.give_back(job.number)
        self.table.forget(job)
        self._answer(job, error)

    def _on_acceptance_written(self, job: Job, error: HetschedError | None) -> None:
        prepared, job.prepared = job.prepared, None
        if error is None:
            self._confirm(job)
            if prepared is not None:
                self.publish(job, *prepared)
            return
        job.is_refused = True
        self.on_refused(error.code)
        self.table.forget(job)
        self._answer(job, to_record(error))
        if prepared is not None:
            prepared[1](error)
        if job.ending is None:
            self.cancel(job)

    def _confirm(self, job: Job) -> None:
        job.is_confirmed = True
        self._answer(job, None)

    def _answer(self, job: Job, error: ErrorRecord | None) -> None:
        confirmations, job.confirmations = job.confirmations, []
        for confirm in confirmations:
            try:
                confirm(error)
            except Exception:
                log.exception("job %d: unexpected error in a callback", job.number)

    # ---- states

    def change(self, job: Job, state: JobState) -> None:
        """Note a new state of a job that hasn't ended."""
        if job.is_refused:
            return
        if isinstance(state, Running) and job.started_at is None:
            job.started_at = time.time()
        self._count_start(job, state)
        self.followers.change(job, state)

    def _count_start(self, job: Job, state: JobState) -> None:
        """Count the starts of a durable job at once: one that ends each daemon must fail."""
        if not self.is_written(job):
            return
        if isinstance(state, Running) and not isinstance(job.state, Running):
            job.starts += 1
        elif isinstance(state, Queued) and isinstance(job.state, Running):
            job.starts -= 1  # this one has ended in order; there will be another one
        else:
            return
        self._write(_start(job), urgent=True)

    def rewrite(self, job: Job, then: Callable[[HetschedError | None], None]) -> None:
        """Write a waiting job's priority and hold, then call back: with the error, if any."""
        record = JobUpdate(number=job.number, priority=job.priority, held=job.is_held)

        def written(error: HetschedError | None) -> None:
            if error is not None:
                self._write(record)  # the journal keeps it until it can write it
            then(error)

        self._write(record, written)

    def publish(self, job: Job, outputs: tuple[PreparedOutput, ...], then: OnContinue) -> None:
        """Note the complete output files that a job is about to name; then let it continue."""
        if not self.is_written(job):
            then(None)
        elif job.is_refused:
            then(TryAgain(f"job {job.number} was refused: the journal couldn't be written"))
        elif not job.is_confirmed:
            job.prepared = outputs, then
        else:
            record = JobUpdate(number=job.number, stage="publishing", outputs=outputs)
            self._write(record, then)

    # ---- the end

    def fail(self, job: Job, error: ErrorRecord) -> None:
        """End a job that isn't in the engine."""
        self.end(job, unstarted(job, error))

    def end(self, job: Job, state: Done | Failed) -> None:
        """Note the end of a job. The caller's reference to each result segment is taken over."""
        if job.is_refused:
            self._release_all(state)
        elif self._continues_later(job, state):
            if isinstance(job.state, Running):
                job.starts -= 1
                self._write(_start(job))
        elif self.is_written(job):
            job.ending = state
            record = JobUpdate(number=job.number, state=state, ended_at=time.time())
            self._write(record, functools.partial(self._on_end_written, job, state, record))
        else:
            self._conclude(job, state)
            if self._journal is not None:
                self._write(_record(job, state))

    def _continues_later(self, job: Job, state: Done | Failed) -> bool:
        """Return whether a job only stopped because the daemon stops: its client waits."""
        return (
            self.is_draining
            and self.is_written(job)
            and isinstance(state, Failed)
            and state.error.code == TryAgain.code
        )

    def _on_end_written(
        self, job: Job, state: Done | Failed, record: JobUpdate, error: HetschedError | None
    ) -> None:
        job.ending = None
        if job.is_refused:
            self._release_all(state)
            return
        self._conclude(job, state)
        if error is not None:  # clients must not wait for a full disk; the journal tries again
            self._write(record)

    def _conclude(self, job: Job, state: Done | Failed) -> None:
        """Report the end of a job, and keep its results for a while."""
        now = time.monotonic()
        job.state, job.ended_at = state, time.time()
        job.checked = job.bound = None
        job.awaited_by = {follower.client for follower in job.followers}
        job.fetch_deadline = now + self.table.limits.fetch_for if job.awaited_by else 0.0
        job.keep_until = now + self.table.limits.results_for
        callers = job.caller_outputs()
        for ref in result_refs(state):
            if ref.segment in callers:
                self._arena.release(ref.segment)  # the caller holds its own reference
            else:
                nbytes = self._arena.segment(ref.segment).nbytes
                self.table.results.add(job, ref.segment, nbytes)
        self.followers.report(job)
        self.followers.end(job)
        for forgotten in self.table.end(job):
            self.release_results(forgotten)
        self.on_ended(job)
        if job.expires <= now:
            self.release_results(job)
        self._make_room(self.table.results.nbytes - self.table.limits.results)
        self._watch_expiry()

    # ---- results

    def release_results(self, job: Job) -> None:
        """Stop keeping a job's results."""
        for segment in list(job.kept_results):
            self.release_result(job, segment)

    def release_result(self, job: Job, segment: int) -> None:
        if self.table.results.remove(job, segment):
            self._arena.release(segment)

    def spare_result(self, job: Job, segment: int) -> None:
        """Let others have the memory of a result, which can be fetched until they use it."""
        uses = self._arena.segment(segment).uses
        self.release_result(job, segment)
        self.table.results.spare[segment] = job, uses

    def keeps_result(self, segment: int) -> bool:
        """Return whether a result is kept; one whose memory is still untouched, again."""
        results = self.table.results
        if results.job_keeping(segment) is not None:
            return True
        job, uses = results.spare.pop(segment, (None, 0))
        if job is None or job is not self.table.jobs.get(job.number):
            return False
        if time.monotonic() >= job.expires or not self._arena.take_back(segment, uses):
            return False
        results.add(job, segment, self._arena.segment(segment).nbytes)
        self._watch_expiry()
        return True

    def evictable(self) -> Iterator[Job]:
        """Yield the jobs whose results may be released before they expire, the oldest first."""
        now = time.monotonic()
        return (job for job in self.table.results if now >= job.fetch_deadline)

    def _make_room(self, excess: int) -> None:
        """Release the oldest results until `excess` bytes are free."""
        if excess <= 0:
            return
        for job in self.evictable():
            if excess <= 0:
                return
            excess -= sum(job.kept_results.values())
            self.release_results(job)

    def _watch_expiry(self) -> None:
        due = self.table.results.next_expiry()
        if due is None or self._is_expiry_set:
            return
        self._is_expiry_set = True
        self._loop.call_later(max(0.0, due - time.monotonic()), self._expire)

    def _expire(self) -> None:
        self._is_expiry_set = False
        for job in self.table.results.expired(time.monotonic()):
            self.release_results(job)
        self.on_expired()
        self._watch_expiry()

    def _release_all(self, state: Done | Failed) -> None:
        for ref in result_refs(state):
            self._arena.release(ref.segment)

    # ---- the journal

    def _write(
        self,
        record: JournaledJob | JobUpdate,
        then: Callable[[HetschedError | None], None] | None = None,
        urgent: bool = False,
    ) -> None:
        """Write a record. Without `then` the journal keeps it until it can write it."""
        assert self._journal is not None
        self._journal.write((record,), then, urgent)


def _record(job: Job, end: Done | Failed | None = None) -> JournaledJob:
    return JournaledJob(
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


def _start(job: Job) -> JobUpdate:
    return JobUpdate(
        number=job.number,
        stage="running",
        starts=job.starts,
        failures=job.failures,
        started_at=time.time(),
    )
