"""Records of the daemon's core: limits, sessions, requesters, jobs. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hetsched.daemon.commands import SendReply
from hetsched.job import ArenaOut, ArenaRef, Done, Failed, JobSpec, JobState, ended
from hetsched.job_segments import arena_refs, is_durable
from hetsched.store.arrays.publication import PreparedOutput
from hetsched.transport.messages import Answer, Reply, State
from hetsched.transport.sockets import NOBODY, Peer


@dataclass(frozen=True)
class Limits:
    """Limits on what the daemon keeps, and for how long.

    Attributes
    ----------
    results : int, bytes
        Results kept for later requests.
    results_for : float, seconds
        How long each is kept.
    warm_for : float, seconds
        How long free memory is kept while there are neither sessions nor jobs.
    ended_jobs : int, bytes
        Of all ended jobs that are remembered.
    unread : int, bytes
        Of replies to one client that doesn't read.
    jobs_per_client : int or None
        Unfinished jobs of one client.
    parameters : int, bytes
        Of the requests of all unfinished jobs.
    followed_jobs : int
        Jobs that one client follows.
    input_for : float, seconds
        How long a job of an earlier daemon waits for its client to pass its arrays again.
    """

    results: int = 1 << 30
    results_for: float = 600.0
    warm_for: float = 60.0
    ended_jobs: int = 32 << 20
    unread: int = 8 << 20
    jobs_per_client: int | None = None
    parameters: int = 64 << 20
    followed_jobs: int = 1000
    input_for: float = 60.0


@dataclass(frozen=True)
class DaemonInfo:
    """The daemon itself. `started`: on the clock of `now`; `epoch`: that clock's zero.

    `uid`: the user that it runs as, and serves; nobody by default.
    """

    pid: int
    version: str
    endpoint: str
    started: float = 0.0
    epoch: float = 0.0
    uid: int = NOBODY.uid


@dataclass(frozen=True)
class Requester:
    """The source of a request: ZeroMQ identity, the client's number for it, session."""

    identity: bytes
    number: int
    session: int

    def reply(self, answer: Answer, droppable: bool = False) -> SendReply:
        return SendReply(self.identity, Reply(self.number, answer), droppable)


@dataclass
class ClientSession:
    """One client's connection.

    Attributes
    ----------
    held : dict
        Segment -> the client's references to it.
    mapped : set
        Segments whose fd the client has received.
    identity : bytes
        Of its ZeroMQ socket, once it has sent a request.
    request_identity : bytes
        Of its socket for requests, if it has one.
    """

    id: int
    token: str
    peer: Peer
    identity: bytes = b""
    request_identity: bytes = b""
    is_greeted: bool = False
    held: dict[int, int] = field(default_factory=dict)
    mapped: set[int] = field(default_factory=set)

    @property
    def identities(self) -> tuple[bytes, bytes]:
        """Of the sockets that its replies go to."""
        return self.identity, self.request_identity

    def hold(self, segment: int) -> None:
        self.held[segment] = self.held.get(segment, 0) + 1

    def drop(self, segment: int) -> bool:
        """Remove one reference; return whether there was one."""
        count = self.held.pop(segment, 0)
        if count > 1:
            self.held[segment] = count - 1
        return count > 0


@dataclass(frozen=True)
class PendingEnd:
    """The end of a job that isn't in the journal yet, and the bytes of its result segments."""

    state: Done | Failed
    segment_sizes: Mapping[int, int]


