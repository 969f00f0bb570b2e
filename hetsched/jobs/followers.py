"""Who hears of which states of jobs: progress is throttled, events are numbered."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from hetsched.job import JobState, Queued, Running, brief
from hetsched.transport import messages
from hetsched.transport.loop import Loop, Timer

if TYPE_CHECKING:
    from hetsched.jobs.table import JobRecord

log = logging.getLogger(__name__)

PROGRESS_INTERVAL = 0.25
"""Seconds between two progress messages of one job. Each takes half a millisecond from cores that
compute: in the daemon, and in each client that follows the job."""

IMMEDIATE = ("", "resources")
"""Reasons of a job that is first in line: mostly it starts at once, which followers see then."""

Deliver = Callable[[messages.State, bool], None]
"""deliver(state, droppable)"""


class Follower(NamedTuple):
    client: int
    deliver: Deliver


@dataclass(eq=False)
class Watcher:
    """Who watches jobs, or all, as numbered events. Slow readers miss some, but no end."""

    client: int
    deliver: Deliver
    pending: set[int] | None = None  # The jobs that haven't ended; None: all jobs
    sequence: int = 0

    def send(self, job: JobRecord, droppable: bool) -> None:
        self.sequence += 1
        self.deliver(messages.State(brief(job.state), self.sequence), droppable)
        if job.has_ended and self.pending is not None:
            self.pending.discard(job.number)

    def report(self, job: JobRecord, is_last: bool) -> None:
        if self.pending is None:
            self.send(job, droppable=True)
        elif job.number in self.pending:
            self.send(job, droppable=not is_last)

    @property
    def is_done(self) -> bool:
        return self.pending is not None and not self.pending


class Followers:
    """Everyone who hears of states. On the loop's thread only."""

    def __init__(self, loop: Loop, interval: float = PROGRESS_INTERVAL) -> None:
        self._loop = loop
        self._interval = interval
        # Number of a job -> when its present state is reported
        self._held_back: dict[int, Timer] = {}
        self._watchers: list[Watcher] = []
        self.follows: Counter[int] = Counter()  # Client -> its requests that follow a job

    def follow(self, job: JobRecord, follower: Follower) -> None:
        job.followers.append(follower)
        self.follows[follower.client] += 1

    def watch(self, watcher: Watcher, jobs: Collection[JobRecord]) -> None:
        """Add a watcher of `jobs`, or of all if there are none; it gets their present states."""
        if jobs:
            watcher.pending = {job.number for job in jobs}
        for job in jobs:
            watcher.send(job, droppable=False)
        if not watcher.is_done:
            self._watchers.append(watcher)

    def watches(self, client: int) -> int:
        return sum(watcher.client == client for watcher in self._watchers)

    def change(self, job: JobRecord, state: JobState) -> None:
        previous, job.state = job.state, state
        seconds = job.reported_at + self._interval - time.monotonic()
        if seconds <= 0 or _is_urgent(previous, state):
            self.report(job)
        elif job.number not in self._held_back:
            self._held_back[job.number] = self._loop.call_later(seconds, self.report, job)

    def report(self, job: JobRecord, is_last: bool = False) -> None:
        if (timer := self._held_back.pop(job.number, None)) is not None:
            timer.cancel()
        job.reported_at = time.monotonic()
        waits = isinstance(job.state, Queued) and job.state.held is not None
        for follower in job.followers:
            try:
                follower.deliver(messages.State(job.state), not (is_last or waits))
            except Exception:  # what a follower makes of it is no business of the job
                log.exception("job %d: unexpected error in a callback", job.number)
        for watcher in list(self._watchers):
            watcher.report(job, is_last)
            if watcher.is_done:
                self._watchers.remove(watcher)

    def end(self, job: JobRecord) -> None:
        self.report(job, is_last=True)
        for follower in job.followers:
            self.follows[follower.client] -= 1
            if self.follows[follower.client] <= 0:
                del self.follows[follower.client]
        job.followers = []

    def remove_client(self, client: int, jobs: Collection[JobRecord]) -> None:
        self.follows.pop(client, None)
        self._watchers = [watcher for watcher in self._watchers if watcher.client != client]
        for job in jobs:
            if job.followers:
                job.followers = [each for each in job.followers if each.client != client]


def _is_urgent(previous: JobState, state: JobState) -> bool:
    """Whether followers should see a state at once: another stage or text, or a reason to wait."""
    if isinstance(state, Queued):
        if isinstance(previous, Queued) and previous.reason:  # "": it is new
            return state.reason != previous.reason
        return state.ahead > 0 or state.reason not in IMMEDIATE
    if isinstance(previous, Running) and isinstance(state, Running):
        return (previous.stage, previous.text) != (state.stage, state.text) and bool(state.text)
    return False
