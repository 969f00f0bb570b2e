"""Changes of a waiting job: hold, release, prioritize, cancel. Pure.

A job of an earlier daemon isn't in the engine until its files have been checked, or its client
has passed its arrays again. Changes until then are noted here; the engine gets them with the job.
"""

from __future__ import annotations

from hetsched.daemon.commands import (
    AlterJob,
    CancelJob,
    ChangeWritten,
    Command,
    SendReply,
    WriteJournal,
)
from hetsched.daemon.records import JobEntry, Requester
from hetsched.errors import Cancelled, ErrorRecord, HetschedError
from hetsched.job import Queued
from hetsched.store.journal.records import JobChanged
from hetsched.transport.messages import Changed, Hold, Prioritize, QueueChange, Refused, Reply


def note_change(entry: JobEntry, change: QueueChange) -> None:
    """Note in the ledger that a job was changed."""
    if isinstance(change, Prioritize):
        entry.priority = change.priority
    else:
        entry.is_held = isinstance(change, Hold)


def change_outside_engine(
    entry: JobEntry, requester: Requester, change: QueueChange
) -> list[Command]:
    """Change a job that the engine doesn't have yet."""
    before = entry.priority, entry.is_held
    note_change(entry, change)
    is_changed = before != (entry.priority, entry.is_held)
    entry.is_altered |= is_changed
    entry.state = outside_engine(entry)
    return confirm_change(entry, requester, is_changed)


def outside_engine(entry: JobEntry) -> Queued:
    """Return the state of a waiting job that the engine doesn't have yet."""
    return Queued(entry.job, 0, "held" if entry.is_held else "")


def confirm_change(entry: JobEntry, requester: Requester, is_changed: bool) -> list[Command]:
    """Answer once the change is on disk; at once if there is none."""
    state = entry.state or Queued(entry.job, 0)
    reply = requester.reply(Changed(is_changed, state))
    if not is_changed:
        return [reply]
    record = JobChanged(entry.job, entry.priority, entry.is_held)
    return [WriteJournal((record,), ChangeWritten(record, reply), urgent=True)]


def on_change_written(what: ChangeWritten, error: HetschedError | None) -> list[Command]:
    """Confirm a change, or say that it isn't on disk; then the journal keeps trying."""
    if error is None:
        return [what.reply]
    number, identity = what.reply.reply.number, what.reply.identity
    refusal = ErrorRecord(
        error.code,
        f"job {what.record.number} was changed, but that can't be written to the journal at"
        " present, see the daemon's log; it is written as soon as possible",
    )
    return [SendReply(identity, Reply(number, Refused(refusal))), WriteJournal((what.record,))]


def catch_up(entry: JobEntry) -> list[Command]:
    """Pass on what happened to a job while the engine was checking it."""
    entry.is_in_engine = True
    if entry.is_cancelled:
        return [CancelJob(entry.job)]
    if entry.is_altered:
        return [AlterJob(entry.job, entry.priority, entry.is_held)]
    return []


def cancelled(entry: JobEntry) -> ErrorRecord:
    return ErrorRecord(Cancelled.code, f"job {entry.job} was cancelled")
