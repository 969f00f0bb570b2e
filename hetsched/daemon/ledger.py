"""The daemon's bookkeeping: sessions, jobs, followers, references to segments. No I/O."""

from __future__ import annotations

import hmac
from collections import Counter
from collections.abc import Callable, Collection, Iterator

from hetsched.daemon.commands import AnswerSession, Command, ReleaseSegment
from hetsched.daemon.kept_results import KeptResults
from hetsched.daemon.limits.ended_jobs import EndedJobs
from hetsched.daemon.limits.job_quota import JobQuota
from hetsched.daemon.metrics.job_metrics import JobMetrics
from hetsched.daemon.records import (
    ClientSession,
    DaemonInfo,
    JobEntry,
    Limits,
    Requester,
    input_and_output_segments,
)
from hetsched.daemon.watchers import Watchers
from hetsched.errors import InputMissing
from hetsched.job import Done, Failed, JobSpec
from hetsched.store.journal.job_numbers import JobNumbers
from hetsched.transport.messages import SegmentFd
from hetsched.transport.sockets import Peer


class Ledger:
    """The daemon's state, and the operations on it that requests consist of.

    Attributes
    ----------
    jobs : dict
        Number -> every remembered job.
    keys : dict
        Key of a submission -> its job, as long as that is remembered.
    tickets : dict
        Ticket -> job that hasn't ended or keeps results.
    awaiting_input : dict
        Ticket -> job of an earlier daemon whose client must pass its arrays again.
    held_back : dict
        Ticket -> job with a state that its followers haven't received yet.
    follows : Counter
        Session -> its requests that follow a job.
    segment_sizes : dict
        Segment that clients use -> bytes.
    """

    def __init__(self, daemon: DaemonInfo, limits: Limits, numbers: JobNumbers) -> None:
        self.daemon = daemon
        self.numbers = numbers
        self.limits = limits
        self.sessions: dict[int, ClientSession] = {}
        self._greeted_sessions: dict[Peer, list[ClientSession]] = {}
        self.jobs: dict[int, JobEntry] = {}
        self.keys: dict[str, JobEntry] = {}
        self.tickets: dict[int, JobEntry] = {}
        self.awaiting_input: dict[int, JobEntry] = {}
        self.held_back: dict[int, JobEntry] = {}
        self.results = KeptResults()
        self.follows: Counter[int] = Counter()
        self.segment_sizes: dict[int, int] = {}
        self.metrics = JobMetrics()
        self.watchers = Watchers()
        self.quota = JobQuota(limits.jobs_per_client, limits.parameters)
        self.is_draining = False
        self.is_closed = False
        """A user has drained the queue."""
        self.stops_when_idle = False
        self.are_stored: Callable[[Collection[int]], bool] = lambda segments: False
        """Whether these segments outlive the daemon."""
        self._next_ticket = 1
        self._unended = 0
        self.ended_jobs = EndedJobs(limits.ended_jobs)

    def new_entry(
        self, spec: JobSpec, session: int, submitted_at: float, number: int, key: str
    ) -> JobEntry:
        """Add a job that the engine hasn't accepted yet."""
        entry = JobEntry(self._next_ticket, spec, session, submitted_at, number, key)
        self._next_ticket += 1
        self.tickets[entry.ticket] = entry
        self.quota.add(entry.ticket, session, spec)
        if key:
            self.keys[key] = entry
        self._unended += 1
        return entry

    def restore_ended(self, entry: JobEntry) -> None:
        """Add a job of an earlier daemon that has ended."""
        self.jobs[entry.job] = entry
        if entry.key:
            self.keys[entry.key] = entry
        for forgotten in self.ended_jobs.add(entry):
            del self.jobs[forgotten.job]
            self.keys.pop(forgotten.key, None)

    def greet(self, session: ClientSession) -> None:
        """Accept requests with the session's token, if they come from the same process."""
        if not session.is_greeted:
            session.is_greeted = True
            self._greeted_sessions.setdefault(session.peer, []).append(session)

    def session_of(self, token: str, peer: Peer) -> ClientSession | None:
        """Return the session of `token`, if `peer` opened it."""
        encoded = token.encode()
        for session in self._greeted_sessions.get(peer, ()):
            if hmac.compare_digest(encoded, session.token.encode()):
                return session
        return None

    def job(self, number: int) -> JobEntry:
        """Return a job. Raises InputMissing if it isn't known."""
        entry = self.jobs.get(number)
        if entry is None:
            newest = max(self.jobs, default=None)
            hint = "there are no jobs yet" if newest is None else f"the newest is {newest}"
            raise InputMissing(f"no job {number}; {hint} (`hetsched status` lists them)")
        return entry

    def wall_clock(self, now: float) -> float:
        """Convert `now` to seconds since the epoch."""
        return self.daemon.epoch + now

    def grant_segment(self, session: ClientSession, segment: int) -> Command:
        """Give the session a reference to `segment`; its fd is sent only once."""
        is_new = segment not in session.mapped
        session.mapped.add(segment)
        session.hold(segment)
        answer = SegmentFd(segment, self.segment_sizes[segment], is_new)
        return AnswerSession(session.id, answer, segment if is_new else None)

    def segments_in_use(self) -> set[int]:
        """Return the segments that sessions or unfinished jobs hold."""
        segments = {segment for session in self.sessions.values() for segment in session.held}
        return segments.union(self.unfinished_segments())

    def unfinished_segments(self) -> Iterator[int]:
        """Yield the segments of clients that unfinished jobs use, oldest job first."""
        for entry in self.tickets.values():
            if not entry.has_ended:
                yield from input_and_output_segments(entry.spec)

    def survives(self, entry: JobEntry) -> bool:
        """Return whether the next daemon can run a job without its client."""
        return entry.is_durable

    def release_results(self, entry: JobEntry) -> list[Command]:
        """Stop keeping a job's results."""
        segments = list(entry.kept_results)
        return [command for segment in segments for command in self.release_result(entry, segment)]

    def release_result(self, entry: JobEntry, segment: int) -> list[Command]:
        """Stop keeping one of a job's results."""
        if not self.results.remove(entry, segment):
            return []
        self.close_ticket(entry)
        return [ReleaseSegment(segment)]

    def report(self, entry: JobEntry, now: float) -> list[Command]:
        """Send a job's present state to its followers."""
        self.held_back.pop(entry.ticket, None)
        return [*entry.report(now), *self.watchers.announce(entry)]

    def count_end(self, entry: JobEntry, now: float) -> None:
        """Note when a job has ended, and count it in the metrics."""
        entry.ended_at = self.wall_clock(now)
        if isinstance(entry.state, Done | Failed):
            submitted, started = entry.submitted_at, entry.started_at
            queued = None if started is None else started - submitted
            self.metrics.on_end(entry.state, queued, self.wall_clock(now) - submitted)

    def end(self, entry: JobEntry) -> list[Command]:
        """Note that a job has ended; forget the oldest ended jobs beyond the limits."""
        self._unended -= 1
        self.quota.remove(entry.ticket)
        for follower in entry.followers:
            self._count_follow(follower.session, -1)
        entry.followers = []
        self.close_ticket(entry)
        commands: list[Command] = []
        for forgotten in self.ended_jobs.add(entry):
            del self.jobs[forgotten.job]
            self.keys.pop(forgotten.key, None)
            commands += self.release_results(forgotten)
        return commands

    def forget_ended(self, entry: JobEntry) -> list[Command]:
        """Forget a job that has ended."""
        self.ended_jobs.remove(entry.job)
        self.forget(entry)
        return self.release_results(entry)

    def close_ticket(self, entry: JobEntry) -> None:
        """Remove the ticket of a job that has ended and keeps no results."""
        if entry.has_ended and not entry.kept_results:
            self.tickets.pop(entry.ticket, None)

    def open_jobs(self) -> int:
        """Count the jobs that haven't ended."""
        return self._unended

    def discard(self, entry: JobEntry) -> None:
        """Remove a job that was refused."""
        self._unended -= 1
        self.quota.remove(entry.ticket)
        del self.tickets[entry.ticket]
        self.forget(entry)

    def forget(self, entry: JobEntry) -> None:
        """Remove a refused job from what clients can ask for."""
        self.jobs.pop(entry.job, None)
        if self.keys.get(entry.key) is entry:
            del self.keys[entry.key]

    def add_follower(self, entry: JobEntry, follower: Requester) -> None:
        """Send the job's states to `follower` from now on."""
        entry.followers.append(follower)
        self._count_follow(follower.session, 1)

    def remove_session(self, number: int) -> ClientSession | None:
        """Remove a session whose client has ended, and what it follows. O(tickets)."""
        session = self.sessions.pop(number, None)
        if session is None:
            return None
        self._invalidate_token(session)
        self.follows.pop(number, None)
        self.watchers.remove_session(number)
        for entry in self.tickets.values():
            if entry.followers:
                entry.followers = [f for f in entry.followers if f.session != number]
            if entry.awaiting_sessions:
                entry.stop_awaiting(number)
        return session

    def _invalidate_token(self, session: ClientSession) -> None:
        sessions = self._greeted_sessions.get(session.peer, [])
        if session in sessions:
            sessions.remove(session)
        if not sessions:
            self._greeted_sessions.pop(session.peer, None)

    def _count_follow(self, session: int, change: int) -> None:
        self.follows[session] += change
        if self.follows[session] <= 0:
            del self.follows[session]
