"""Which job runs next: events in, decisions out. Pure; `now` is seconds since the epoch.

The order is strict: a larger priority runs first, however long others have waited; jobs of equal
priority run in the order in which they were submitted. So nothing starves among equals, but a job
of lower priority waits as long as higher ones keep coming (`prioritize` helps it).

A job is waiting until `start`, and running until `end` or `requeue`. Waiting jobs are ready unless
they are held or run after jobs that haven't ended. The scheduler takes them from `ready`, and
decides how many run at once.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator

from hetsched.bounded_cache import BoundedCache
from hetsched.engine.queue.ready_line import OrderKey, ReadyLine
from hetsched.engine.queue.records import (
    PERMANENT_CODES,
    AbortJob,
    Decision,
    FailJob,
    Outcome,
    Position,
    QueuedTerms,
    ReportPosition,
)
from hetsched.errors import InputMissing, JobFailed, UsageError
from hetsched.job import Dependency

MAX_OUTCOMES = 10_000
"""Ended jobs whose outcome is remembered for `--after`, about 100 bytes each. Arbitrary."""
SPARE_DEADLINES = 1000
"""Deadlines of ended jobs that may be kept, so that most jobs end without a search. Arbitrary."""


class JobQueue:
    """All unfinished jobs of one engine. Costs are O(log n) comparisons, unless stated."""

    def __init__(self) -> None:
        self._waiting: dict[int, QueuedTerms] = {}
        self._running: dict[int, QueuedTerms] = {}
        self._ready = ReadyLine()
        self._dependents: dict[int, set[int]] = {}
        self._deadlines: list[tuple[float, int]] = []
        self._outcomes: BoundedCache[int, Outcome] = BoundedCache(max_entries=MAX_OUTCOMES)
        self._expected: set[int] = set()
        self._largest_number = 0
        self._requeues = 0

    def __len__(self) -> int:
        """Count the jobs that wait or run."""
        return len(self._waiting) + len(self._running)

    def __contains__(self, number: int) -> bool:
        return number in self._waiting or number in self._running

    @property
    def is_idle(self) -> bool:
        """Whether no job runs or may start."""
        return not self._running and not self._ready

    def is_waiting(self, number: int) -> bool:
        return number in self._waiting

    def waiting(self) -> tuple[int, ...]:
        """Return all waiting jobs by number. O(n log n)."""
        return tuple(sorted(self._waiting))

    def terms(self, number: int) -> QueuedTerms:
        """Return the terms of an unfinished job. Raises KeyError."""
        return self._waiting.get(number) or self._running[number]

    # ---- the order

    def ready(self) -> Iterator[int]:
        """Iterate over the jobs that may start now, the first in line first.

        Don't change the queue meanwhile.
        """
        return iter(self._ready)

    def first(self) -> int | None:
        """Return the job that is first in line, None if none may start."""
        return self._ready.first()

    def position(self, number: int) -> Position:
        """Return where a waiting job stands. Raises KeyError."""
        job = self._waiting[number]
        before = self._ready.index(_key(job))
        ahead = before + len(self._running)
        if job.is_held:
            return Position(ahead, "held")
        if job.after:
            return Position(ahead, f"after {', '.join(map(str, sorted(job.after)))}")
        return Position(ahead, "priority" if before else "resources")

    # ---- events

    def check(self, after: tuple[Dependency, ...]) -> None:
        """Raise InputMissing if a job that `after` names isn't known."""
        for dependency in after:
            number = dependency.job
            if not self._will_end(number) and number not in self._outcomes:
                raise InputMissing(
                    f"after: there is no job {number}, or it ended too long ago;"
                    " `hetsched status` lists the jobs"
                )

    def expect(self, number: int) -> None:
        """Note that a job is going to be submitted, so that others may run after it."""
        if number not in self:
            self._expected.add(number)

    def remember(self, number: int, outcome: Outcome) -> list[Decision]:
        """Note how a job ended that isn't in the queue; those that run after it see that."""
        self._expected.discard(number)
        return self._conclude([(QueuedTerms(number), outcome)])

    def submit(self, job: QueuedTerms, now: float, is_known: bool = False) -> list[Decision]:
        """Add a job. One that can't ever run, or is too late, fails at once.

        `is_known`: an earlier queue has accepted it; then jobs that it runs after and that are
        forgotten have ended as they should, or it would have failed.
        """
        assert job.number not in self
        self._expected.discard(job.number)
        self._largest_number = max(self._largest_number, job.number)
        job.place = (job.number, 0)
        self._waiting[job.number] = job
        if job.deadline is not None:
            self._add_deadline(job.deadline, job.number)
        for earlier in list(job.after):
            outcome = self._outcomes.peek(earlier)
            if self._will_end(earlier):
                self._dependents.setdefault(earlier, set()).add(job.number)
            elif outcome is None and is_known:
                del job.after[earlier]
            elif not self._settle(job, earlier, outcome):
                return self._fail(job, _never(job, earlier, outcome))
        if job.deadline is not None and job.deadline <= now:
            return self._fail(job, _too_late(job, "before it could start"))
        self._update_order(job)
        return []

    def hold(self, number: int) -> list[Decision]:
        """Keep a waiting job from starting. Raises UsageError if it runs."""
        return self._set_held(self._changeable(number, "held"), True)

    def release(self, number: int) -> list[Decision]:
        """Undo `hold`. Raises UsageError if the job runs."""
        return self._set_held(self._changeable(number, "released"), False)

    def prioritize(self, number: int, priority: int) -> list[Decision]:
        """Change a waiting job's priority. Raises UsageError if it runs."""
        job = self._changeable(number, "given another priority")
        if priority == job.priority:
            return []
        self._ready.discard(_key(job))
        job.priority = priority
        self._update_order(job)
        return [ReportPosition(number)]

    def start(self, number: int) -> None:
        """Note that a waiting job runs now."""
        job = self._waiting.pop(number)
        self._ready.discard(_key(job))
        job.attempts += 1
        self._running[number] = job

    def requeue(self, number: int, code: int) -> bool:
        """Let a running job whose attempt failed with exit `code` wait for another one.

        It waits behind the others of its priority. Return False, and change nothing, if it has no
        retries left or another attempt would only repeat the error.
        """
        job = self._running[number]
        if code in PERMANENT_CODES or job.failures >= job.retries:
            return False
        del self._running[number]
        job.failures += 1
        self._requeues += 1
        job.place = (self._largest_number, self._requeues)
        self._waiting[number] = job
        self._update_order(job)
        return True

    def put_back(self, number: int) -> None:
        """Let a running job wait at its old place: it never really started."""
        job = self._running.pop(number)
        job.attempts -= 1
        self._waiting[number] = job
        self._update_order(job)

    def end(self, number: int, outcome: Outcome) -> list[Decision]:
        """Remove a job that has ended; the jobs that run after it become ready, or fail.

        Those that fail have left the queue with their own dependents, in the order returned.
        """
        job = self._waiting.pop(number, None)
        if job is not None:
            self._ready.discard(_key(job))
        else:
            job = self._running.pop(number)
        return self._conclude([(job, outcome)])

    # ---- time

    def next_deadline(self) -> float | None:
        """Return when `expire` should be called next, seconds since the epoch."""
        while self._deadlines and self._deadlines[0][1] not in self:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def expire(self, now: float) -> list[Decision]:
        """Fail the waiting jobs and abort the running ones whose deadline has passed."""
        decisions: list[Decision] = []
        while self._deadlines and self._deadlines[0][0] <= now:
            _, number = heapq.heappop(self._deadlines)
            if number in self._waiting:
                job = self._waiting[number]
                decisions += self._fail(job, _too_late(job, "while it was waiting"))
            elif number in self._running:
                job = self._running[number]
                job.retries = 0
                decisions.append(AbortJob(number, _too_late(job, "while it was running")))
        return decisions

    # ---- inner steps

    def _changeable(self, number: int, change: str) -> QueuedTerms:
        job = self._waiting.get(number)
        if job is not None:
            return job
        if number in self._running:
            raise UsageError(f"job {number} is running; only a waiting job can be {change}")
        raise InputMissing(f"job {number} isn't in the queue; only a waiting job can be {change}")

    def _set_held(self, job: QueuedTerms, is_held: bool) -> list[Decision]:
        if job.is_held == is_held:
            return []
        job.is_held = is_held
        self._update_order(job)
        return [ReportPosition(job.number)]

    def _update_order(self, job: QueuedTerms) -> None:
        """Put a waiting job into the order if it is ready, else take it out."""
        self._ready.discard(_key(job))
        if job.is_ready:
            self._ready.add(_key(job))

    def _will_end(self, number: int) -> bool:
        return number in self or number in self._expected

    def _note(self, number: int, outcome: Outcome) -> None:
        self._outcomes.put(number, outcome)

    def _add_deadline(self, deadline: float, number: int) -> None:
        """Note a deadline; drop those of ended jobs when they are the most."""
        heapq.heappush(self._deadlines, (deadline, number))
        if len(self._deadlines) > 2 * len(self) + SPARE_DEADLINES:
            self._deadlines = [entry for entry in self._deadlines if entry[1] in self]
            heapq.heapify(self._deadlines)

    def _settle(self, job: QueuedTerms, earlier: int, outcome: Outcome | None) -> bool:
        """Drop a dependency on a job that has ended; return whether it was met."""
        conditions = job.after.pop(earlier)
        return outcome is not None and all(map(outcome.meets, conditions))

    def _fail(self, job: QueuedTerms, error: JobFailed) -> list[Decision]:
        """Fail a waiting job and those that can't run without it."""
        del self._waiting[job.number]
        self._ready.discard(_key(job))
        return [FailJob(job.number, error), *self._conclude([(job, Outcome.FAILED)])]

    def _conclude(self, ended: list[tuple[QueuedTerms, Outcome]]) -> list[Decision]:
        """Apply the outcomes of jobs that have left the queue to those that run after them.

        A loop rather than recursion: a chain may have as many jobs as the queue.
        """
        decisions: list[Decision] = []
        remaining = deque(ended)
        while remaining:
            job, outcome = remaining.popleft()
            self._note(job.number, outcome)
            for earlier in job.after:
                self._dependents.get(earlier, set()).discard(job.number)
            for number in sorted(self._dependents.pop(job.number, ())):
                later = self._waiting.get(number)
                if later is None:
                    continue  # it has failed in this loop because of another job
                if not self._settle(later, job.number, outcome):
                    del self._waiting[number]
                    for other in later.after:
                        self._dependents[other].discard(number)
                    remaining.append((later, Outcome.FAILED))
                    decisions.append(FailJob(number, _never(later, job.number, outcome)))
                    continue
                self._update_order(later)
                decisions.append(ReportPosition(number))
        return decisions


def _key(job: QueuedTerms) -> OrderKey:
    return -job.priority, job.place, job.number


def _never(job: QueuedTerms, earlier: int, outcome: Outcome | None) -> JobFailed:
    """Return the error of a job that waits for an outcome that can no longer come."""
    if outcome is None:
        return JobFailed(f"job {job.number} runs after job {earlier}, whose outcome isn't known")
    ended = {Outcome.DONE: "succeeded", Outcome.FAILED: "failed"}.get(outcome, "was cancelled")
    wanted = "fails" if outcome is Outcome.DONE else "succeeds"
    return JobFailed(
        f"job {job.number} was to run only if job {earlier} {wanted}, but job {earlier} {ended}"
    )


def _too_late(job: QueuedTerms, when: str) -> JobFailed:
    return JobFailed(f"job {job.number}: its deadline passed {when}")
