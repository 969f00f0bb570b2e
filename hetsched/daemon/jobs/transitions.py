"""The states of a job in the daemon, and what is written to the journal before clients see them.

A durable job is confirmed once its acceptance is on disk, and its end is reported once that is on
disk; it may start earlier, but names no file before it is confirmed. A volatile job is confirmed
and its end reported at once; it is written once, when it has ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hetsched.daemon.commands import (
    AcceptanceWritten,
    CancelJob,
    Command,
    ContinuePublishing,
    EndWritten,
    PublishingWritten,
    ReleaseSegment,
    RememberJob,
    StopDaemon,
    WriteJournal,
    Written,
)
from hetsched.daemon.jobs.queue_changes import cancelled, catch_up
from hetsched.daemon.jobs.submission import confirm
from hetsched.daemon.ledger import Ledger
from hetsched.daemon.records import JobEntry, PendingEnd, caller_outputs, result_refs
from hetsched.errors import ErrorRecord, HetschedError, TryAgain, to_record
from hetsched.job import Done, Failed, JobReport, JobState, Queued, Running
from hetsched.store.arrays.publication import PreparedOutput
from hetsched.store.journal.records import (
    JobAccepted,
    JobEnded,
    JobPublishing,
    JobStarted,
    WholeJob,
)
from hetsched.transport.messages import Refused

PROGRESS_INTERVAL = 0.25
"""Seconds between two progress messages of one job. Each takes half a millisecond from cores that
compute: in the daemon, and in each client that follows the job. Arbitrary."""
FETCH_SECONDS = 5.0
"""Seconds that a result is kept at least, for a client that follows its job. Arbitrary."""

IMMEDIATE = ("", "resources")
"""Reasons of a job that is first in line: mostly it starts at once, which followers see then."""


class JobTransitions:
    """What happens to a job after its submission. `now` is monotonic seconds."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    # acceptance

    def on_engine_reply(self, ticket: int, answer: int | ErrorRecord, now: float) -> list[Command]:
        """Handle the engine's answer to SubmitJob: the job's number, or why it was refused."""
        entry = self._ledger.tickets[ticket]
        if isinstance(answer, ErrorRecord):
            return self._on_engine_refusal(entry, answer, now)
        catching_up = catch_up(entry)
        if entry.is_readmitted:
            return catching_up
        entry.is_accepted, entry.reported_at = True, now
        self._ledger.jobs[entry.job] = entry
        if not entry.is_durable:
            return self._confirm(entry)
        return [WriteJournal((_acceptance(entry),), AcceptanceWritten(ticket), urgent=True)]

    def on_engine_error(self, ticket: int, error: ErrorRecord, now: float) -> list[Command]:
        """Handle an exception from the engine's submit, unless the job was already accepted."""
        entry = self._ledger.tickets.get(ticket)
        if entry is None or (entry.is_accepted and not entry.is_readmitted):
            return []
        return self._on_engine_refusal(entry, error, now)

    def on_written(self, what: Written, error: HetschedError | None, now: float) -> list[Command]:
        """Handle the journal's answer to WriteJournal; `error`: nothing was written."""
        match what:
            case AcceptanceWritten(ticket):
                return self._on_acceptance_written(self._ledger.tickets[ticket], error)
            case PublishingWritten(ticket):
                return [ContinuePublishing(self._ledger.tickets[ticket].job, error)]
            case EndWritten(ticket):
                return self._on_end_written(self._ledger.tickets.get(ticket), error, now)
        return []

    def _on_engine_refusal(self, entry: JobEntry, error: ErrorRecord, now: float) -> list[Command]:
        if entry.is_readmitted:
            return self.fail(entry, cancelled(entry) if entry.is_cancelled else error, now)
        self._ledger.metrics.on_refused(error.code)
        self._ledger.numbers.give_back(entry.job)
        self._ledger.discard(entry)
        return _refusals(entry, error)

    def _on_acceptance_written(
        self, entry: JobEntry, error: HetschedError | None
    ) -> list[Command]:
        prepared, entry.prepared = entry.prepared, None
        if error is None:
            commands = self._confirm(entry)
            if prepared is not None:
                commands += self._write_publishing(entry, prepared)
            return commands
        entry.is_refused = True
        self._ledger.metrics.on_refused(error.code)
        self._ledger.forget(entry)
        commands = _refusals(entry, to_record(error))
        if prepared is not None:
            commands.append(ContinuePublishing(entry.job, error))
        if entry.end is None:
            commands.append(CancelJob(entry.job))
        return commands

    def _confirm(self, entry: JobEntry) -> list[Command]:
        entry.is_confirmed = True
        requests, entry.confirmations = entry.confirmations, []
        return [
            command
            for requester, follow in requests
            for command in confirm(self._ledger, entry, requester, follow)
        ]

    # states

    def on_state(
        self, ticket: int, state: JobState, segment_sizes: Mapping[int, int], now: float
    ) -> list[Command]:
        """Handle a job's new state.

        `segment_sizes`: bytes of its result segments; the core takes over a reference to each.
        """
        entry = self._ledger.tickets[ticket]
        if isinstance(state, Done | Failed):
            return self.end(entry, PendingEnd(state, segment_sizes), now)
        if entry.is_refused:
            return []
        previous, entry.state = entry.state, state
        if isinstance(state, Running) and entry.started_at is None:
            entry.started_at = self._ledger.wall_clock(now)
        commands = self._count_attempt(entry, previous, state, now)
        if not entry.is_confirmed:
            return commands
        is_due = now - entry.reported_at >= PROGRESS_INTERVAL
        if is_due or is_urgent(previous, state):
            return [*self._ledger.report(entry, now), *commands]
        self._ledger.held_back[ticket] = entry
        return commands

    def on_outputs_prepared(
        self, ticket: int, outputs: tuple[PreparedOutput, ...]
    ) -> list[Command]:
        """Handle complete output files that the engine wants to name."""
        entry = self._ledger.tickets[ticket]
        if entry.is_refused:
            error = TryAgain(f"job {entry.job} was refused: the journal couldn't be written")
            return [ContinuePublishing(entry.job, error)]
        if not entry.is_confirmed:
            entry.prepared = outputs
            return []
        return self._write_publishing(entry, outputs)

    def _write_publishing(
        self, entry: JobEntry, outputs: tuple[PreparedOutput, ...]
    ) -> list[Command]:
        record = JobPublishing(entry.job, outputs)
        return [WriteJournal((record,), PublishingWritten(entry.ticket), urgent=True)]

    def _count_attempt(
        self, entry: JobEntry, previous: JobState | None, state: JobState, now: float
    ) -> list[Command]:
        """Count the starts of a job that may start again: one that ends each daemon must fail.

        A job that an earlier daemon has started is written at once, others with the next commit.
        """
        if not entry.is_durable:
            return []
        if isinstance(state, Running) and not isinstance(previous, Running):
            entry.attempts += 1
        elif isinstance(state, Queued) and isinstance(previous, Running):
            entry.attempts -= 1  # this attempt has ended in order; there will be another one
            entry.failures = state.failures
        else:
            return []
        record = self._started(entry, entry.attempts, now)
        return [WriteJournal((record,), urgent=entry.attempts > 1)]

    # the end

    def fail(self, entry: JobEntry, error: ErrorRecord, now: float) -> list[Command]:
        """End a job that isn't in the engine."""
        report = JobReport(
            job=entry.job, state="failed", workload=entry.spec.workload, load=0, error=error,
            params=entry.spec.params,
        )  # fmt: skip
        state = Failed(entry.job, report, error)
        return [*self.end(entry, PendingEnd(state, {}), now), RememberJob(entry.job, state)]

    def end(self, entry: JobEntry, end: PendingEnd, now: float) -> list[Command]:
        if entry.is_refused:
            self._ledger.discard(entry)
            return [ReleaseSegment(ref.segment) for ref in result_refs(end.state)]
        if self._is_stopped(entry, end.state):
            return self._on_stopped(entry, now)
        record = JobEnded(entry.job, end.state, self._ledger.wall_clock(now))
        if not entry.is_durable:
            whole = WholeJob(_acceptance(entry), self._only_start(entry), record)
            return [*self.conclude(entry, end, now), WriteJournal((whole,))]
        entry.end = end
        return [WriteJournal((record,), EndWritten(entry.ticket), urgent=True)]

    def _is_stopped(self, entry: JobEntry, state: Done | Failed) -> bool:
        """Return whether a job only stopped because the daemon stops, and continues later."""
        return (
            self._ledger.is_draining
            and isinstance(state, Failed)
            and state.error.code == TryAgain.code
            and self._ledger.survives(entry)
        )

    def _on_stopped(self, entry: JobEntry, now: float) -> list[Command]:
        """Leave a job in the journal for the next daemon. Its client waits for that."""
        if not isinstance(entry.state, Running):
            return []
        return [WriteJournal((self._started(entry, entry.attempts - 1, now),))]

    def _started(self, entry: JobEntry, attempts: int, now: float) -> JobStarted:
        return JobStarted(entry.job, attempts, self._ledger.wall_clock(now), entry.failures)

    @staticmethod
    def _only_start(entry: JobEntry) -> JobStarted | None:
        if entry.started_at is None:
            return None
        return JobStarted(entry.job, 1, entry.started_at, entry.failures)

    def _on_end_written(
        self, entry: JobEntry | None, error: HetschedError | None, now: float
    ) -> list[Command]:
        if entry is None or entry.end is None:
            return []
        end, entry.end = entry.end, None
        if entry.is_refused:
            self._ledger.discard(entry)
            return [ReleaseSegment(ref.segment) for ref in result_refs(end.state)]
        commands = self.conclude(entry, end, now)
        if error is not None:  # clients must not wait for a full disk; the journal tries again
            record = JobEnded(entry.job, end.state, self._ledger.wall_clock(now))
            commands.append(WriteJournal((record,)))
        return commands

    def conclude(self, entry: JobEntry, end: PendingEnd, now: float) -> list[Command]:
        """Report the end of a job, and keep its results for a while."""
        entry.state = end.state
        self._ledger.count_end(entry, now)
        caller_segments = caller_outputs(entry.spec)
        entry.awaiting_sessions = {follower.session for follower in entry.followers}
        entry.fetch_deadline = now + FETCH_SECONDS if entry.awaiting_sessions else 0.0
        entry.keep_until = now + self._ledger.limits.results_for
        commands: list[Command] = []
        for ref in result_refs(entry.state):
            size = end.segment_sizes[ref.segment]
            if ref.segment in caller_segments:
                commands.append(ReleaseSegment(ref.segment))  # the caller holds its own reference
            else:
                self._ledger.results.add(entry, ref.segment, size)
                self._ledger.segment_sizes[ref.segment] = size
        commands += self._ledger.report(entry, now)
        commands += self._ledger.end(entry)
        if self._ledger.stops_when_idle:
            commands.append(StopDaemon(now=False))
        return [*commands, *self._enforce_quota(now)]

    def _enforce_quota(self, now: float) -> list[Command]:
        """Release the oldest results until the others fit the limit."""
        excess = self._ledger.results.nbytes - self._ledger.limits.results
        commands: list[Command] = []
        if excess <= 0:
            return commands
        for entry in self.evictable(now):
            if excess <= 0:
                break
            excess -= sum(entry.kept_results.values())
            commands += self._ledger.release_results(entry)
        return commands

    def evictable(self, now: float) -> Iterator[JobEntry]:
        """Yield the jobs whose results may be released before they expire, the oldest first."""
        return (entry for entry in self._ledger.results if now >= entry.fetch_deadline)


def _acceptance(entry: JobEntry) -> JobAccepted:
    return JobAccepted(
        entry.job,
        entry.spec,
        entry.key,
        entry.submitted_at,
        entry.is_durable,
        entry.spec.hold,
    )


def _refusals(entry: JobEntry, error: ErrorRecord) -> list[Command]:
    return [requester.reply(Refused(error)) for requester, _ in entry.confirmations]


def is_urgent(previous: JobState | None, state: JobState) -> bool:
    """Whether followers should see a state at once: another stage or text, or a reason to wait."""
    if isinstance(state, Queued):
        if isinstance(previous, Queued):
            return state.reason != previous.reason
        return state.ahead > 0 or state.reason not in IMMEDIATE
    if isinstance(previous, Running) and isinstance(state, Running):
        return (previous.stage, previous.text) != (state.stage, state.text) and bool(state.text)
    return False
