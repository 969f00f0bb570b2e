"""One unfinished job of the engine, and its timers."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from hetsched.engine.admission.check import CheckedJob
from hetsched.engine.admission.resolved_job import ResolvedJob
from hetsched.engine.run.publish import OnPrepared
from hetsched.job import JobSpec, JobState
from hetsched.transport.loop import Loop, Timer

MAX_TIMER_SECONDS = 60.0
"""Deadlines are times of day, which may be set: they are compared with the clock this often."""

OnState = Callable[[JobState], None]


@dataclass(frozen=True)
class Readmission:
    """What is known of a job that an earlier engine has accepted.

    Attributes
    ----------
    attempts : int
        How often earlier engines have started it.
    failures : int
        How many of its retries are used.
    """

    attempts: int = 0
    failures: int = 0


@dataclass(eq=False)
class QueuedJob:
    """An accepted job. Its `held_segments` are retained until it ends.

    Attributes
    ----------
    checked : CheckedJob
        As checked at submission.
    on_prepared : callable or None
        Called when its output files are complete, before they get their names.
    job : ResolvedJob
        As it was bound last.
    is_open : bool
        `job` can run: it has no files, or they are open.
    failures : list of str
        Why earlier attempts failed, for the report.
    stop : Exception or None
        End the job with it, once its files have been opened.
    runs_alone : bool
        It may not run beside another job: it was tried.
    turn : float or None, seconds
        When its turn came first, on the monotonic clock.
    """

    number: int
    spec: JobSpec
    checked: CheckedJob
    held_segments: list[int]
    on_state: OnState
    on_prepared: OnPrepared | None = None
    job: ResolvedJob = field(init=False)
    is_open: bool = field(init=False)
    failures: list[str] = field(default_factory=list)
    stop: Exception | None = None
    runs_alone: bool = False
    turn: float | None = None

    def __post_init__(self) -> None:
        self.job = self.checked.job
        self.is_open = not self.checked.needs_files


class JobTimers:
    """Timers of an engine's jobs: one for the next deadline of all, one per running job.

    Parameters
    ----------
    on_deadline : callable
        Called when the next deadline may have passed.
    on_timeout : callable
        on_timeout(number): a job has run as long as it may.
    """

    def __init__(
        self, loop: Loop, on_deadline: Callable[[], None], on_timeout: Callable[[int], None]
    ) -> None:
        self._loop = loop
        self._on_deadline = on_deadline
        self._on_timeout = on_timeout
        self._due: float | None = None
        self._deadline_timer: Timer | None = None
        self._timeouts: dict[int, Timer] = {}

    def watch_deadline(self, deadline: float | None) -> None:
        """Call `on_deadline` at `deadline` (seconds since the epoch), or somewhat earlier."""
        if deadline is None:
            return
        seconds = min(max(0.0, deadline - time.time()), MAX_TIMER_SECONDS)
        due = time.monotonic() + seconds
        if self._due is None or due < self._due:
            self._due = due
            if self._deadline_timer is not None:
                self._deadline_timer.cancel()
            self._deadline_timer = self._loop.call_later(seconds, self._fire)

    def limit_running(self, number: int, timeout: float | None) -> None:
        """Call ``on_timeout(number)`` in `timeout` seconds, unless `stop_limit` comes first."""
        if timeout is not None:
            expired = functools.partial(self._on_timeout, number)
            self._timeouts[number] = self._loop.call_later(timeout, expired)

    def stop_limit(self, number: int) -> None:
        """Forget the timeout of a job that no longer runs."""
        timer = self._timeouts.pop(number, None)
        if timer is not None:
            timer.cancel()

    def _fire(self) -> None:
        self._due = self._deadline_timer = None
        self._on_deadline()
