"""Short calls: each thread takes the next units when it is free, without a plan or the engine."""

from __future__ import annotations

import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait

from hetsched.functions.call import Call

HANDING = 1e-4
"""Seconds that other threads take to begin: what takes less stays in the caller's."""
LEAST = 3e-4
"""Seconds of the smallest part: Python's share of each is a tenth of that."""


def compute_in_threads(
    call: Call, first: int, end: int, seconds: float, pool: ThreadPoolExecutor, others: int
) -> None:
    """Compute units in this thread and in `others` of the pool; `seconds`: about those of a unit.

    Parts become smaller towards the end, so that all end at once. Raises what the function raises.
    """
    least = max(1, int(LEAST / max(seconds, 1e-9)))
    taken, lock = first, threading.Lock()

    def take() -> tuple[int, int]:
        nonlocal taken
        with lock:
            begin = taken
            part = max(least, (end - begin) // (2 * (1 + others)))
            taken = min(end, begin + part)
            return begin, taken

    def work() -> None:
        while True:
            begin, stop = take()
            if begin == stop:
                return
            begun = time.thread_time()
            call.compute_here(begin, stop)
            call.busy.append((stop - begin, time.thread_time() - begun))

    def help_out() -> None:
        with contextlib.suppress(BaseException):  # the call knows its failure
            work()

    helpers = [pool.submit(help_out) for _ in range(others)]
    try:
        with contextlib.suppress(Exception):
            work()
    except BaseException:  # such as Ctrl-C
        call.is_cancelled = True
        raise
    finally:
        # Those that haven't begun yet needn't.
        wait([helper for helper in helpers if not helper.cancel()])
    call.raise_failure()
