"""The daemon's bookkeeping: sessions, jobs, followers, references to segments. No I/O."""

from __future__ import annotations

from hetsched.daemon.commands import AnswerSession, Command, ReleaseSegment
from hetsched.daemon.records import (
    ClientSession,
    DaemonInfo,
    JobEntry,
    Limits,
    Requester,
    input_and_output_segments,
)
from hetsched.errors import InputMissing
from hetsched.job import JobSpec
from hetsched.transport.messages import SegmentFd

MAX_ENDED_JOBS = 1000
"""Ended jobs that are remembered. Arbitrary."""


class Ledger:
    """The daemon's state, and the operations on it that requests consist of.

    Attributes
    ----------
    jobs : dict
        Number -> every remembered job.
    tickets : dict
        Ticket -> job that hasn't ended or keeps results.
    segment_sizes : dict
        Segment that clients use -> bytes.
    """

    def __init__(self, daemon: DaemonInfo, limits: Limits) -> None:
        self.daemon = daemon
        self.limits = limits
        self.sessions: dict[int, ClientSession] = {}
        self.sessions_by_token: dict[str, ClientSession] = {}
        self.jobs: dict[int, JobEntry] = {}
        self.tickets: dict[int, JobEntry] = {}
        self.segment_sizes: dict[int, int] = {}
        self.is_draining = False
        self._next_ticket = 1

    def new_entry(
        self, spec: JobSpec, requester: Requester, follow: bool, submitted_at: float
    ) -> JobEntry:
        """Add a job that the engine hasn't accepted yet."""
        entry = JobEntry(self._next_ticket, spec, requester, follow, submitted_at)
        self._next_ticket += 1
        self.tickets[entry.ticket] = entry
        return entry

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

    def job_keeping(self, segment: int) -> JobEntry | None:
        """Return the ended job that keeps `segment` as its result."""
        entries = (entry for entry in self.tickets.values() if segment in entry.kept_results)
        return next(entries, None)

    def jobs_with_results(self) -> list[JobEntry]:
        """Return the jobs that keep results, first to expire first. O(tickets)."""
        entries = [entry for entry in self.tickets.values() if entry.kept_results]
        return sorted(entries, key=lambda entry: entry.expires)

    def segments_in_use(self) -> set[int]:
        """Return the segments that sessions or unfinished jobs hold."""
        segments = {segment for session in self.sessions.values() for segment in session.held}
        for entry in self.tickets.values():
            if not entry.has_ended:
                segments.update(input_and_output_segments(entry.spec))
        return segments

    def release_results(self, entry: JobEntry) -> list[Command]:
        """Stop keeping a job's results."""
        commands: list[Command] = [ReleaseSegment(segment) for segment in entry.kept_results]
        entry.kept_results.clear()
        self.close_ticket(entry)
        return commands

    def release_result(self, entry: JobEntry, segment: int) -> list[Command]:
        """Stop keeping one of a job's results."""
        if entry.kept_results.pop(segment, None) is None:
            return []
        self.close_ticket(entry)
        return [ReleaseSegment(segment)]

    def close_ticket(self, entry: JobEntry) -> None:
        """Remove the ticket of a job that has ended and keeps no results."""
        if entry.has_ended and not entry.kept_results:
            self.tickets.pop(entry.ticket, None)

    def trim_history(self) -> list[Command]:
        """Forget the oldest ended jobs beyond MAX_ENDED_JOBS."""
        ended_jobs = [entry for entry in self.jobs.values() if entry.has_ended]
        commands: list[Command] = []
        for entry in ended_jobs[: max(0, len(ended_jobs) - MAX_ENDED_JOBS)]:
            commands += self.release_results(entry)
            del self.jobs[entry.job]
        return commands

    def open_jobs(self) -> int:
        """Count the jobs that haven't ended."""
        return sum(not entry.has_ended for entry in self.tickets.values())

    def followed_by(self, session: int) -> int:
        """Count the requests of `session` that follow a job."""
        return sum(
            follower.session == session
            for entry in self.tickets.values()
            for follower in entry.followers
        )
