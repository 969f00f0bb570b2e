"""The C library's heap: few arenas, and free pages returned to the kernel while idle.

glibc keeps up to eight arenas per core, one per thread that allocates, each with its own free
pages: after weeks of mixed jobs, each holds its largest need ever. Without glibc nothing happens.
"""

from __future__ import annotations

import ctypes
import gc

MAX_ARENAS = 2
"""The main thread's and one for all others, which take turns with the GIL anyway."""
_M_ARENA_MAX = -8
"""From malloc.h."""

GC_THRESHOLDS = (5000, 10, 10)
"""Of the garbage collector; the first counts objects, of which a waiting job has about 20. With
CPython's 700, waiting jobs were traversed again and again, in pauses of 0.1 s: a quarter of a
submission's time. Some 500,000 objects of garbage in cycles may remain for a while. Arbitrary."""

_libc = ctypes.CDLL(None)


def limit_arenas() -> bool:
    """Limit this process's arenas before it starts threads. Return whether that is possible."""
    mallopt = getattr(_libc, "mallopt", None)
    return mallopt is not None and bool(mallopt(_M_ARENA_MAX, MAX_ARENAS))


def settle_objects() -> None:
    """Spare all present objects, and mostly those of waiting jobs, the garbage collector.

    Modules and restored jobs live long: collections of them would block the loop.
    """
    gc.set_threshold(*GC_THRESHOLDS)
    gc.freeze()


def trim_heap() -> None:
    """Collect garbage and return free pages to the kernel; takes about 10 ms."""
    gc.collect()
    malloc_trim = getattr(_libc, "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)
