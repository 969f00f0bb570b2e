"""Records of the queue: a job's terms, its outcome, and what the queue decides. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from hetsched.errors import Cancelled, ErrorRecord, HetschedError
from hetsched.job import Condition, JobSpec

PERMANENT_CODES = {2, 65, 66, 76, 77, 78, 130}
"""Errors that another attempt would only repeat: the request, the data, permissions; cancelled."""


class Outcome(Enum):
    """How a job ended."""

    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @classmethod
    def of(cls, error: ErrorRecord | None) -> Outcome:
        if error is None:
            return cls.DONE
        return cls.CANCELLED if error.code == Cancelled.code else cls.FAILED

    def meets(self, condition: Condition) -> bool:
        """Whether a job that runs after this outcome on `condition` may run."""
        return condition == "any" or (condition == "ok") == (self is Outcome.DONE)


@dataclass
class QueuedTerms:
    """What the queue knows about one unfinished job.

    Attributes
    ----------
    after : dict
        Job that hasn't ended yet -> the outcomes it must have.
    deadline : float or None, seconds since the epoch
    attempts : int
        Starts so far.
    failures : int
        Attempts that failed and were queued again.
    place : tuple
        Its age: of two jobs of equal priority, the smaller runs first. The number of the job, or
        for further attempts the largest number so far, and a count.
    """

    number: int
    priority: int = 0
    is_held: bool = False
    after: dict[int, set[Condition]] = field(default_factory=dict)
    deadline: float | None = None
    retries: int = 0
    attempts: int = 0
    failures: int = 0
    place: tuple[int, int] = (0, 0)

    @classmethod
    def of(cls, number: int, spec: JobSpec) -> QueuedTerms:
        """Return the terms of a new job."""
        after: dict[int, set[Condition]] = {}
        for dependency in spec.after:
            after.setdefault(dependency.job, set()).add(dependency.condition)
        return cls(number, spec.priority, spec.hold, after, spec.deadline, spec.retries)

    @property
    def is_ready(self) -> bool:
        """Whether only its turn is missing."""
        return not self.is_held and not self.after


@dataclass(frozen=True)
class Position:
    """Where a waiting job stands: `ahead` jobs run or are ready before it."""

    ahead: int
    reason: str


@dataclass(frozen=True)
class FailJob:
    """A waiting job can't run any more: report its failure. It has left the queue."""

    number: int
    error: HetschedError


@dataclass(frozen=True)
class AbortJob:
    """A running job must stop."""

    number: int
    error: HetschedError


@dataclass(frozen=True)
class ReportPosition:
    """A waiting job now waits for something else: tell its followers."""

    number: int


Decision = FailJob | AbortJob | ReportPosition
