"""When runs are learnt from and models.db is written: never while a job would wait for it."""

from __future__ import annotations

import time
from collections.abc import Callable

from hetsched.engine.context import EngineContext
from hetsched.engine.planning.planner_thread import DEFERRAL_SECONDS
from hetsched.engine.planning.run_planner import LearningTask
from hetsched.transport.timers import Timer

FLUSH_SECONDS = 0.5
"""Delay from a job's end to writing models.db: the next job must not wait for the disk."""
LATE_FLUSH_SECONDS = 10.0
"""The same for the runs of a familiar job: losing the last of them in a crash costs little."""
ROUTINE_SECONDS = 5.0
"""Delay of learning from a run that went as usual: several are learnt from at once. Whatever
uses the models before waits for it."""


class DeferredLearning:
    """Passes learning tasks to the planner's thread. On the loop's thread.

    Parameters
    ----------
    is_busy : callable
        Whether a job runs: learning would compete for the cores being measured.
    """

    def __init__(self, context: EngineContext, is_busy: Callable[[], bool]) -> None:
        self._context = context
        self._is_busy = is_busy
        self._flush_timer: Timer | None = None

    def add(self, task: LearningTask) -> None:
        """Learn from an attempt, later."""
        delay = ROUTINE_SECONDS if task.is_routine else DEFERRAL_SECONDS
        self._context.planner_thread.defer(
            task.function, unless=self._is_busy, seconds=delay, key=task.kind
        )
        self._flush_within(LATE_FLUSH_SECONDS if task.may_write_late else FLUSH_SECONDS)

    def _flush_within(self, seconds: float) -> None:
        due = time.monotonic() + seconds
        if self._flush_timer is not None:
            if self._flush_timer.due <= due:
                return
            self._flush_timer.cancel()
        self._flush_timer = self._context.loop.call_later(seconds, self._flush)

    def _flush(self) -> None:
        self._flush_timer = None
        self._context.planner_thread.submit(self._context.planning.store.flush)
