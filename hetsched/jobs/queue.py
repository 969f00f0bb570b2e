"""Which job runs next: by priority, then by age. Pure; `now` is seconds since the epoch.

A job is waiting until `start`, and running until `end` or `requeue`. Waiting jobs are ready unless
they are held or run after jobs that haven't ended.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterator

from hetsched import errors
from hetsched.bounded_cache import BoundedCache
from hetsched.job import Condition, Dependency, Outcome, Queued
from hetsched.jobs.table import JobRecord

PERMANENT_CODES = {2, 65, 66, 76, 77, 78, 130}
"""Errors that another run would only repeat: the request, the data, permissions; cancelled."""
MAX_OUTCOMES = 10_000
"""Ended jobs whose outcome is remembered for `--after`, about 100 bytes each."""

Change = tuple[JobRecord, errors.HetschedError | None]
"""A waiting job that now waits for something else (None); one that has left the queue, because it
can't run any more; or a running one that must stop. The caller reports it."""

_Key = tuple[int, int, int, int]


class JobQueue:
    def __init__(self) -> None:
        self._waiting: dict[int, JobRecord] = {}
        self._running: dict[int, JobRecord] = {}
        # Sorted; moving 10,000 of them for an insertion takes a microsecond.
        self._ready: list[_Key] = []
        self._dependents: dict[int, set[int]] = {}
        self._deadlines: dict[int, float] = {}
        self._outcomes: BoundedCache[int, Outcome] = BoundedCache(max_entries=MAX_OUTCOMES)
        self._largest_number = 0
        self._requeues = 0

    def __len__(self) -> int:
        return len(self._waiting) + len(self._running)

    def __contains__(self, job: JobRecord) -> bool:
        return job.number in self._waiting or job.number in self._running

    @property
    def is_idle(self) -> bool:
        has_begun = any(job.held is not None for job in self._waiting.values())
        return not (self._running or self._ready or has_begun)

    def is_waiting(self, job: JobRecord) -> bool:
        return job.number in self._waiting

    def waiting(self) -> list[JobRecord]:
        return [job for _, job in sorted(self._waiting.items())]

    def unfinished(self, number: int) -> JobRecord | None:
        return self._waiting.get(number) or self._running.get(number)

    def ready(self) -> Iterator[JobRecord]:
        """Iterate over the jobs that may start now, in line. Don't change the queue meanwhile."""
        return (self._waiting[number] for *_, number in self._ready)

    def first(self) -> JobRecord | None:
        return self._waiting[self._ready[0][-1]] if self._ready else None

    def position(self, job: JobRecord, reason: str = "") -> Queued:
        """Return where a waiting job stands, and what it waits for unless a `reason` is given."""
        before = bisect_left(self._ready, _key(job))
        if not reason:
            reason = "priority" if before else "resources"
            if job.is_held:
                reason = "held"
            elif job.after:
                reason = f"after {', '.join(map(str, sorted(job.after)))}"
        return Queued(job.number, before + len(self._running), reason, job.failures, job.held)

    def check(self, after: tuple[Dependency, ...]) -> None:
        for dependency in after:
            number = dependency.job
            if self.unfinished(number) is None and number not in self._outcomes:
                raise errors.InputMissing(
                    f"after: there is no job {number}, or it ended too long ago;"
                    " `hetsched status` lists the jobs"
                )

    def remember(self, number: int, outcome: Outcome) -> None:
        """Note how a job of an earlier daemon ended: others may run after it."""
        self._outcomes.put(number, outcome)

    def add(self, job: JobRecord, now: float, is_known: bool = False) -> list[Change]:
        """Add a job. One that can't ever run, or is too late, fails at once.

        `is_known`: an earlier daemon has accepted it; forgotten jobs have ended as they should.
        """
        assert job not in self
        self._largest_number = max(self._largest_number, job.number)
        self._waiting[job.number] = job
        if job.spec.deadline is not None:
            self._deadlines[job.number] = job.spec.deadline
        for earlier in list(job.after):
            outcome = self._outcomes.peek(earlier)
            if self.unfinished(earlier) is not None:
                self._dependents.setdefault(earlier, set()).add(job.number)
            elif outcome is None and is_known:
                del job.after[earlier]
            elif not _settle(job, earlier, outcome):
                return self._fail(job, _never(job, earlier, outcome))
        if job.spec.deadline is not None and job.spec.deadline <= now:
            return self._fail(job, _too_late(job, "before it could start"))
        self._enter_line(job)
        return []

    def hold(self, job: JobRecord, is_held: bool) -> bool:
        if job.number not in self._waiting:
            raise _not_waiting(job, "held" if is_held else "released")
        if job.is_held == is_held:
            return False
        job.is_held = is_held
        if is_held:
            self._leave_line(job)
        else:
            self._enter_line(job)
        return True

    def prioritize(self, job: JobRecord, priority: int) -> bool:
        if job.number not in self._waiting:
            raise _not_waiting(job, "given another priority")
        if priority == job.priority:
            return False
        self._leave_line(job)
        job.priority = priority
        self._enter_line(job)
        return True

    def start(self, job: JobRecord) -> None:
        del self._waiting[job.number]
        self._leave_line(job)
        self._running[job.number] = job

    def requeue(self, job: JobRecord, code: int) -> bool:
        """Let a job whose run failed wait for another one, behind the others of its priority.

        If it may have none, return False, and change nothing.
        """
        if code in PERMANENT_CODES or job.failures >= job.retries:
            return False
        job.failures += 1
        self._requeues += 1
        job.place = (self._largest_number, self._requeues)
        self.put_back(job)
        return True

    def put_back(self, job: JobRecord) -> None:
        """Let a running job wait at its place: it never really started."""
        del self._running[job.number]
        self._waiting[job.number] = job
        self._enter_line(job)

    def end(self, job: JobRecord, outcome: Outcome) -> list[Change]:
        """Remove a job that has ended; the jobs that run after it become ready, or fail."""
        if self._waiting.pop(job.number, None) is not None:
            self._leave_line(job)
        else:
            del self._running[job.number]
        return self._conclude(job, outcome)

    def next_deadline(self) -> float | None:
        """Return when `expire` should be called next, seconds since the epoch."""
        return min(self._deadlines.values(), default=None)

    def expire(self, now: float) -> list[Change]:
        """Fail the waiting jobs, and have the running ones stopped, whose deadline has passed."""
        changes: list[Change] = []
        for number in [each for each, due in self._deadlines.items() if due <= now]:
            self._deadlines.pop(number, None)  # it may have failed in this loop
            job = self.unfinished(number)
            if job is not None and number in self._waiting and job.held is None:
                changes += self._fail(job, _too_late(job, "while it was waiting"))
            elif job is not None:
                job.retries = 0
                changes.append((job, _too_late(job, "while it was running")))
        return changes

    def _enter_line(self, job: JobRecord) -> None:
        if job.is_ready:
            insort(self._ready, _key(job))

    def _leave_line(self, job: JobRecord) -> None:
        key = _key(job)
        index = bisect_left(self._ready, key)
        if self._ready[index : index + 1] == [key]:
            del self._ready[index]

    def _fail(self, job: JobRecord, error: errors.JobFailed) -> list[Change]:
        del self._waiting[job.number]
        self._leave_line(job)
        return [(job, error), *self._conclude(job, "failed")]

    def _conclude(self, ended: JobRecord, outcome: Outcome) -> list[Change]:
        """Apply an outcome to the jobs that run after it: a chain of them may be long."""
        changes: list[Change] = []
        remaining = deque([(ended, outcome)])
        while remaining:
            job, outcome = remaining.popleft()
            self._outcomes.put(job.number, outcome)
            self._deadlines.pop(job.number, None)
            for earlier in job.after:
                self._dependents.get(earlier, set()).discard(job.number)
            for number in sorted(self._dependents.pop(job.number, ())):
                later = self._waiting.get(number)
                if later is None:
                    continue  # it has failed in this loop because of another job
                if _settle(later, job.number, outcome):
                    self._enter_line(later)
                    changes.append((later, None))
                    continue
                del self._waiting[number]
                remaining.append((later, "failed"))
                changes.append((later, _never(later, job.number, outcome)))
        return changes


