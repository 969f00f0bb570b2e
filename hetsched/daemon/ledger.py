"""The daemon's books: sessions, jobs, who follows what, who holds which segment. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from hetsched.daemon.commands import Command, Release, Send, Tell
from hetsched.errors import InputMissing
from hetsched.job import ArenaOut, ArenaRef, Done, JobSpec, JobState, ended
from hetsched.transport.messages import Answer, Reply, SegmentFd, State

HISTORY = 1000
"""Ended jobs that are remembered. Arbitrary."""
PICK_UP = 5.0
"""Seconds that a result waits, in any case, for a client that follows its job. Arbitrary."""
MOST_FOLLOWED = 1000
"""Jobs that one session may follow at once. Arbitrary."""


@dataclass(frozen=True)
class Limits:
    """What the daemon allows.

    Attributes
    ----------
    queue : int
        Jobs that wait or run.
    results : int, bytes
        Results that are kept for whoever comes for them.
    results_for : float, seconds
        For how long.
    warm_for : float, seconds
        How long free memory is kept while there are neither sessions nor jobs.
    """

    queue: int = 1000
    results: int = 1 << 30
    results_for: float = 600.0
    warm_for: float = 60.0


@dataclass(frozen=True)
class Daemon:
    """Who we are. `started`: on the clock that `now` comes from; `epoch`: of that clock's 0."""

    pid: int
    version: str
    endpoint: str
    started: float = 0.0
    epoch: float = 0.0


@dataclass(frozen=True)
class Asker:
    """Who asked: the ZeroMQ identity, its number for the request, its session."""

    identity: bytes
    number: int
    session: int

    def reply(self, answer: Answer, droppable: bool = False) -> Send:
        return Send(self.identity, Reply(self.number, answer), droppable)


@dataclass
class Session:
    """One client's connection. `held`: segment -> references; `mapped`: fds that it was sent."""

    id: int
    token: str
    greeted: bool = False
    held: dict[int, int] = field(default_factory=dict)
    mapped: set[int] = field(default_factory=set)

    def hold(self, segment: int) -> None:
        self.held[segment] = self.held.get(segment, 0) + 1

    def drop(self, segment: int) -> bool:
        """One reference less; whether there was one."""
        count = self.held.pop(segment, 0)
        if count > 1:
            self.held[segment] = count - 1
        return count > 0


@dataclass
class Entry:
    """One job.

    `kept`: result segments that the job itself holds a reference to -> bytes; until `expires`, or
    until others need the room. While some session is `awaited` to fetch them, not before
    `fetched_by`.
    """

    ticket: int
    spec: JobSpec
    asker: Asker
    follow: bool
    submitted_at: float
    job: int = 0
    state: JobState | None = None
    followers: list[Asker] = field(default_factory=list)
    kept: dict[int, int] = field(default_factory=dict)
    awaited: set[int] = field(default_factory=set)
    fetched_by: float = 0.0
    keep_until: float = 0.0
    told_at: float = 0.0
    untold: bool = False

    @property
    def expires(self) -> float:
        return max(self.keep_until, self.fetched_by)

    def await_no_longer(self, session: int) -> None:
        """`session` has had the results, or is gone."""
        self.awaited.discard(session)
        if not self.awaited:
            self.fetched_by = 0.0

    @property
    def over(self) -> bool:
        return self.state is not None and ended(self.state)


