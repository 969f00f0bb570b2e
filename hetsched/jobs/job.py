"""The record of one job, shared by daemon, Local, queue and engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hetsched.errors import ErrorRecord
from hetsched.job import (
    Condition,
    Ended,
    Failed,
    JobReport,
    JobSpec,
    JobState,
    Outcome,
    Queued,
    arena_refs,
    outcome,
)

if TYPE_CHECKING:
    from hetsched.jobs.followers import Follower
    from hetsched.store.output_files import PreparedOutput

Owner = tuple[int, int]
"""Who submitted a job, for quotas: a user, and the session of processes (setsid) it came from."""

OnConfirmed = Callable[[ErrorRecord | None], None]


@dataclass(eq=False, slots=True)
class Job:
    """One job, from its submission until it is forgotten. On the loop's thread only.

    Times are seconds since the epoch, by the wall clock at that moment; `fetch_deadline`,
    `keep_until`, `reported_at` and `turn` are monotonic.
    """

    number: int
    spec: JobSpec
    client: int = 0  # The session that submitted it, last; 0: none that still exists
    owner: Owner = (0, 0)
    key: str = ""  # Under which it can be submitted again
    submitted_at: float = 0.0
    nbytes: int = 0  # Of the encoded request
    state: JobState = field(init=False)
    started_at: float | None = None
    ended_at: float | None = None
    is_durable: bool = field(init=False)  # It can run without its client's arrays

    priority: int = field(init=False)
    is_held: bool = field(init=False)
    # Job that hasn't ended yet -> the outcomes it must have
    after: dict[int, set[Condition]] = field(init=False)
    # Its age: of two waiting jobs of equal priority, the smaller runs first. Its number, or for
    # further runs the largest number so far and a count.
    place: tuple[int, int] = field(init=False)
    retries: int = field(init=False)
    starts: int = 0  # Without an end, by all daemons, since one that got further on disk
    failures: int = 0  # Runs that used a retry, and why those of this daemon failed:
    failure_notes: list[str] = field(default_factory=list)
    checkpoint: str = ""  # The file from which a later run continues

    # Called once: with None when its clients may know that it is accepted (a durable job is on
    # disk), or with the reason why it is refused.
    confirmations: list[OnConfirmed] = field(default_factory=list)
    ending: Ended | None = None  # Its end, before the journal has that
    # Complete output files of which the journal may know: it isn't run again
    prepared: tuple[PreparedOutput, ...] = ()

    followers: list[Follower] = field(default_factory=list)
    reported_at: float = 0.0
    # Result segment to which the job holds a reference -> bytes, until `keep_until`, or until
    # others need the memory, but then not before `fetch_deadline`
    kept_results: dict[int, int] = field(default_factory=dict)
    awaited_by: set[int] = field(default_factory=set)  # Followers that haven't fetched them yet
    fetch_deadline: float = 0.0
    keep_until: float = 0.0

    turn: float = 0.0  # When its turn came first; 0: it hasn't
    # The engine's ResolvedJob: as it was checked, and with its files open, for its run
    checked: Any = None
    opened: Any = None
    # End the job with it, once it is accepted, or its files have been opened
    stop: Exception | None = None
    runs_alone: bool = False  # It was tried beside another job
    release_segments: Callable[[], None] = lambda: None  # Of its request

    def __post_init__(self) -> None:
        self.priority, self.is_held = self.spec.priority, self.spec.hold
        self.retries = self.spec.retries
        self.after = {}
        for dependency in self.spec.after:
            self.after.setdefault(dependency.job, set()).add(dependency.condition)
        self.place = (self.number, 0)
        self.is_durable = not arena_refs(self.spec)
        self.state = Queued(self.number, 0)

    @property
    def has_ended(self) -> bool:
        return isinstance(self.state, Ended)

    @property
    def is_ready(self) -> bool:
        """Whether only its turn is missing."""
        return not self.is_held and not self.after

    @property
    def outcome(self) -> Outcome | None:
        """How it ended, on disk or not yet; None: it hasn't."""
        end = self.state if isinstance(self.state, Ended) else self.ending
        if end is None:
            return None
        return outcome(end.error if isinstance(end, Failed) else None)

    @property
    def expires(self) -> float:
        return max(self.keep_until, self.fetch_deadline)

    def stop_awaiting(self, client: int) -> None:
        """Note that `client` has fetched the results, or has ended."""
        self.awaited_by.discard(client)
        if not self.awaited_by:
            self.fetch_deadline = 0.0


def unstarted(job: Job, error: ErrorRecord) -> Failed:
    """Return the end of a job that never began to compute."""
    return Failed(job.number, report_without_run(job, outcome(error), error=error), error)


def report_without_run(job: Job, state: str, **more: Any) -> JobReport:
    """Return the report of a job of which nothing is known but its request."""
    spec = job.spec
    return JobReport(
        job=job.number, state=state, workload=spec.workload, load=0, params=spec.params, **more
    )