@dataclass
class JobEntry:
    """One job.

    Attributes
    ----------
    submitted_at, started_at : float, seconds since the epoch
    key : str
        Under which it can be submitted again; "" if it has none.
    session : int
        The one that submitted it, last.
    is_accepted : bool
        The engine, or an earlier daemon, has accepted it.
    is_confirmed : bool
        Its clients know so: a durable job is in the journal.
    is_refused : bool
        The journal couldn't be written; the job ends as if it had never been.
    is_readmitted : bool
        An earlier daemon has accepted it.
    is_in_engine : bool
        The engine has put it into its queue.
    is_altered : bool
        Its priority or hold was changed while the engine was checking it.
    is_cancelled : bool
        It was cancelled meanwhile.
    attempts : int
        Starts without an end, by all daemons, since one that got further than those before.
    checkpoint : str
        The file from which the job continues, written before this daemon started; "": none.
    failures : int
        Attempts that have failed, and used one of its retries each.
    inputs : mapping
        Array name -> input file as it was at submission, of a readmitted job.
    input_deadline : float or None, seconds
        When to give up waiting for its client to pass its arrays again.
    confirmations : list
        Requests to answer once it is confirmed, and whether each follows the job.
    prepared : tuple or None
        Output files that are complete, before the job is confirmed.
    end : PendingEnd or None
        Its end, before the journal has that.
    kept_results : dict
        Result segment to which the job holds a reference -> bytes. They are kept until `expires`,
        or until others need the memory, but then not before `fetch_deadline`.
    awaiting_sessions : set
        Followers that haven't fetched the results yet.
    reported_at : float, seconds
        When followers last received a state.
    is_shortened : bool
        It has ended, and its parameters were dropped to save memory.
    ended_at : float or None, seconds since the epoch
    priority, is_held
        The present ones; those of `spec` are the ones at submission.
    """

    ticket: int
    spec: JobSpec
    session: int
    submitted_at: float
    job: int
    key: str = ""
    is_accepted: bool = False
    is_confirmed: bool = False
    is_refused: bool = False
    is_readmitted: bool = False
    is_in_engine: bool = False
    is_altered: bool = False
    is_cancelled: bool = False
    attempts: int = 0
    checkpoint: str = ""
    failures: int = 0
    input_deadline: float | None = None
    confirmations: list[tuple[Requester, bool]] = field(default_factory=list)
    prepared: tuple[PreparedOutput, ...] | None = None
    end: PendingEnd | None = None
    state: JobState | None = None
    started_at: float | None = None
    followers: list[Requester] = field(default_factory=list)
    kept_results: dict[int, int] = field(default_factory=dict)
    awaiting_sessions: set[int] = field(default_factory=set)
    fetch_deadline: float = 0.0
    keep_until: float = 0.0
    reported_at: float = 0.0
    is_shortened: bool = False
    ended_at: float | None = None
    priority: int = field(init=False)
    is_held: bool = field(init=False)
    is_durable: bool = field(init=False)

    def __post_init__(self) -> None:
        self.priority, self.is_held = self.spec.priority, self.spec.hold
        self.is_durable = is_durable(self.spec)

    @property
    def durability(self) -> str:
        return "durable" if self.is_durable else "volatile"

    @property
    def expires(self) -> float:
        return max(self.keep_until, self.fetch_deadline)

    @property
    def has_ended(self) -> bool:
        return self.state is not None and ended(self.state)

    @property
    def is_outside_engine(self) -> bool:
        """Whether it waits to be passed to the engine, or to be accepted there."""
        return not self.is_in_engine and self.end is None and not self.has_ended

    def stop_awaiting(self, session: int) -> None:
        """Note that `session` has fetched the results, or has ended."""
        self.awaiting_sessions.discard(session)
        if not self.awaiting_sessions:
            self.fetch_deadline = 0.0

    def report(self, now: float) -> list[SendReply]:
        """Send the present state to all followers."""
        self.reported_at = now
        if self.state is None:
            return []
        message = State(self.state)
        return [
            follower.reply(message, droppable=not self.has_ended) for follower in self.followers
        ]


def input_and_output_segments(spec: JobSpec) -> list[int]:
    """Return the segments that `spec` names as inputs or as the caller's own outputs."""
    return [ref.segment for ref in arena_refs(spec)]


def caller_outputs(spec: JobSpec) -> set[int]:
    """Return the output segments of `spec` that belong to the caller rather than to the job."""
    return {
        out.into.segment
        for out in spec.outputs.values()
        if isinstance(out, ArenaOut) and out.into is not None
    }


def result_refs(state: JobState | None) -> list[ArenaRef]:
    """Return the references to results in an ended state."""
    return list(state.results.values()) if isinstance(state, Done | Failed) else []
