"""Submissions: new jobs, and requests for a job that is known already."""

from __future__ import annotations

from msgspec.structs import replace

from hetsched.daemon.commands import Command, SubmitJob
from hetsched.daemon.ledger import Ledger
from hetsched.daemon.records import JobEntry, Requester, caller_outputs, input_and_output_segments
from hetsched.engine.queued_job import Readmission
from hetsched.errors import DataError, TryAgain
from hetsched.job import JobSpec, Queued
from hetsched.job_segments import is_same_request
from hetsched.transport.messages import Accepted, State, Submit


def submit_new(
    ledger: Ledger, requester: Requester, request: Submit, key: str, now: float
) -> list[Command]:
    """Give a job its number and pass it to the engine.

    Raises
    ------
    DataError
        A segment isn't the client's.
    TryAgain
        No numbers are reserved, because the journal is slow.
    """
    check_segments(ledger, requester, request.spec)
    if ledger.numbers.is_used_up:
        raise TryAgain("the journal's disk is slow: there are no new job numbers; try again later")
    number = ledger.numbers.take()
    entry = ledger.new_entry(request.spec, requester.session, ledger.wall_clock(now), number, key)
    entry.confirmations.append((requester, request.follow))
    return [SubmitJob(entry.ticket, request.spec, number)]


def submit_again(
    ledger: Ledger, requester: Requester, request: Submit, entry: JobEntry
) -> list[Command]:
    """Answer for a known job: its client sends the request again, perhaps to another daemon.

    Raises
    ------
    DataError
        It is another request; an array that the job needs isn't the client's; the result goes to
        an array that a client has passed, and this request names another one.
    """
    if not entry.is_shortened and not is_same_request(request.spec, entry.spec):
        raise DataError(
            f"id {request.spec.id or entry.key}: job {entry.job} has this id, but it is another"
            " request; choose another id"
        )
    commands: list[Command] = []
    targets = caller_outputs(entry.spec)
    if entry.session in ledger.sessions and targets != caller_outputs(request.spec):
        raise DataError(
            f"id {request.spec.id or entry.key}: job {entry.job} has this id, and its result goes"
            " to the array that was passed as `out` then; choose another id, or omit `out`"
        )
    if entry.input_deadline is not None:
        check_segments(ledger, requester, request.spec)
        entry.spec = request.spec
        commands.append(resume(ledger, entry))
    if entry.session not in ledger.sessions:
        entry.session = requester.session
    if not entry.is_confirmed:
        entry.confirmations.append((requester, request.follow))
        return commands
    return [*confirm(ledger, entry, requester, request.follow), *commands]


def resume(ledger: Ledger, entry: JobEntry) -> SubmitJob:
    """Pass a job of an earlier daemon, whose arrays are there, to the engine."""
    entry.input_deadline = None
    entry.is_altered = False
    ledger.awaiting_input.pop(entry.ticket, None)
    spec = replace(entry.spec, priority=entry.priority, hold=entry.is_held)
    if entry.checkpoint:
        spec = replace(spec, resume=entry.checkpoint)
    readmission = Readmission(entry.attempts, entry.failures)
    return SubmitJob(entry.ticket, spec, entry.job, readmission)


def confirm(ledger: Ledger, entry: JobEntry, requester: Requester, follow: bool) -> list[Command]:
    """Tell a client the job's number; then its states, if the client wants to `follow`."""
    commands: list[Command] = [requester.reply(Accepted(entry.job, entry.durability))]
    if not follow or requester.session not in ledger.sessions:
        return commands
    if not entry.has_ended:
        ledger.add_follower(entry, requester)
    if entry.state is not None or entry.is_readmitted:
        commands.append(requester.reply(State(entry.state or Queued(entry.job, 0))))
    return commands


def check_segments(ledger: Ledger, requester: Requester, spec: JobSpec) -> None:
    """Raise DataError if a segment of `spec` isn't the client's."""
    held = ledger.sessions[requester.session].held
    for segment in input_and_output_segments(spec):
        if segment not in held:
            raise DataError(
                f"segment {segment} isn't this client's;"
                " arrays come from its own empty() or submit()"
            )