def _key(job: JobRecord) -> _Key:
    return -job.priority, *job.place, job.number


def _not_waiting(job: JobRecord, change: str) -> errors.UsageError:
    why = f"has already ended: {job.outcome}" if job.outcome is not None else "is running"
    return errors.UsageError(f"job {job.number} {why}; only a waiting job can be {change}")


def _settle(job: JobRecord, earlier: int, outcome: Outcome | None) -> bool:
    """Drop a dependency on a job that has ended; return whether it was met."""
    conditions = job.after.pop(earlier)
    return outcome is not None and all(_meets(outcome, each) for each in conditions)


def _meets(outcome: Outcome, condition: Condition) -> bool:
    return condition == "any" or (condition == "ok") == (outcome == "done")


def _never(job: JobRecord, earlier: int, outcome: Outcome | None) -> errors.JobFailed:
    if outcome is None:
        return errors.JobFailed(
            f"job {job.number} runs after job {earlier}, whose outcome isn't known"
        )
    ended = {"done": "succeeded", "failed": "failed"}.get(outcome, "was cancelled")
    wanted = "fails" if outcome == "done" else "succeeds"
    return errors.JobFailed(
        f"job {job.number} was to run only if job {earlier} {wanted}, but job {earlier} {ended}"
    )


def _too_late(job: JobRecord, when: str) -> errors.JobFailed:
    return errors.JobFailed(f"job {job.number}: its deadline passed {when}")
