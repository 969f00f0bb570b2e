"""What is written to the journal, and what is read from it. No behaviour, no I/O.

Times are seconds since the epoch. A field may be added with a default; other changes need a new
version of the file (`tables.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import msgspec

from hetsched.job import Done, Failed, JobSpec
from hetsched.store.arrays.publication import PreparedOutput

Stage = Literal["queued", "running", "publishing", "done", "failed", "cancelled"]
ENDED_STAGES = ("done", "failed", "cancelled")


class NumbersReserved(msgspec.Struct, frozen=True):
    """Numbers up to this one may be given to jobs (see `job_numbers.py`)."""

    upto: int


class JobAccepted(msgspec.Struct, frozen=True):
    """A job is in the queue. `client_id`: chosen by the client; "" if it chose none."""

    number: int
    spec: JobSpec
    client_id: str
    submitted_at: float
    durable: bool
    held: bool = False


class JobStarted(msgspec.Struct, frozen=True):
    """`attempt`: how often the job has been started, this time included; `failures`: how many of
    its retries are used."""

    number: int
    attempt: int
    at: float = 0.0
    failures: int = 0


class JobPublishing(msgspec.Struct, frozen=True):
    """The results are on disk, and about to get their names: from now on the job isn't rerun."""

    number: int
    outputs: tuple[PreparedOutput, ...]


class JobEnded(msgspec.Struct, frozen=True):
    number: int
    state: Done | Failed
    at: float = 0.0


class JobChanged(msgspec.Struct, frozen=True):
    """A waiting job's priority or hold has been changed; None: as before."""

    number: int
    priority: int | None = None
    held: bool | None = None


class JobsForgotten(msgspec.Struct, frozen=True):
    numbers: tuple[int, ...]


class WholeJob(msgspec.Struct, frozen=True):
    """A volatile job, which is written once, when it has ended."""

    accepted: JobAccepted
    started: JobStarted | None
    ended: JobEnded


Record = (
    NumbersReserved
    | JobAccepted
    | JobStarted
    | JobPublishing
    | JobEnded
    | JobChanged
    | JobsForgotten
    | WholeJob
)

OnWritten = Callable[[BaseException | None], None]


class Write(NamedTuple):
    """Records that are written together, or not at all.

    Without `on_done` they are kept and written again until that succeeds.
    """

    records: Sequence[Record]
    on_done: OnWritten | None = None


class JournaledJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job as the journal holds it. `state`: None until it has ended."""

    number: int
    spec: JobSpec
    client_id: str = ""
    submitted_at: float
    durable: bool
    stage: Stage = "queued"
    priority: int = 0
    held: bool = False
    attempts: int = 0
    failures: int = 0
    started_at: float | None = None
    outputs: tuple[PreparedOutput, ...] = ()
    """Those about to be named, in stage "publishing"."""
    ended_at: float | None = None
    state: Done | Failed | None = None


@dataclass(frozen=True)
class JournalContents:
    """What a daemon needs at its start.

    Attributes
    ----------
    next_number : int
        Never given to a job before.
    reserved : int
        Numbers up to this one are reserved; at least `next_number`.
    open_jobs : tuple
        All jobs that haven't ended, by number.
    ended_jobs : tuple
        The last ones that ended, by number.
    token : str
        Distinguishes this journal's hidden output files from others'.
    """

    next_number: int
    reserved: int
    open_jobs: tuple[JournaledJob, ...] = ()
    ended_jobs: tuple[JournaledJob, ...] = ()
    token: str = ""


@dataclass(frozen=True)
class HistoryFilter:
    """Which jobs `Journal.query` returns, newest first; None: any."""

    stages: tuple[Stage, ...] = ()
    workload: str | None = None
    label: str | None = None
    client_id: str | None = None
    numbers: tuple[int, ...] = ()
    since: float | None = None
    until: float | None = None
    before: int | None = None
    """Only jobs with smaller numbers, for the next page."""
    limit: int = 100


@dataclass(frozen=True)
class HistoryBounds:
    """Ended jobs that are kept: the newest `jobs`, for `seconds`, in `nbytes` altogether."""

    jobs: int = 10_000
    seconds: float = 30 * 86400.0
    nbytes: int = 64 << 20
