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

_libc = ctypes.CDLL(None)


def limit_arenas() -> bool:
    """Limit this process's arenas before it starts threads. Return whether that is possible."""
    mallopt = getattr(_libc, "mallopt", None)
    return mallopt is not None and bool(mallopt(_M_ARENA_MAX, MAX_ARENAS))


def trim_heap() -> None:
    """Collect garbage and return free pages to the kernel; takes about 10 ms."""
    gc.collect()
    malloc_trim = getattr(_libc, "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)
