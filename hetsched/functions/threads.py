"""Short calls: each thread takes the next units when it is free, without a plan or the engine."""

from __future__ import annotations

import contextlib
import math
import threading
import time

from hetsched.functions.call import Call

HANDING = 1e-4
"""Seconds that another thread takes to begin: what takes less stays in the caller's."""
LEAST = 3e-4
"""Seconds of the smallest part: Python's share of each is a tenth of that."""
GRACE = 1.0
"""Seconds for other threads to end what they are at after an interruption."""


def compute_in_threads(call: Call, first: int, end: int, seconds: float, cores: int) -> None:
    """Compute units in this thread and in others; `seconds`: about those of a unit.

    Parts become smaller towards the end, so that all end at once. Raises what the function raises.
    """
    # The threads begin one after the other, so more of them soon cost more than they gain.
    wanted = math.isqrt(int(seconds * (end - first) / max(HANDING, 1e-9)))
    count = min(cores, end - first, max(2, wanted))
    least = max(1, int(LEAST / max(seconds, 1e-9)))
    taken, lock = first, threading.Lock()

    def take() -> tuple[int, int]:
        nonlocal taken
        with lock:
            begin = taken
            part = max(least, (end - begin) // (2 * count))
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

    # Not those of a pool, for which the end of the interpreter would wait, whatever they do.
    others = [call.thread(help_out) for _ in range(count - 1)]
    try:
        with contextlib.suppress(
            RuntimeError
        ):  # there may be no more threads: at exit, or by a limit
            for thread in others:
                thread.start()
        with contextlib.suppress(Exception):
            work()
        _join(others, math.inf)
    except BaseException:  # such as Ctrl-C
        call.is_cancelled = True
        _join(others, time.monotonic() + GRACE)
        raise
    call.raise_failure()


def _join(threads: list[threading.Thread], deadline: float) -> None:
    for thread in threads:
        if thread.ident is not None:
            left = deadline - time.monotonic()
            thread.join(max(0.0, left) if math.isfinite(left) else None)
