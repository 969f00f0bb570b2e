"""The daemon's core: events in, commands out. No socket, file, thread or clock.

Owns the rules: which requests are allowed (a token, valid as long as its session), the references
of sessions and jobs, what followers receive and when, how long results are kept. The engine
decides whether the queue is full. `server.py` passes events to the core and executes its commands.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping

from hetsched.daemon.access.roles import require_permission
from hetsched.daemon.commands import (
    AnswerSession,
    ChangeWritten,
    CloseSession,
    Command,
    ReleaseSegment,
    SendReply,
    StopDaemon,
    Trim,
    Written,
)
from hetsched.daemon.jobs.open_checkpoints import OpenCheckpoint
from hetsched.daemon.jobs.queue_changes import confirm_change, note_change, on_change_written
from hetsched.daemon.jobs.recovery import expire_inputs, restore
from hetsched.daemon.jobs.transitions import PROGRESS_INTERVAL, JobTransitions
from hetsched.daemon.ledger import Ledger
from hetsched.daemon.records import (
    ClientSession,
    DaemonInfo,
    Limits,
    Requester,
)
from hetsched.daemon.requests import BY_ENVELOPE, BY_SESSION
from hetsched.daemon.requests.cancel import cancel_job
from hetsched.daemon.requests.queue.journal_lines import journaled_history, remembered_history
from hetsched.daemon.requests.queue.status import job_list
from hetsched.errors import ErrorRecord, HetschedError, NotPermitted, ProtocolError, to_record
from hetsched.job import JobState, Queued
from hetsched.store.arrays.publication import PreparedOutput
from hetsched.store.journal.job_numbers import JobNumbers
from hetsched.store.journal.records import JournalContents, JournaledJob
from hetsched.transport.messages import (
    Answer,
    Discarded,
    Envelope,
    Hello,
    History,
    QueueChange,
    Refused,
    Reply,
    Request,
    SessionRequest,
)
from hetsched.transport.sockets import Peer
from hetsched.units import NUMBER_LIMIT


class Core:
    """The rules of the daemon. `now` is monotonic seconds; event handlers return commands.

    Parameters
    ----------
    numbers : JobNumbers or None
        None: all numbers, from 1, which no journal reserves.
    """

    def __init__(
        self,
        daemon: DaemonInfo,
        limits: Limits,
        numbers: JobNumbers | None = None,
        make_token: Callable[[], str] = secrets.token_hex,
    ) -> None:
        self.ledger = Ledger(daemon, limits, numbers or JobNumbers(1, NUMBER_LIMIT - 1))
        self._transitions = JobTransitions(self.ledger)
        self._make_token = make_token
        self._trim_at: float | None = None

    # sessions

    def on_connect(self, number: int, peer: Peer) -> list[Command]:
        self.ledger.sessions[number] = ClientSession(number, self._make_token(), peer)
        self._trim_at = None
        return []

    def on_session_request(self, number: int, request: SessionRequest) -> list[Command]:
        """Handle a request on a session's socket; the first must be Hello."""
        session = self.ledger.sessions.get(number)
        if session is None:
            return []
        if not session.is_greeted and not isinstance(request, Hello):
            return self.on_invalid_message(
                number, ProtocolError("the first message must be hello")
            )
        try:
            require_permission(type(request), session.peer.uid, self.ledger.daemon.uid)
            return BY_SESSION[type(request)](self.ledger, session, request)
        except ProtocolError as error:
            return self.on_invalid_message(number, error)
        except HetschedError as error:
            return [AnswerSession(number, Refused(to_record(error)))]

    def on_invalid_message(self, number: int, error: ProtocolError) -> list[Command]:
        """Refuse a message that can't be decoded, and close the session."""
        return [AnswerSession(number, Refused(to_record(error))), CloseSession(number)]

    def on_disconnect(self, number: int, now: float) -> list[Command]:
        """Release the segments of a session whose client has ended. Its jobs continue."""
        session = self.ledger.remove_session(number)
        if session is None:
            return []
        self._schedule_trim_if_idle(now)
        return [
            ReleaseSegment(segment)
            for segment, count in session.held.items()
            for _ in range(count)
        ]

    def on_allocated(self, number: int, segment: int, nbytes: int) -> list[Command]:
        """Give a new segment to its session, if that still exists."""
        session = self.ledger.sessions.get(number)
        if session is None:
            return [ReleaseSegment(segment)]
        self.ledger.segment_sizes[segment] = nbytes
        return [self.ledger.grant_segment(session, segment)]

    def on_adopted(self, number: int, segment: int, nbytes: int) -> list[Command]:
        """As `on_allocated`, for a segment that the client has mapped."""
        session = self.ledger.sessions.get(number)
        if session is not None:
            session.mapped.add(segment)
        return self.on_allocated(number, segment, nbytes)

    def on_allocation_failed(self, number: int, error: HetschedError) -> list[Command]:
        return [AnswerSession(number, Refused(to_record(error)))]

    def on_segment_discarded(self, segment: int) -> list[Command]:
        """Ask the clients that map a segment to unmap it: the arena has freed it."""
        self.ledger.segment_sizes.pop(segment, None)
        commands: list[Command] = []
        for session in self.ledger.sessions.values():
            if segment in session.mapped:
                session.mapped.discard(segment)
                commands.append(AnswerSession(session.id, Discarded(segment)))
        return commands

    # requests over ZeroMQ

    def on_request(
        self, identity: bytes, peer: Peer, envelope: Envelope, now: float
    ) -> list[Command]:
        """Handle a request; it is answered at once or, for jobs, later.

        Its token must be that of a session of the same process.
        """
        session = self.ledger.session_of(envelope.token, peer)
        if session is None:
            error = NotPermitted("unknown token: send hello on the session socket first")
            return [SendReply(identity, Reply(envelope.number, Refused(to_record(error))))]
        if identity != session.request_identity:
            session.identity = identity
        requester = Requester(identity, envelope.number, session.id)
        try:
            require_permission(type(envelope.request), peer.uid, self.ledger.daemon.uid)
        except HetschedError as error:
            return [requester.reply(Refused(to_record(error)))]
        return self._handle(requester, envelope.request, now)

    def _handle(self, requester: Requester, request: Request, now: float) -> list[Command]:
        try:
            return BY_ENVELOPE[type(request)](self.ledger, requester, request, now)
        except HetschedError as error:
            return [requester.reply(Refused(to_record(error)))]

    def on_undecodable_request(self, identity: bytes, error: ProtocolError) -> list[Command]:
        """Reply with number 0, which no request has, to explain a mismatch of versions."""
        return [SendReply(identity, Reply(0, Refused(to_record(error))), droppable=True)]

    def on_unread_replies(self, identity: bytes) -> list[Command]:
        """Close the sessions of a client that doesn't read: its replies were dropped."""
        return [
            CloseSession(session.id)
            for session in self.ledger.sessions.values()
            if identity in session.identities
        ]

    # the engine

    def on_engine_reply(self, ticket: int, answer: int | ErrorRecord, now: float) -> list[Command]:
        """Handle the engine's answer to SubmitJob: the job's number, or why it was refused."""
        return self._transitions.on_engine_reply(ticket, answer, now)

    def on_engine_error(self, ticket: int, error: ErrorRecord, now: float) -> list[Command]:
        """Handle an exception from the engine's submit."""
        return self._transitions.on_engine_error(ticket, error, now)

    def on_job_state(
        self, ticket: int, state: JobState, segment_sizes: Mapping[int, int], now: float
    ) -> list[Command]:
        """Handle a job's new state.

        `segment_sizes`: bytes of its result segments; the core takes over a reference to each.
        """
        commands = self._transitions.on_state(ticket, state, segment_sizes, now)
        self._schedule_trim_if_idle(now)
        return commands

    def on_outputs_prepared(
        self, ticket: int, outputs: tuple[PreparedOutput, ...]
    ) -> list[Command]:
        """Handle complete output files that the engine wants to name."""
        return self._transitions.on_outputs_prepared(ticket, outputs)

    # the journal

    def on_written(self, what: Written, error: HetschedError | None, now: float) -> list[Command]:
        """Handle the journal's answer to WriteJournal; `error`: nothing was written."""
        if isinstance(what, ChangeWritten):
            return on_change_written(what, error)
        commands = self._transitions.on_written(what, error, now)
        self._schedule_trim_if_idle(now)
        return commands

    def restore(
        self,
        contents: JournalContents,
        publish_errors: Mapping[int, ErrorRecord | None],
        now: float,
        checkpoints: Mapping[int, OpenCheckpoint] | None = None,
    ) -> list[Command]:
        """Take over the jobs of earlier daemons (`jobs/recovery.py`)."""
        return restore(self.ledger, self._transitions, contents, publish_errors, now, checkpoints)

    def on_cancel(self, job: int, now: float) -> list[Command]:
        """Cancel one of several jobs, if it is still there."""
        entry = self.ledger.jobs.get(job)
        return [] if entry is None else cancel_job(self.ledger, entry, now)

    def on_queue_changed(
        self, identity: bytes, number: int, change: QueueChange, answer: bool | ErrorRecord
    ) -> list[Command]:
        """Handle the engine's answer to ChangeQueue: whether it changed anything, or why not."""
        if isinstance(answer, ErrorRecord):
            return [SendReply(identity, Reply(number, Refused(answer)))]
        entry = self.ledger.job(change.job)
        note_change(entry, change)
        commands = confirm_change(entry, Requester(identity, number, entry.session), answer)
        if self.ledger.stops_when_idle:
            commands.append(StopDaemon(now=False))
        return commands

    def on_positions(
        self, identity: bytes, number: int, jobs: tuple[int, ...], positions: Mapping[int, Queued]
    ) -> list[Command]:
        """List `jobs`, with the `positions` of those that wait."""
        return [SendReply(identity, Reply(number, job_list(self.ledger, jobs, positions)))]

    def on_history(
        self,
        identity: bytes,
        number: int,
        request: History,
        jobs: Iterable[JournaledJob] | ErrorRecord | None,
    ) -> list[Command]:
        """Answer with jobs of the journal; None: there is no journal."""
        answer: Answer
        if isinstance(jobs, ErrorRecord):
            answer = Refused(jobs)
        elif jobs is None:
            answer = remembered_history(self.ledger, request)
        else:
            answer = journaled_history(self.ledger, request, jobs)
        return [SendReply(identity, Reply(number, answer))]

    def on_memory_pressure(self, nbytes: int, now: float) -> list[Command]:
        """Release kept results to free `nbytes` of shared memory.

        Results that are in use stay: releasing them would free nothing.
        """
        commands: list[Command] = []
        in_use = self.ledger.segments_in_use()
        for entry in self._transitions.evictable(now):
            freed = sum(
                size for segment, size in entry.kept_results.items() if segment not in in_use
            )
            if nbytes <= 0:
                break
            if freed:
                nbytes -= freed
                commands += self.ledger.release_results(entry)
        return commands

    def drain(self) -> None:
        """Accept no new jobs and allocate no segments from now on."""
        self.ledger.is_draining = True

    # time

    def next_tick(self) -> float | None:
        """Return when `on_tick` should be called next; None: not needed."""
        times = [entry.reported_at + PROGRESS_INTERVAL for entry in self.ledger.held_back.values()]
        first_to_expire = self.ledger.results.first()
        if first_to_expire is not None:
            times.append(first_to_expire.expires)
        first_awaiting = next(iter(self.ledger.awaiting_input.values()), None)
        if first_awaiting is not None and first_awaiting.input_deadline is not None:
            times.append(first_awaiting.input_deadline)
        if self._trim_at is not None:
            times.append(self._trim_at)
        return min(times, default=None)

    def on_tick(self, now: float) -> list[Command]:
        """Report progress that was held back, release expired results, trim free memory."""
        commands: list[Command] = []
        for entry in list(self.ledger.held_back.values()):
            if now - entry.reported_at >= PROGRESS_INTERVAL:
                commands += self.ledger.report(entry, now)
        for entry in self.ledger.results.expired(now):
            commands += self.ledger.release_results(entry)
            self._schedule_trim_if_idle(now)
        commands += expire_inputs(self.ledger, self._transitions, now)
        if self._trim_at is not None and now >= self._trim_at:
            commands.append(Trim())
            self._trim_at = None
        return commands

    def _schedule_trim_if_idle(self, now: float) -> None:
        """Schedule a trim if there are no sessions or jobs that would use the free memory soon."""
        if not self.ledger.sessions and not self.ledger.open_jobs():
            self._trim_at = now + self.ledger.limits.warm_for
