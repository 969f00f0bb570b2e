"""Jobs whose turn has come, and whose files are being opened in a thread.

While one is, no other main job starts, and its core takes no other side job, unless it takes long:
its file may be on a dead mount.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from hetsched.engine.concurrency.side_plans import SideStart
from hetsched.errors import HetschedError
from hetsched.transport.loop import Loop

SLOW_OPENING_SECONDS = 1.0
"""After this time the next job may start. Arbitrary."""


@dataclass
class OpeningJob:
    """A job whose files are being opened; `abandon` ends that with an error.

    `is_slow`: others start meanwhile.
    """

    side: SideStart | None
    is_slow: bool = False
    abandon: Callable[[HetschedError], None] = lambda error: None


class Openings:
    """The jobs of one engine that are being opened, by number.

    Parameters
    ----------
    on_slow : callable
        Called with the number of one that takes long.
    """

    def __init__(self, loop: Loop, on_slow: Callable[[int], None]) -> None:
        self._loop = loop
        self._on_slow = on_slow
        self._jobs: dict[int, OpeningJob] = {}

    def __contains__(self, number: int) -> bool:
        return number in self._jobs

    def __len__(self) -> int:
        return len(self._jobs)

    def numbers(self) -> list[int]:
        return list(self._jobs)

    @property
    def has_main_job(self) -> bool:
        """Whether one of them is a main job that isn't slow."""
        return any(job.side is None and not job.is_slow for job in self._jobs.values())

    def begin(self, number: int, side: SideStart | None) -> OpeningJob:
        """Add a job."""
        opening = self._jobs[number] = OpeningJob(side)
        return opening

    def watch(self, number: int) -> None:
        """Let others start if this job is still being opened after a while."""
        opening = self._jobs.get(number)
        if opening is not None:
            check = functools.partial(self._check, number, opening)
            self._loop.call_later(SLOW_OPENING_SECONDS, check)

    def end(self, number: int) -> None:
        """Remove a job: it is open, or can't be opened."""
        del self._jobs[number]

    def abandon(self, number: int, error: HetschedError) -> None:
        """End the opening of a job with `error`."""
        self._jobs[number].abandon(error)

    def _check(self, number: int, opening: OpeningJob) -> None:
        if self._jobs.get(number) is opening:
            opening.is_slow = True
            self._on_slow(number)
