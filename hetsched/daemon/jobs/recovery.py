"""What becomes of the jobs of earlier daemons. Pure.

Ended jobs are remembered; their results were in memory, and are gone. Open ones continue, unless
they have been running each time that the daemon ended: then they fail. An iterative job continues
from its checkpoint, and an attempt that wrote one doesn't count. A job with a client's arrays
waits for that client, which passes them again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from hetsched.daemon.commands import Command, ExpectJob, RememberJob
from hetsched.daemon.jobs.open_checkpoints import OpenCheckpoint
from hetsched.daemon.jobs.queue_changes import outside_engine
from hetsched.daemon.jobs.submission import resume
from hetsched.daemon.jobs.transitions import JobTransitions
from hetsched.daemon.ledger import Ledger
from hetsched.daemon.records import JobEntry, PendingEnd
from hetsched.errors import ErrorRecord, JobFailed, TryAgain
from hetsched.job import Done, Failed, FileOut, JobReport, JobSpec
from hetsched.store.journal.records import JournalContents, JournaledJob
from hetsched.units import format_seconds

MAX_ATTEMPTS = 3
"""Times that a job may be running when the daemon ends without stopping in order. Arbitrary."""


def restore(
    ledger: Ledger,
    transitions: JobTransitions,
    contents: JournalContents,
    publish_errors: Mapping[int, ErrorRecord | None],
    now: float,
    checkpoints: Mapping[int, OpenCheckpoint] | None = None,
) -> list[Command]:
    """Take over all jobs of the journal.

    Parameters
    ----------
    publish_errors : mapping
        Number of each job that was publishing -> None if its files have their names now, else why
        not.
    checkpoints : mapping
        Number of each open job that can continue from a checkpoint -> that.
    """
    checkpoints = checkpoints or {}
    commands: list[Command] = []
    for job in contents.ended_jobs:
        ledger.restore_ended(_ended_entry(job))
        if job.state is not None:
            commands.append(RememberJob(job.number, job.state))
    for job in contents.open_jobs:  # by number: one that runs after another comes after it
        entry = _open_entry(ledger, job, checkpoints.get(job.number))
        if job.number in publish_errors:
            commands += _conclude_published(ledger, transitions, entry, publish_errors, now)
        elif entry.attempts >= MAX_ATTEMPTS:
            commands += transitions.fail(entry, _too_many_attempts(job), now)
        elif ledger.survives(entry):
            commands.append(resume(ledger, entry))
        else:
            entry.input_deadline = now + ledger.limits.input_for
            ledger.awaiting_input[entry.ticket] = entry
            commands.append(ExpectJob(job.number))
    return commands


def expire_inputs(ledger: Ledger, transitions: JobTransitions, now: float) -> list[Command]:
    """Fail the jobs whose clients haven't passed their arrays in time."""
    commands: list[Command] = []
    for entry in list(ledger.awaiting_input.values()):
        if entry.input_deadline is not None and now >= entry.input_deadline:
            commands += give_up_input(ledger, transitions, entry, now)
    return commands


def give_up_input(
    ledger: Ledger, transitions: JobTransitions, entry: JobEntry, now: float
) -> list[Command]:
    """Fail a job whose client hasn't passed its arrays."""
    ledger.awaiting_input.pop(entry.ticket, None)
    entry.input_deadline = None
    waited = format_seconds(ledger.limits.input_for)
    error = ErrorRecord(
        TryAgain.code,
        f"input lost: the daemon was started again, and the client of job {entry.job} hasn't"
        f" passed its arrays within {waited}; submit it again",
    )
    return transitions.fail(entry, error, now)


def lost_results(number: int, spec: JobSpec) -> str:
    """Return why results of an ended job can't be fetched; "" if all are in files."""
    outputs: Sequence[object] = list(spec.outputs.values())
    if outputs and all(isinstance(output, FileOut) for output in outputs):
        return ""
    return (
        f"the result of job {number} was in the memory of an earlier daemon and is lost; run it"
        f" again: hetsched retry {number}"
    )


def _ended_entry(job: JournaledJob) -> JobEntry:
    entry = JobEntry(
        0, job.spec, 0, job.submitted_at, job.number, job.client_id,
        is_accepted=True, is_confirmed=True, is_readmitted=True, attempts=job.attempts,
    )  # fmt: skip
    state = job.state
    if isinstance(state, Done):
        state = replace(state, lost=lost_results(job.number, job.spec))
    entry.state = state
    entry.started_at, entry.ended_at, entry.priority = job.started_at, job.ended_at, job.priority
    return entry


def _open_entry(ledger: Ledger, job: JournaledJob, checkpoint: OpenCheckpoint | None) -> JobEntry:
    entry = ledger.new_entry(job.spec, 0, job.submitted_at, job.number, job.client_id)
    entry.priority, entry.is_held = job.priority, job.held
    entry.is_accepted = entry.is_confirmed = entry.is_readmitted = True
    entry.attempts, entry.failures = job.attempts, job.failures
    if checkpoint is not None:
        entry.checkpoint = checkpoint.path
        if checkpoint.is_progress:  # the last attempt hasn't failed, so earlier ones were bad luck
            entry.attempts = 0
    entry.state = outside_engine(entry)
    ledger.jobs[job.number] = entry
    return entry


def _conclude_published(
    ledger: Ledger,
    transitions: JobTransitions,
    entry: JobEntry,
    errors: Mapping[int, ErrorRecord | None],
    now: float,
) -> list[Command]:
    error = errors[entry.job]
    if error is not None:
        return transitions.fail(entry, error, now)
    state = _published(entry)
    return [
        *transitions.end(entry, PendingEnd(state, {}), now),
        RememberJob(entry.job, state),
    ]


def _published(entry: JobEntry) -> Done | Failed:
    paths = {
        name: output.path
        for name, output in entry.spec.outputs.items()
        if isinstance(output, FileOut)
    }
    report = JobReport(
        job=entry.job,
        state="done",
        workload=entry.spec.workload,
        load=0,
        params=entry.spec.params,
        outputs=paths,
        notes=("the daemon ended while the result was being published; its times are lost",),
    )
    return Done(entry.job, report, lost=lost_results(entry.job, entry.spec))


def _too_many_attempts(job: JournaledJob) -> ErrorRecord:
    return ErrorRecord(
        JobFailed.code,
        f"job {job.number} was running each of the {job.attempts} times that the daemon ended"
        " unexpectedly; it isn't started again (see the daemon's log)",
    )
