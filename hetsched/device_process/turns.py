"""Which of a device's jobs computes next, when it holds several. Pure.

Side jobs are small and go first, so that they start at once. The other job, the main one, loses at
most half of the device to them, however many there are.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar

MAX_LEAD_SECONDS = 0.1
"""Time that side jobs may be ahead of a waiting main job before it gets its turn. Arbitrary: one
long chunk of a core."""


class TurnTaker(Protocol):
    """A job of the device. `is_side`: it runs beside a larger one."""

    @property
    def is_side(self) -> bool: ...


Job = TypeVar("Job", bound=TurnTaker)


class Turns:
    """The turns of the jobs of one device."""

    def __init__(self) -> None:
        self._lead = 0.0

    def choose(self, jobs: Iterable[Job]) -> Job | None:
        """Return the job that computes next.

        Parameters
        ----------
        jobs : iterable of Job
            Those with work, oldest first.
        """
        side: Job | None = None
        main: Job | None = None
        for job in jobs:
            if job.is_side:
                side = side or job
            else:
                main = main or job
        if side is None or main is None:
            return side or main
        return side if self._lead <= MAX_LEAD_SECONDS else main

    def record(self, job: TurnTaker, seconds: float, *, has_waiting_main: bool) -> None:
        """Record that `job` has computed for `seconds`.

        `has_waiting_main`: a main job had work at that time; only then it has lost anything.
        """
        if not job.is_side:
            self._lead = max(0.0, self._lead - seconds)
        elif has_waiting_main:
            self._lead += seconds
