"""Runs that haven't been learnt from yet, by kind of job. Pure, thread-safe.

Learning from a run and planning the next one takes milliseconds of a core on which jobs compute.
Runs that went as usual say little, so several of them are learnt from at once.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass

from hetsched.engine.planning.device_run import DeviceRun
from hetsched.engine.planning.repeated_jobs import MAX_KINDS, JobKind
from hetsched.engine.planning.run_quality import RunQuality, UsualQuality
from hetsched.planner.records import JobPlan

MIN_GATHERED, MAX_GATHERED = 16, 64
"""Runs of a familiar kind of job that are learnt from at once, if all went as usual. Arbitrary."""
GATHERED_SECONDS = 0.25
"""Within these limits, runs of so many seconds: better plans gain short jobs less. Unusual runs
aren't learnt from before they took so long together, either: noise makes one in six short runs
unusual, and learning takes as long as several of them. Arbitrary."""
MAX_WAIT_FACTOR = 2
"""So many times as many may wait until no job runs; the next job then waits for its plan."""
MIN_LEARNT = 8
"""Runs of a kind of job learnt from one by one before any are learnt from together."""


def gathered_runs(seconds: float) -> int:
    """Return how many runs of `seconds` of a familiar kind of job are learnt from at once."""
    runs = int(GATHERED_SECONDS / seconds) if seconds > 0 else MAX_GATHERED
    return max(MIN_GATHERED, min(MAX_GATHERED, runs))


@dataclass(frozen=True)
class FinishedRun:
    """A run in which no device was lost.

    Attributes
    ----------
    runs : mapping
        Device -> its part of the run.
    is_contended : bool
        Other jobs ran on the same cores: their times aren't those of a job that runs alone.
    fresh : frozenset of str
        Devices whose process ran its variant for the first time.
    """

    plan: JobPlan
    runs: Mapping[str, DeviceRun]
    is_contended: bool = False
    fresh: frozenset[str] = frozenset()


class RunBacklog:
    """The runs of each kind of job that wait for the planner's thread, oldest first."""

    def __init__(self) -> None:
        self._waiting: dict[JobKind, list[FinishedRun]] = {}
        self._learnt: dict[JobKind, int] = {}
        self._usual: dict[JobKind, UsualQuality] = {}
        self._lock = threading.Lock()

    def add(self, kind: JobKind, run: FinishedRun) -> int:
        """Add a run; return how many of its kind wait."""
        with self._lock:
            waiting = self._waiting.setdefault(kind, [])
            waiting.append(run)
            return len(waiting)

    def take(self, kind: JobKind) -> list[FinishedRun]:
        """Remove and return the runs of a kind; none if an earlier call has."""
        with self._lock:
            waiting = self._waiting.pop(kind, [])
            learnt = self._learnt.pop(kind, 0)
            if waiting or learnt:
                self._learnt[kind] = learnt + len(waiting)
            if len(self._learnt) > MAX_KINDS:
                oldest = next(iter(self._learnt))
                del self._learnt[oldest]
                self._usual.pop(oldest, None)
        return waiting

    def is_familiar(self, kind: JobKind) -> bool:
        """Whether enough runs of this kind have been learnt from one by one."""
        return self.learnt(kind) >= MIN_LEARNT

    def learnt(self, kind: JobKind) -> int:
        """Count the runs of this kind that have been learnt from."""
        return self._learnt.get(kind, 0)

    def is_usual(self, kind: JobKind, quality: RunQuality, *, passes_single: bool) -> bool:
        """Record a run of a familiar kind; return whether earlier ones went about as well.

        `passes_single`: as of `UsualQuality.judge`.
        """
        with self._lock:
            usual = self._usual.setdefault(kind, UsualQuality())
            return usual.judge(quality, passes_single=passes_single)
