"""The scheduling policy of a thread that often sleeps for a moment, until other devices arrive."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator


@contextlib.contextmanager
def wakes_at_once() -> Iterator[None]:
    """Have this thread wake up at once, though it is a batch thread otherwise.

    A batch thread waits until what else runs on its core has used its time slice, which may be a
    hundred times as long as an iteration.
    """
    if os.sched_getscheduler(0) != os.SCHED_BATCH:  # 0: this thread
        yield
        return
    with contextlib.suppress(OSError):  # a sandbox may refuse; this is only an optimisation
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