class Ledger:
    """All that the daemon knows, and the small steps that requests are made of.

    `jobs`: by number, all that are remembered. `tickets`: those that aren't over, or keep results.
    `sizes`: bytes of the segments that clients have to do with.
    """

    def __init__(self, daemon: Daemon, limits: Limits) -> None:
        self.daemon = daemon
        self.limits = limits
        self.sessions: dict[int, Session] = {}
        self.by_token: dict[str, Session] = {}
        self.jobs: dict[int, Entry] = {}
        self.tickets: dict[int, Entry] = {}
        self.sizes: dict[int, int] = {}
        self.draining = False
        self._next_ticket = 1

    def new_entry(self, spec: JobSpec, asker: Asker, follow: bool, submitted_at: float) -> Entry:
        """A job that the engine hasn't accepted yet."""
        entry = Entry(self._next_ticket, spec, asker, follow, submitted_at)
        self._next_ticket += 1
        self.tickets[entry.ticket] = entry
        return entry

    def job(self, number: int) -> Entry:
        """Raises InputMissing for a job that isn't known."""
        entry = self.jobs.get(number)
        if entry is None:
            newest = max(self.jobs, default=None)
            said = "there are none yet" if newest is None else f"the newest is {newest}"
            raise InputMissing(f"no job {number}; {said} (`hetsched status` lists them)")
        return entry

    def wall_clock(self, now: float) -> float:
        """Seconds since the epoch, for people to read."""
        return self.daemon.epoch + now

    def hand_over(self, session: Session, segment: int) -> Command:
        """Answer with `segment`, whose reference the session now holds; its fd goes only once."""
        fresh = segment not in session.mapped
        session.mapped.add(segment)
        session.hold(segment)
        answer = SegmentFd(segment, self.sizes[segment], fresh)
        return Tell(session.id, answer, segment if fresh else None)

    def keeper(self, segment: int) -> Entry | None:
        """The ended job that keeps `segment` as its result."""
        return next((e for e in self.kept_entries() if segment in e.kept), None)

    def kept_entries(self) -> Iterator[Entry]:
        """Jobs that keep results, the one that ended first first. O(open and kept jobs)."""
        return iter(sorted((e for e in self.tickets.values() if e.kept), key=_expiry))

    def used(self) -> set[int]:
        """Segments that sessions or open jobs hold."""
        used = {segment for session in self.sessions.values() for segment in session.held}
        for entry in self.tickets.values():
            if not entry.over:
                used.update(segments_of(entry.spec))
        return used

    def let_go(self, entry: Entry) -> list[Command]:
        """The job's results are no longer kept for anybody."""
        released: list[Command] = [Release(segment) for segment in entry.kept]
        entry.kept.clear()
        self._forget_ticket(entry)
        return released

    def let_go_of(self, entry: Entry, segment: int) -> list[Command]:
        """One result of the job is no longer kept."""
        if entry.kept.pop(segment, None) is None:
            return []
        self._forget_ticket(entry)
        return [Release(segment)]

    def settle(self, entry: Entry) -> None:
        """The job has ended: only jobs that keep results stay among the tickets."""
        self._forget_ticket(entry)

    def trim_history(self) -> list[Command]:
        """Forget the oldest ended jobs past HISTORY."""
        over = [entry for entry in self.jobs.values() if entry.over]
        commands: list[Command] = []
        for entry in over[: max(0, len(over) - HISTORY)]:
            commands += self.let_go(entry)
            del self.jobs[entry.job]
        return commands

    def open_jobs(self) -> int:
        return sum(not entry.over for entry in self.tickets.values())

    def follows(self, session: int) -> int:
        return sum(
            follower.session == session
            for entry in self.tickets.values()
            for follower in entry.followers
        )

    def _forget_ticket(self, entry: Entry) -> None:
        if entry.over and not entry.kept:
            self.tickets.pop(entry.ticket, None)


def segments_of(spec: JobSpec) -> list[int]:
    """The segments that `spec` names as inputs or as its caller's outputs."""
    refs: Iterable[ArenaRef | None] = [
        *(ref for ref in spec.inputs.values() if isinstance(ref, ArenaRef)),
        *(out.into for out in spec.outputs.values() if isinstance(out, ArenaOut)),
    ]
    return [ref.segment for ref in refs if ref is not None]


def callers_own(spec: JobSpec) -> set[int]:
    """The segments among the outputs of `spec` that belong to the caller, not to the job."""
    return {
        out.into.segment
        for out in spec.outputs.values()
        if isinstance(out, ArenaOut) and out.into is not None
    }


def tell(entry: Entry, now: float) -> list[Command]:
    """The job's present state, to all who follow it."""
    entry.told_at, entry.untold = now, False
    if entry.state is None:
        return []
    message = State(entry.state)
    return [follower.reply(message, droppable=not entry.over) for follower in entry.followers]


def refs(state: JobState | None) -> Iterable[ArenaRef]:
    """The result references in an ended state."""
    return state.results.values() if isinstance(state, Done) else ()


def _expiry(entry: Entry) -> float:
    return entry.expires
