"""Writes that wait for the next commit, and when that is due. Pure: `now` is monotonic seconds.

A commit costs a write to the disk, and a volatile job lasts a millisecond. So a volatile job that
has ended before its commit was due needs none for itself: it is written, as a `WholeJob`, with the
next commit or after `HISTORY_SECONDS`, whichever comes first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hetsched.store.journal.records import (
    JobAccepted,
    JobEnded,
    JobStarted,
    NumbersReserved,
    Record,
    WholeJob,
)

GATHER_SECONDS = 0.05
"""How long a write that isn't urgent may wait."""
ACCEPTANCE_SECONDS = 0.5
"""How long the acceptance of a volatile job may wait, or twice that if the journal's thread is
waiting for something later: waking it costs a tenth of a millisecond on a core that computes, and
a commit costs milliseconds. The client of a job that is missing after a crash submits it again.
Arbitrary."""
HISTORY_SECONDS = 2.0
"""How long a volatile job that has ended may be missing on disk. Arbitrary."""
MAX_WHOLE_JOBS = 256
"""Volatile jobs that have ended and wait; more are written at once."""
MAX_UNWRITTEN_WHOLE_JOBS = 1024
"""More, while the disk doesn't respond or is full, and the oldest are dropped from history."""

OnWritten = Callable[[BaseException | None], None]


class Write(NamedTuple):
    """Records that are written together, or not at all.

    Without `on_done` they are kept and written again until that succeeds.
    """

    records: Sequence[Record]
    on_done: OnWritten | None = None


@dataclass
class _Volatile:
    """A volatile job whose acceptance waits."""

    accepted: JobAccepted
    due: float
    started: JobStarted | None = None


class PendingWrites:
    """Writes in order of arrival, and volatile jobs by number."""

    def __init__(self) -> None:
        self._writes: list[Write] = []
        self._due = math.inf
        self._open: dict[int, _Volatile] = {}
        self._whole: dict[int, WholeJob] = {}
        self._whole_due = math.inf
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._writes) + len(self._open) + len(self._whole)

    def add(self, write: Write, urgent: bool, now: float) -> None:
        """Add a write, which is due at once if `urgent`."""
        is_plain = write.on_done is None and not urgent and len(write.records) == 1
        if is_plain and self._add_volatile(write.records[0], now):
            return
        self._writes.append(write)
        self._due = min(self._due, now if urgent else now + GATHER_SECONDS)

    def add_failed(self, writes: Iterable[Write], retry_at: float) -> None:
        """Put back writes that are to be written again, before all others."""
        kept = list(writes)
        self._writes[:0] = kept
        if kept:
            self._due = min(self._due, retry_at)
        self._drop_oldest_failed()

    def due(self) -> float:
        """Return when the next commit is due; infinite: not at all."""
        return min(self._due, self._first_open_due(), self._whole_due)

    def latest_due(self) -> float:
        """Return when a thread that waits for a later commit must be woken for an earlier one."""
        return min(self._due, self._first_open_due() + ACCEPTANCE_SECONDS, self._whole_due)

    def take(self, now: float = math.inf) -> list[Write]:
        """Remove and return what a commit at `now` writes; without `now`, everything.

        Volatile jobs whose acceptance isn't due yet are left out if nothing in the commit can
        depend on them: most end before it is due. Else the end of each job would need a commit,
        and take the acceptance of the next job with it.
        """
        early = {}
        if all(map(_stands_alone, self._writes)):
            early = {number: job for number, job in self._open.items() if job.due > now}
        whole = [Write((job,)) for job in self._whole.values()]
        accepted = [_unwritten(job) for number, job in self._open.items() if number not in early]
        writes = [*whole, *accepted, *self._writes]
        self._writes, self._open, self._whole = [], early, {}
        self._due = self._whole_due = math.inf
        return writes

    def take_awaited(self) -> list[Write]:
        """Remove and return the writes that someone waits for."""
        awaited = [write for write in self._writes if write.on_done is not None]
        self._writes = [write for write in self._writes if write.on_done is None]
        return awaited

    def _first_open_due(self) -> float:
        return next(iter(self._open.values())).due if self._open else math.inf

    def _add_volatile(self, record: Record, now: float) -> bool:
        """Add a record of a volatile job; return whether it is one whose acceptance waits."""
        if isinstance(record, JobAccepted) and not record.durable:
            self._open[record.number] = _Volatile(record, now + ACCEPTANCE_SECONDS)
            return True
        if isinstance(record, JobStarted) and record.number in self._open:
            self._open[record.number].started = record
            return True
        if isinstance(record, JobEnded) and record.number in self._open:
            job = self._open.pop(record.number)
            self._whole[record.number] = WholeJob(job.accepted, job.started, record)
            full = len(self._whole) >= MAX_WHOLE_JOBS
            self._whole_due = min(self._whole_due, now if full else now + HISTORY_SECONDS)
            self._drop_oldest_whole()
            return True
        return False

    def _drop_oldest_whole(self) -> None:
        """Bound the jobs that wait while the disk doesn't respond."""
        while len(self._whole) > MAX_UNWRITTEN_WHOLE_JOBS:
            del self._whole[next(iter(self._whole))]
            self.dropped += 1

    def _drop_oldest_failed(self) -> None:
        """Bound the jobs that wait while nothing can be written."""
        whole = [write for write in self._writes if _is_whole_job(write)]
        oldest = {id(write) for write in whole[:-MAX_UNWRITTEN_WHOLE_JOBS]}
        if oldest:
            self._writes = [write for write in self._writes if id(write) not in oldest]
            self.dropped += len(oldest)


def _is_whole_job(write: Write) -> bool:
    """Return whether it is of a job in history; one that only waits for others has no record."""
    return any(isinstance(record, WholeJob) for record in write.records)


def _stands_alone(write: Write) -> bool:
    """Return whether no volatile job that waits has to be written with it, or before.

    A write without records is that of someone who waits for all others.
    """
    alone = JobStarted | JobEnded | WholeJob | NumbersReserved
    return bool(write.records) and all(isinstance(record, alone) for record in write.records)


def _unwritten(job: _Volatile) -> Write:
    records: list[Record] = [job.accepted]
    if job.started is not None:
        records.append(job.started)
    return Write(tuple(records))
