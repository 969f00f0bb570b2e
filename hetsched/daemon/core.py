"""The daemon's core: events in, commands out. No socket, file, thread or clock here.

Owns the rules: who may speak (a token, alive as long as its session), what is refused, who holds
which reference, what followers are told and when, how long results are kept. `server.py` feeds it
and carries out what it wants.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping

from hetsched.daemon.commands import Command, HangUp, Release, Send, Tell, Trim
from hetsched.daemon.ledger import (
    PICK_UP,
    Asker,
    Daemon,
    Entry,
    Ledger,
    Limits,
    Session,
    callers_own,
    refs,
    tell,
)
from hetsched.daemon.requests import BY_ENVELOPE, BY_SESSION
from hetsched.errors import ErrorRecord, HetschedError, NotPermitted, ProtocolError, to_record
from hetsched.job import JobState, Queued, Running, ended
from hetsched.transport.messages import (
    Accepted,
    Discarded,
    Envelope,
    Hello,
    Refused,
    Reply,
    SessionRequest,
)

PROGRESS_EVERY = 0.1
"""Seconds between two progress messages of one job: 10 Hz is more than eyes can use."""


class Core:
    """All rules of the daemon. `now` is monotonic seconds; every method returns commands."""

    def __init__(
        self,
        daemon: Daemon,
        limits: Limits,
        make_token: Callable[[], str] = secrets.token_hex,
    ) -> None:
        self.ledger = Ledger(daemon, limits)
        self._make_token = make_token
        self._trim_at: float | None = None

    # sessions

    def connected(self, session: int) -> list[Command]:
        self.ledger.sessions[session] = Session(session, self._make_token())
        self._trim_at = None
        return []

    def told(self, session: int, request: SessionRequest) -> list[Command]:
        """A session says something. Anything but Hello first ends it."""
        known = self.ledger.sessions.get(session)
        if known is None:
            return []
        if not known.greeted and not isinstance(request, Hello):
            return self.garbled(session, ProtocolError("the first message must be hello"))
        try:
            return BY_SESSION[type(request)](self.ledger, known, request)
        except ProtocolError as error:
            return self.garbled(session, error)
        except HetschedError as error:
            return [Tell(session, Refused(to_record(error)))]

    def garbled(self, session: int, error: ProtocolError) -> list[Command]:
        """A session sent something that can't be understood: say so and hang up."""
        return [Tell(session, Refused(to_record(error))), HangUp(session)]

    def gone(self, session: int, now: float) -> list[Command]:
        """A session's end of file: its client is dead. Its jobs go on."""
        known = self.ledger.sessions.pop(session, None)
        if known is None:
            return []
        self.ledger.by_token.pop(known.token, None)
        for entry in self.ledger.tickets.values():
            entry.followers = [f for f in entry.followers if f.session != session]
            entry.await_no_longer(session)
        self._maybe_idle(now)
        return [Release(segment) for segment, count in known.held.items() for _ in range(count)]

    def allocated(self, session: int, segment: int, nbytes: int) -> list[Command]:
        """What Allocate asked for; the reference is the session's, if it still lives."""
        known = self.ledger.sessions.get(session)
        if known is None:
            return [Release(segment)]
        self.ledger.sizes[segment] = nbytes
        return [self.ledger.hand_over(known, segment)]

    def not_allocated(self, session: int, error: HetschedError) -> list[Command]:
        return [Tell(session, Refused(to_record(error)))]

    def discarded(self, segment: int) -> list[Command]:
        """The arena gives a segment back: those who map it should let it go."""
        self.ledger.sizes.pop(segment, None)
        commands: list[Command] = []
        for session in self.ledger.sessions.values():
            if segment in session.mapped:
                session.mapped.discard(segment)
                commands.append(Tell(session.id, Discarded(segment)))
        return commands

    # requests over ZeroMQ

    def asked(self, identity: bytes, envelope: Envelope, now: float) -> list[Command]:
        """A request; answered at once or, for jobs, later."""
        session = self.ledger.by_token.get(envelope.token)
        if session is None:
            error = NotPermitted("unknown token: say hello on the session socket first")
            return [Send(identity, Reply(envelope.number, Refused(to_record(error))))]
        asker = Asker(identity, envelope.number, session.id)
        request = envelope.request
        try:
            return BY_ENVELOPE[type(request)](self.ledger, asker, request, now)
        except HetschedError as error:
            return [asker.reply(Refused(to_record(error)))]

    def undecodable(self, identity: bytes, error: ProtocolError) -> list[Command]:
        """Number 0 is nobody's request: it tells a client of another version what is wrong."""
        return [Send(identity, Reply(0, Refused(to_record(error))), droppable=True)]

    # the engine

    def replied(self, ticket: int, answer: int | ErrorRecord, now: float) -> list[Command]:
        """The engine took the job, under a number, or didn't."""
        entry = self.ledger.tickets[ticket]
        if isinstance(answer, ErrorRecord):
            del self.ledger.tickets[ticket]
            return [entry.asker.reply(Refused(answer))]
        entry.job, entry.told_at = answer, now
        self.ledger.jobs[answer] = entry
        if entry.follow and entry.asker.session in self.ledger.sessions:
            entry.followers.append(entry.asker)
        return [entry.asker.reply(Accepted(answer))]

    def not_started(self, ticket: int, error: ErrorRecord) -> list[Command]:
        """The engine failed over the job; what it has replied already stands."""
        entry = self.ledger.tickets.get(ticket)
        if entry is None or entry.job:
            return []
        del self.ledger.tickets[ticket]
        return [entry.asker.reply(Refused(error))]

    def state(
        self, ticket: int, state: JobState, sizes: Mapping[int, int], now: float
    ) -> list[Command]:
        """A job's new state. `sizes`: bytes of its result segments; we get a reference to each."""
        entry = self.ledger.tickets[ticket]
        previous, entry.state = entry.state, state
        if ended(state):
            return self._ended(entry, sizes, now)
        if now - entry.told_at >= PROGRESS_EVERY or _news(previous, state):
            return tell(entry, now)
        entry.untold = True
        return []

    def pressure(self, nbytes: int, now: float) -> list[Command]:
        """Somebody lacks `nbytes` of shared memory: results that are only kept make room.

        Results that others still use stay: to let them go would free nothing.
        """
        commands: list[Command] = []
        used = self.ledger.used()
        for entry in self._evictable(now):
            free = sum(size for segment, size in entry.kept.items() if segment not in used)
            if nbytes <= 0:
                break
            if free:
                nbytes -= free
                commands += self.ledger.let_go(entry)
        return commands

    def drain(self) -> None:
        """No new jobs and segments from now on."""
        self.ledger.draining = True

    # time

    def due(self) -> float | None:
        """When `tick` should be called next; None: no need."""
        times = [
            entry.told_at + PROGRESS_EVERY if entry.untold else entry.expires
            for entry in self.ledger.tickets.values()
            if entry.untold or entry.kept
        ]
        if self._trim_at is not None:
            times.append(self._trim_at)
        return min(times, default=None)

    def tick(self, now: float) -> list[Command]:
        """Progress that was held back, results that nobody came for."""
        commands: list[Command] = []
        for entry in list(self.ledger.tickets.values()):
            if entry.untold and now - entry.told_at >= PROGRESS_EVERY:
                commands += tell(entry, now)
            elif entry.kept and now >= entry.expires:
                commands += self.ledger.let_go(entry)
                self._maybe_idle(now)
        if self._trim_at is not None and now >= self._trim_at:
            commands.append(Trim())
            self._trim_at = None
        return commands

    def _maybe_idle(self, now: float) -> None:
        """Memory has become free; if there is nobody to use it soon, it won't stay for ever."""
        if not self.ledger.sessions and not self.ledger.open_jobs():
            self._trim_at = now + self.ledger.limits.warm_for

    def _ended(self, entry: Entry, sizes: Mapping[int, int], now: float) -> list[Command]:
        own = callers_own(entry.spec)
        commands: list[Command] = []
        for ref in refs(entry.state):
            if ref.segment in own:
                commands.append(Release(ref.segment))  # the caller's array is the caller's to keep
            else:
                entry.kept[ref.segment] = self.ledger.sizes[ref.segment] = sizes[ref.segment]
        entry.awaited = {follower.session for follower in entry.followers}
        entry.fetched_by = now + PICK_UP if entry.awaited else 0.0
        entry.keep_until = now + self.ledger.limits.results_for
        commands += tell(entry, now)
        entry.followers = []
        self.ledger.settle(entry)
        self._maybe_idle(now)
        return commands + self._within_quota(now) + self.ledger.trim_history()

    def _within_quota(self, now: float) -> list[Command]:
        """Let the oldest results go until the rest fits."""
        surplus = sum(sum(entry.kept.values()) for entry in self.ledger.kept_entries())
        surplus -= self.ledger.limits.results
        commands: list[Command] = []
        for entry in self._evictable(now):
            if surplus <= 0:
                break
            surplus -= sum(entry.kept.values())
            commands += self.ledger.let_go(entry)
        return commands

    def _evictable(self, now: float) -> list[Entry]:
        return [entry for entry in self.ledger.kept_entries() if now >= entry.fetched_by]


def _news(previous: JobState | None, state: JobState) -> bool:
    """Whether more than figures has changed, once the job had been told of."""
    if isinstance(previous, Running) and isinstance(state, Running):
        return (previous.stage, previous.text) != (state.stage, state.text) and bool(state.text)
    return isinstance(state, Queued) and state.ahead > 0 and previous is None
