"""Short calls: each thread takes the next units when it is free, without a plan or the engine."""

from __future__ import annotations

import contextlib
import functools
import math
import threading
import time
from collections.abc import Callable, Sequence

from hetsched.functions.call import Call

HANDING = 1e-4
"""Seconds that another thread takes to begin: what takes less stays in the caller's."""
LEAST = 3e-4
"""Seconds of the smallest part: Python's share of each is a tenth of that."""
GRACE = 1.0
"""Seconds for other threads to end what they are at after an interruption."""


def compute_in_threads(call: Call, first: int, end: int, seconds: float, cores: int) -> None:
    """Compute units in this thread and in others; `seconds`: about those of a unit. Parts become
    smaller towards the end, so that all end at once.
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
            start = time.thread_time()
            call.compute_here(begin, stop)
            call.busy.append((stop - begin, time.thread_time() - start))

    together(call, [work] * count)


def together(call: Call, works: Sequence[Callable[[], object]]) -> None:
    """Do the last of `works` here and each other one in a thread. Raises the function's error."""
    left, ended, begun = list(works), threading.Semaphore(0), 0

    def help_out(work: Callable[[], object]) -> None:
        try:
            with contextlib.suppress(BaseException):  # the call knows its failure
                work()
        finally:
            ended.release()

    # Not those of a pool, for which the end of the interpreter waits whatever they do; not joined:
    # a thread counts as ended where Ctrl-C interrupts `join`.
    try:
        with contextlib.suppress(RuntimeError):  # no more threads at exit, or by a limit
            while len(left) > 1:
                call.thread(functools.partial(help_out, left[0])).start()
                begun += 1
                del left[0]
        with contextlib.suppress(Exception):
            for work in left:
                work()
        while begun:
            ended.acquire()
            begun -= 1
    except BaseException:  # such as Ctrl-C
        call.is_cancelled = True
        deadline = time.monotonic() + GRACE
        while begun and ended.acquire(timeout=max(0.0, deadline - time.monotonic())):
            begun -= 1
        raise
    call.raise_failure()
