"""All jobs that are known: unfinished ones, and ended ones with the results they keep."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from hetsched.errors import InputMissing, TryAgain
from hetsched.jobs.job import Job, Owner
from hetsched.store.job_numbers import NumberBlocks
from hetsched.units import format_bytes

MAX_ENDED_JOBS = 1000
"""Ended jobs that are remembered; the journal remembers more."""
ENDED_BYTES = 2000
"""Of an ended job, besides its request."""
RESERVED_FRACTION = 8
"""One eighth of the queue and of the shared memory is out of reach of any single client, so that
others can still submit something."""


@dataclass(frozen=True)
class Limits:
    """Limits on what is kept, and for how long. Bytes, seconds."""

    results: int = 1 << 30
    results_for: float = 600.0
    fetch_for: float = 5.0  # At least, for clients that follow the job
    warm_for: float = 60.0  # Free memory, while there are neither clients nor jobs
    ended_jobs: int = 32 << 20  # Requests of all ended jobs that are remembered
    unread: int = 8 << 20  # Replies to one client that doesn't read
    jobs_per_client: int | None = None  # Unfinished ones, of a user's session of processes
    parameters: int = 16 << 20  # Requests of all unfinished jobs
    followed_jobs: int = 1000  # By one connection


def share_of(total: int) -> int:
    """Return what one client may have of something that all clients share."""
    return total - total // RESERVED_FRACTION


class JobTable:
    """Jobs by number and by key. On the loop's thread only."""

    def __init__(self, limits: Limits, numbers: NumberBlocks) -> None:
        self.limits = limits
        self.numbers = numbers
        self.jobs: dict[int, Job] = {}  # All remembered ones; new ones once they are accepted
        self.unfinished: dict[int, Job] = {}  # Perhaps not accepted yet
        self.results = KeptResults()
        self._keys: dict[str, Job] = {}
        self._counts: Counter[Owner] = Counter()
        self._unfinished_bytes = 0
        self._ended: dict[int, Job] = {}
        self._ended_bytes = 0

    def job(self, number: int) -> Job:
        """Return a job. Raises InputMissing if it isn't known."""
        job = self.jobs.get(number)
        if job is None:
            newest = max(self.jobs, default=None)
            hint = "there are no jobs yet" if newest is None else f"the newest is {newest}"
            raise InputMissing(f"no job {number}; {hint} (`hetsched status` lists them)")
        return job

    def with_key(self, key: str) -> Job | None:
        """Return the job that was submitted with this key, or as this id."""
        return self._keys.get(key) if key else None

    def check_quota(self, owner: Owner) -> None:
        """Raise TryAgain if a client may submit nothing at present."""
        most = self.limits.jobs_per_client
        if most is not None and self._counts[owner] >= most:
            raise TryAgain(
                f"this client already has {most} unfinished jobs, which is the limit"
                " (queue.per_client in the config); try again when some have ended"
            )
        nbytes, limit = self._unfinished_bytes, self.limits.parameters
        if nbytes >= limit:
            raise TryAgain(
                f"the parameters of all unfinished jobs take {format_bytes(nbytes)}; the"
                f" limit is {format_bytes(limit)} (queue.parameters in the config);"
                " try again when some have ended"
            )

    def add(self, job: Job) -> None:
        """Add a job that hasn't ended."""
        self.unfinished[job.number] = job
        self._counts[job.owner] += 1
        self._unfinished_bytes += job.nbytes
        if job.key:
            self._keys[job.key] = job

    def accept(self, job: Job) -> None:
        """Show a job to clients."""
        job.is_accepted = True
        self.jobs[job.number] = job

    def end(self, job: Job) -> list[Job]:
        """Note that a job has ended; return those to forget."""
        self._remove_unfinished(job)
        return self.add_ended(job)

    def add_ended(self, job: Job) -> list[Job]:
        """Add a job that has ended; return those to forget, the oldest.

        One whose results are still being fetched is remembered until then.
        """
        self.jobs[job.number] = self._ended[job.number] = job
        if job.key:
            self._keys[job.key] = job
        self._ended_bytes += job.nbytes + ENDED_BYTES
        forgotten: list[Job] = []
        now = time.monotonic()
        count, nbytes = len(self._ended), self._ended_bytes
        for old in self._ended.values():
            if count <= MAX_ENDED_JOBS and nbytes <= self.limits.ended_jobs:
                break
            if old is not job and not (old.kept_results and now < old.fetch_deadline):
                forgotten.append(old)
                count -= 1
                nbytes -= old.nbytes + ENDED_BYTES
        for old in forgotten:
            self.forget(old)
        return forgotten

    def forget(self, job: Job) -> None:
        """Remove a job that has ended or was refused, except its results."""
        if self.unfinished.get(job.number) is job:
            self._remove_unfinished(job)
        self.jobs.pop(job.number, None)
        if self._ended.pop(job.number, None) is not None:
            self._ended_bytes -= job.nbytes + ENDED_BYTES
        if self._keys.get(job.key) is job:
            del self._keys[job.key]

    def _remove_unfinished(self, job: Job) -> None:
        del self.unfinished[job.number]
        self._unfinished_bytes -= job.nbytes
        self._counts[job.owner] -= 1
        if not self._counts[job.owner]:
            del self._counts[job.owner]


class KeptResults:
    """The jobs that keep results in shared memory, in the order in which these expire.

    Every operation takes constant time: thousands of jobs per second end and have their results
    fetched. `nbytes`: of all kept results. `spare`: result in free memory -> its job, and how
    often that memory had been used.
    """

    def __init__(self) -> None:
        self.nbytes = 0
        self.spare: dict[int, tuple[Job | None, int]] = {}
        self._jobs: dict[int, Job] = {}
        self._by_segment: dict[int, Job] = {}

    def __iter__(self) -> Iterator[Job]:
        """Iterate over a copy of the jobs, the first to expire first."""
        return iter(list(self._jobs.values()))

    def add(self, job: Job, segment: int, nbytes: int) -> None:
        """Keep a result of a job, which expires later than those of all jobs before it."""
        job.kept_results[segment] = nbytes
        self._jobs[job.number] = job
        self._by_segment[segment] = job
        self.nbytes += nbytes

    def remove(self, job: Job, segment: int) -> bool:
        """Stop keeping a result; return whether it was kept."""
        nbytes = job.kept_results.pop(segment, None)
        if nbytes is None:
            return False
        self.nbytes -= nbytes
        del self._by_segment[segment]
        if not job.kept_results:
            del self._jobs[job.number]
        return True

    def job_keeping(self, segment: int) -> Job | None:
        return self._by_segment.get(segment)

    def next_expiry(self) -> float | None:
        """Return when the first results expire, monotonic seconds."""
        first = next(iter(self._jobs.values()), None)
        return None if first is None else first.expires

    def expired(self, now: float) -> list[Job]:
        """Return the jobs whose results have expired, except behind one that is still awaited."""
        jobs = []
        for job in self._jobs.values():
            if now < job.expires:
                break
            jobs.append(job)
        return jobs
